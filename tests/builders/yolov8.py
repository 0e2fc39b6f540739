"""YOLO v8 in torch, with ultralytics' names of weights and random values."""

import torch
from candle_convert.tests.builders.image_checkpoints import randomized
from torch import nn
from torch.nn.functional import interpolate

BINS = 16


class Conv(nn.Module):
    def __init__(self, inputs, outputs, size=1, stride=1):
        super().__init__()
        self.conv = nn.Conv2d(inputs, outputs, size, stride, size // 2, bias=False)
        self.bn = nn.BatchNorm2d(outputs, eps=1e-3)

    def forward(self, x):
        return nn.functional.silu(self.bn(self.conv(x)))


class Bottleneck(nn.Module):
    def __init__(self, width, adds):
        super().__init__()
        self.cv1, self.cv2, self.adds = Conv(width, width, 3), Conv(width, width, 3), adds

    def forward(self, x):
        y = self.cv2(self.cv1(x))
        return x + y if self.adds else y


class C2f(nn.Module):
    def __init__(self, inputs, outputs, count, adds=False):
        super().__init__()
        half = outputs // 2
        self.cv1, self.cv2 = Conv(inputs, outputs), Conv((2 + count) * half, outputs)
        self.m = nn.ModuleList(Bottleneck(half, adds) for _ in range(count))

    def forward(self, x):
        found = list(self.cv1(x).chunk(2, 1))
        for block in self.m:
            found.append(block(found[-1]))
        return self.cv2(torch.cat(found, 1))


class SPPF(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.cv1, self.cv2 = Conv(width, width // 2), Conv(2 * width, width)

    def forward(self, x):
        found = [self.cv1(x)]
        for _ in range(3):
            found.append(nn.functional.max_pool2d(found[-1], 5, 1, 2))
        return self.cv2(torch.cat(found, 1))


class Head(nn.Module):
    def __init__(self, widths, classes, points):
        super().__init__()
        inner = {"cv2": 4 * BINS, "cv3": classes, **({"cv4": 3 * points} if points else {})}
        for name, count in inner.items():
            branches = (nn.Sequential(Conv(width, 16, 3), Conv(16, 16, 3), nn.Conv2d(16, count, 1)) for width in widths)
            setattr(self, name, nn.ModuleList(branches))
        self.dfl = nn.Module()
        self.dfl.conv = nn.Conv2d(BINS, 1, 1, bias=False)

    def forward(self, images):
        found = {"boxes_xywh": [], "scores": [], "keypoints": []}
        for i, x in enumerate(images):
            stride = 8 * 2**i
            rows, columns = torch.meshgrid(*(torch.arange(n) + 0.5 for n in x.shape[2:]), indexing="ij")
            places = torch.stack([columns, rows]).flatten(1)
            shares = self.cv2[i](x).flatten(2).unflatten(1, (4, BINS)).softmax(2)
            edges = (shares * torch.arange(BINS)[:, None]).sum(2)
            first, last = places - edges[:, :2], places + edges[:, 2:]
            found["boxes_xywh"].append(torch.cat([(first + last) / 2, last - first], 1) * stride)
            found["scores"].append(self.cv3[i](x).flatten(2).sigmoid())
            if hasattr(self, "cv4"):
                points = self.cv4[i](x).flatten(2).unflatten(1, (-1, 3))
                moved = (points[:, :, :2] * 2 + places - 0.5) * stride
                found["keypoints"].append(torch.cat([moved, points[:, :, 2:].sigmoid()], 2).flatten(1, 2))
        return {name: torch.cat(each, 2) for name, each in found.items() if each}


class YOLOv8(nn.Module):
    """A detector of some classes and, if there are any, key points."""

    def __init__(self, classes=3, points=0, w=8):
        super().__init__()
        a, b, c, d, e = w, 2 * w, 4 * w, 6 * w, 8 * w
        modules = {
            0: Conv(3, a, 3, 2), 1: Conv(a, b, 3, 2), 2: C2f(b, b, 1, True), 3: Conv(b, c, 3, 2),
            4: C2f(c, c, 2, True), 5: Conv(c, d, 3, 2), 6: C2f(d, d, 2, True), 7: Conv(d, e, 3, 2),
            8: C2f(e, e, 1, True), 9: SPPF(e), 12: C2f(e + d, d, 1), 15: C2f(d + c, c, 1), 16: Conv(c, c, 3, 2),
            18: C2f(c + d, d, 1), 19: Conv(d, d, 3, 2), 21: C2f(d + e, e, 2), 22: Head((c, d, e), classes, points),
        }  # fmt: skip
        self.model = nn.ModuleDict({str(place): module for place, module in modules.items()})

    def forward(self, x):
        m = self.model
        fine = m["4"](m["3"](m["2"](m["1"](m["0"](x)))))
        middle = m["6"](m["5"](fine))
        coarse = m["9"](m["8"](m["7"](middle)))
        middle = m["12"](torch.cat([interpolate(coarse, scale_factor=2), middle], 1))
        fine = m["15"](torch.cat([interpolate(middle, scale_factor=2), fine], 1))
        middle = m["18"](torch.cat([m["16"](fine), middle], 1))
        coarse = m["21"](torch.cat([m["19"](middle), coarse], 1))
        return m["22"]([fine, middle, coarse])


def yolov8(**settings):
    """A model with random values."""
    model = randomized(YOLOv8(**settings))
    with torch.no_grad():
        model.model["22"].dfl.conv.weight.copy_(torch.arange(BINS, dtype=torch.float32).reshape(1, -1, 1, 1))
    return model
