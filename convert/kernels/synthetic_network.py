"""Synthetic networks: convolutional networks of zero weights, with the layers and sizes of common architectures.

Their kernels are those of the networks: the choice of kernels depends on shapes, not on weights.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ...runtime.ir.builder import Builder
from ...runtime.ir.graph import Graph, Value
from ...runtime.tensor.dtype import F32
from ...runtime.tensor.stored_tensor import StoredTensor

SIDE, LABELS = 224, 1000
RELU, SILU, HARD_SWISH, RELU6 = "Relu", "SiLU", "HardSwish", "Relu6"


class Layers:
    """Layers of a network, each a function of an image [1, channels, height, width]."""

    def __init__(self, name: str) -> None:
        self.graph = Graph(name=name)
        self.image = Value("image", F32, (1, 3, SIDE, SIDE))
        self.graph.values["image"] = self.image
        self.graph.inputs = [self.image]
        self.build = Builder(self.graph)
        self.channels = {"image": 3}

    def output(self, value: Value) -> Graph:
        """The graph, with labels of an image."""
        flat = self.add("Flatten", self.add("GlobalAveragePool", value))
        width = self.channels[value.name]
        logits = self.build.add("Gemm", [flat, self._zeros(LABELS, width), self._zeros(LABELS)], {"transB": 1})
        self.graph.outputs = [logits]
        return self.graph

    def add(self, op: str, *inputs: Value, **attributes: object) -> Value:
        """One node; its channels are those of its first input."""
        value = self.build.add(op, list(inputs), attributes)
        self.channels[value.name] = self.channels[inputs[0].name]
        return value

    def _zeros(self, *shape: int) -> Value:
        return self.build.weight(StoredTensor.of(np.zeros(shape, np.float32)))

    def conv(self, x: Value, outputs: int, side: int = 1, stride: int = 1, groups: int = 1, act: str = "") -> Value:
        """A convolution with a bias and an activation, padded by half its side."""
        width = self.channels[x.name]
        attributes = {"group": groups, "strides": [stride] * 2, "pads": [side // 2] * 4, "kernel_shape": [side] * 2}
        weights = [self._zeros(outputs, width // groups, side, side), self._zeros(outputs)]
        y = self.build.add("Conv", [x, *weights], attributes)
        self.channels[y.name] = outputs
        return self.activation(y, act)

    def activation(self, x: Value, name: str) -> Value:
        """An activation as exporters write it."""
        if name == SILU:
            return self.add("Mul", x, self.add("Sigmoid", x))
        if name == RELU6:
            bounds = [self.build.constant(bound, "float32") for bound in (0, 6)]
            return self.add("Clip", x, *bounds)
        return self.add(name, x) if name else x

    def squeezed(self, x: Value, inner: int, gate: str = "Sigmoid") -> Value:
        """Squeeze and excitation."""
        width = self.channels[x.name]
        y = self.conv(self.add("GlobalAveragePool", x), inner, act=RELU)
        return self.add("Mul", x, self.add(gate, self.conv(y, width)))


def residual_network() -> Graph:
    """ResNet-50 and ResNet-18, with a block of each kind in each stage."""
    net = Layers("resnet")
    x = net.conv(net.image, 64, 7, 2, act=RELU)
    x = net.add("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    for stage, width in enumerate((64, 128, 256, 512)):
        for block in range(2):
            stride = 2 if stage and not block else 1
            y = net.conv(net.conv(net.conv(x, width, act=RELU), width, 3, stride, act=RELU), 4 * width)
            x = net.add("Relu", net.add("Add", y, x if block else net.conv(x, 4 * width, 1, stride)))
    y = net.conv(x, 512, act=RELU)
    z = net.conv(net.conv(y, 512, 3, act=RELU), 512, 3)
    return net.output(net.add("Relu", net.add("Add", z, y)))


def inverted_network(act: str, sides: tuple[int, ...], squeeze: bool) -> Graph:
    """MobileNet and EfficientNet: depthwise convolutions between pointwise ones."""
    net = Layers(f"inverted_{act}")
    x = net.conv(net.image, 32, 3, 2, act=act)
    width = 32
    for outputs in (16, 24, 40, 112, 160):
        for side in sides:
            stride = 2 if outputs != width and outputs > 16 else 1
            inner = 6 * width
            y = net.conv(net.conv(x, inner, act=act), inner, side, stride, inner, act=act)
            y = net.conv(net.squeezed(y, max(inner // 24, 8)) if squeeze else y, outputs)
            x, width = (net.add("Add", y, x) if outputs == width and stride == 1 else y), outputs
    return net.output(net.conv(x, 960, act=act))


def detector() -> Graph:
    """YOLO: blocks of two convolutions, joined channels, pooling and upsampling."""
    net = Layers("detector")
    x = net.conv(net.conv(net.image, 16, 3, 2, act=SILU), 32, 3, 2, act=SILU)
    for width in (64, 128, 256):
        x = net.conv(x, width, 3, 2, act=SILU)
        y = net.add("Add", net.conv(net.conv(x, width, 3, act=SILU), width, 3, act=SILU), x)
        joined = net.add("Concat", x, y, axis=1)
        net.channels[joined.name] = 2 * width
        x = net.conv(joined, width, act=SILU)
    pooled = net.add("MaxPool", x, kernel_shape=[5, 5], strides=[1, 1], pads=[2, 2, 2, 2])
    scales = net.build.constant([1, 1, 2, 2], "float32")
    raised = net.build.add("Resize", [pooled, None, scales], {"mode": "nearest"})
    net.channels[raised.name] = 256
    return net.output(net.conv(raised, 64, 3, act=SILU))


NETWORKS: tuple[Callable[[], Graph], ...] = (
    residual_network,
    lambda: inverted_network(RELU6, (3,), squeeze=False),
    lambda: inverted_network(SILU, (3, 5), squeeze=True),
    lambda: inverted_network(HARD_SWISH, (3, 5), squeeze=True),
    detector,
)
