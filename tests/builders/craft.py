"""CRAFT as a module of torch, in small: the weights have EasyOCR's names, as models on several cards save them."""

import torch
from candle_convert.tests.builders.image_checkpoints import randomized
from torch import nn
from torch.nn import functional

LAYERS = (8, 8, "M", 12, 12, "M", 16, 16, 16, "M", 20, 20, 20, "M", 20, 20, 20)
"""Channels of VGG-16's convolutions here, and its pooling."""
SLICES = ((0, 12), (12, 19), (19, 29), (29, 39))
UPWARD = ((44, 12, 16), (36, 10, 14), (30, 8, 12), (24, 8, 8))
"""Channels of the input, of the first and of the second convolution."""


class Craft(nn.Module):
    """Scores of regions and of affinities, [batch, height / 2, width / 2, 2]."""

    def __init__(self):
        super().__init__()
        layers, channels = [], 3
        for each in LAYERS:
            if each == "M":
                layers.append(nn.MaxPool2d(2, 2))
                continue
            layers += [nn.Conv2d(channels, each, 3, padding=1), nn.BatchNorm2d(each), nn.ReLU(inplace=True)]
            channels = each
        self.basenet = nn.Module()
        for number, (first, last) in enumerate(SLICES, 1):
            numbered = nn.Sequential()
            for place in range(first, last):
                numbered.add_module(str(place), layers[place])
            self.basenet.add_module(f"slice{number}", numbered)
        self.basenet.slice5 = nn.Sequential(
            nn.MaxPool2d(3, 1, 1), nn.Conv2d(channels, 24, 3, padding=6, dilation=6), nn.Conv2d(24, 24, 1)
        )
        for number, (start, middle, end) in enumerate(UPWARD, 1):
            self.add_module(f"upconv{number}", _double(start, middle, end))
        scores = [nn.Conv2d(8, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1), nn.Conv2d(8, 4, 3, padding=1)]
        scores += [nn.Conv2d(4, 4, 1), nn.Conv2d(4, 2, 1)]
        self.conv_cls = nn.Sequential(*(each for conv in scores for each in (conv, nn.ReLU(inplace=True))))[:-1]

    def forward(self, x):
        found = []
        for number in range(1, 6):
            x = self.basenet.get_submodule(f"slice{number}")(x)
            found.append(x)
        *finer, x = found
        for number, skip in enumerate(reversed(finer), 1):
            if number > 1:
                x = functional.interpolate(x, size=skip.shape[2:], mode="bilinear", align_corners=False)
            x = self.get_submodule(f"upconv{number}")(torch.cat([x, skip], 1))
        return self.conv_cls(x).permute(0, 2, 3, 1)


def _double(start, middle, end):
    inner = _normed(nn.Conv2d(start, middle, 1), middle), _normed(nn.Conv2d(middle, end, 3, padding=1), end)
    holder = nn.Module()
    holder.conv = nn.Sequential(*inner[0], *inner[1])
    holder.forward = holder.conv.forward
    return holder


def _normed(conv, channels):
    return conv, nn.BatchNorm2d(channels), nn.ReLU(inplace=True)


class _Wrapped(nn.Module):
    def __init__(self, module):
        super().__init__()
        self.module = module


def craft(path, seed=0):
    """The module with random weights and statistics, which are saved to `path`."""
    model = randomized(Craft().eval(), seed)
    torch.save(_Wrapped(model).state_dict(), path, _use_new_zipfile_serialization=False)
    return model


__all__ = ["craft"]
