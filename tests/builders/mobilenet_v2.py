"""MobileNetV2 in torch, narrow, with torchvision's names of weights and random values."""

import torch
from candle_convert.tests.builders.image_checkpoints import randomized
from torch import nn

STAGES = ((1, 4, 1, 1), (6, 8, 2, 2), (6, 8, 3, 2), (6, 16, 4, 2), (6, 24, 3, 1), (6, 40, 3, 2), (6, 80, 1, 1))
"""Expansion, channels, blocks and stride."""
STEM, HEAD, LABELS = 8, 96, 7


class Block(nn.Module):
    def __init__(self, inputs, outputs, stride, expansion):
        super().__init__()
        width = inputs * expansion
        layers = [] if expansion == 1 else [_normed(inputs, width)]
        layers += [_normed(width, width, 3, stride, width), nn.Conv2d(width, outputs, 1, bias=False)]
        self.conv = nn.Sequential(*layers, nn.BatchNorm2d(outputs))
        self.adds = stride == 1 and inputs == outputs

    def forward(self, x):
        return x + self.conv(x) if self.adds else self.conv(x)


class MobileNetV2(nn.Module):
    def __init__(self, labels=LABELS):
        super().__init__()
        layers, channels = [_normed(3, STEM, 3, 2)], STEM
        for expansion, width, count, stride in STAGES:
            for place in range(count):
                layers.append(Block(channels, width, 1 if place else stride, expansion))
                channels = width
        self.features = nn.Sequential(*layers, _normed(channels, HEAD))
        self.classifier = nn.Sequential(nn.Dropout(), nn.Linear(HEAD, labels))

    def forward(self, x):
        return self.classifier(self.features(x).mean((2, 3)))


def _normed(inputs, outputs, size=1, stride=1, groups=1):
    conv = nn.Conv2d(inputs, outputs, size, stride, size // 2, groups=groups, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(outputs), nn.ReLU6())


def mobilenet_v2(path, labels=LABELS):
    """The network; its weights are saved to `path`."""
    model = randomized(MobileNetV2(labels).eval())
    torch.save(model.state_dict(), path)
    return model


__all__ = ["mobilenet_v2"]
