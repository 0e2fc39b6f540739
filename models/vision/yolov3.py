"""YOLO v3 (Redmon and Farhadi 2018, arXiv:1804.02767) and other detectors of darknet, layer by layer from the .cfg."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from ...runtime.base.dataclass import dataclass
from ...runtime.base.errors import UnsupportedError
from ...runtime.base.units import counted
from ...runtime.contract.architecture import CANDLE, GRAPH, HF, MODEL, Architecture, Config, Task
from ...runtime.contract.darknet_cfg import Section, check_length, sections_of
from ...runtime.contract.hyperparameter import checked, word
from ...runtime.contract.naming import Module
from ...runtime.ir.graph import Graph, Value
from ...runtime.tensor.stored_tensor import StoredTensor
from ..layers.image.conv import convolve
from ..layers.image.grid import places
from ..layers.image.image_net import ImageNet
from ..layers.image.kernels import Kernel, affine, scaled_kernel
from ..layers.image.resize import enlarged, size_of
from ..pipelines.image.image_tasks import image_graph, run_image_model
from ..preprocess.checked_settings import MAX_EDGE
from ..schema.computed_weights import f32
from ..schema.network_hyperparameters import LABELS, OBJECT_DETECTION, ClassTask

NORM = ("scales", "biases", "rolling_mean", "rolling_variance")
"""Darknet's names of the factor, offset, mean and variance of a batch norm."""
ACTIVATIONS = {
    "linear": "none",
    "leaky": "leaky_relu",
    "relu": "relu",
    "relu6": "relu6",
    "mish": "mish",
    "swish": "silu",
    "logistic": "sigmoid",
}
"""Our names of darknet's activations."""
PLAIN = {"dilation": "1", "stride_x": "", "stride_y": "", "weights_type": "none", "maxpool_depth": "0", "reverse": "0"}
"""Options that change what a layer computes, with the values that do not."""
MAX_LAYERS = 1024
MAX_ENLARGED = 8
"""Maximum ratio of a layer's image to the picture."""
CFG, NAMES = ".cfg", ".names"
"""Ends of the names of darknet's files of layers and of labels."""
MODULES = (
    Module("layers.{i}.weights", hf=(), candle="{i}.conv_{i}.weight"),
    Module("layers.{i}.biases", hf=(), candle="{i}.batch_norm_{i}.bias"),
    Module("layers.{i}.biases", hf=(), candle="{i}.conv_{i}.bias"),
    Module("layers.{i}.scales", hf=(), candle="{i}.batch_norm_{i}.weight"),
    Module("layers.{i}.rolling_mean", hf=(), candle="{i}.batch_norm_{i}.running_mean"),
    Module("layers.{i}.rolling_variance", hf=(), candle="{i}.batch_norm_{i}.running_var"),
    Module("layers.{i}", hf=(), candle="{i}.batch_norm_{i}"),
)


@dataclass(frozen=True)
class Network:
    """The layers of a model: the text of its .cfg, and the sections of it, the first one being ``[net]``."""

    text: str
    sections: tuple[Section, ...]


@dataclass(frozen=True)
class NetworkRow:
    """Hyper-parameter: the layers, as the text of the .cfg."""

    name: str = "network"

    def read(self, names: str, source: Mapping[str, Any], config: Config) -> Network:
        text = checked("cfg", source["cfg"], word)
        return Network(text, tuple(sections_of(text, config.path)))

    def write(self, names: str, config: Config) -> dict[str, Any]:
        return {} if names == HF else {"cfg": config.network.text}


KEYS = (ClassTask("Yolov3", (("Model", OBJECT_DETECTION),)), *LABELS, NetworkRow())


def implied(source: Mapping[str, Any], graph: Graph) -> tuple[str, Mapping[str, Any]] | None:
    """The naming convention and the layers, for weights with a .cfg next to them; None for others."""
    marks = {GRAPH: "layers.0.weights", CANDLE: "0.conv_0.weight"}
    names = next((each for each, mark in marks.items() if mark in graph.weights), None)
    text = None if names is None else _text(graph, CFG)
    if names is None or text is None:
        return None
    labels = (_text(graph, NAMES) or "").split("\n")
    said = {"general.architecture": "yolov3", "task": OBJECT_DETECTION, "cfg": text}
    return names, {**said, "label_names": [label.strip() for label in labels if label.strip()]}


def _text(graph: Graph, end: str) -> str | None:
    """The text of a darknet file, from the metadata or from the attached file with this suffix."""
    stated = graph.metadata.get(f"darknet{end}")
    if isinstance(stated, str):
        return stated
    name = next((attachment for attachment in graph.attachments if attachment.endswith(end)), None)
    if name is None:
        return None
    storage = graph.attachments[name]
    check_length(storage.nbytes, name)
    return bytes(storage.read(0, storage.nbytes)).decode("utf-8", "replace")


def settle(config: Config, weights: dict[str, StoredTensor]) -> None:
    """Take the number of labels and the size of pictures from the layers."""
    net, *layers = config.network.sections
    heads = [section for section in layers if section.kind == "yolo"]
    if not heads or len(layers) > MAX_LAYERS:
        why = f"has {counted(len(layers), 'layer')}, {len(heads)} of them [yolo]"
        expected = f"at most {MAX_LAYERS:,} layers, and [yolo] among them"
        raise UnsupportedError("E-DARKNET-LAYER", config.path, why, expected=expected)
    config.values["labels"] = heads[0].integer("classes", 20, 1)
    config.values["letterbox"] = [net.integer(edge, 416, 1, MAX_EDGE) for edge in ("height", "width")]


@dataclass(frozen=True)
class Layer:
    """The output of a layer: images [batch, channels, height, width], one pixel of which is `stride` of the picture."""

    value: Value
    channels: int
    stride: Fraction


def detected(net: ImageNet) -> None:
    """``boxes_xywh`` [batch, boxes, 4]: center, width and height in pixels; ``objectness_and_scores`` [batch, boxes,
    1 + classes] in 0 to 1. Boxes come layer by layer, anchor by anchor, row by row."""
    first, *sections = net.config.network.sections
    channels = first.integer("channels", 3, 1)
    layer = Layer(net.input("pixel_values", "f32", ("batch", channels, "height", "width")), channels, Fraction(1))
    before: list[Layer] = []
    found: list[tuple[Value, Value]] = []
    for section in sections:
        if section.kind == "yolo":
            found.append(_boxes(net, section, layer))
        else:
            layer = _built(net, section, layer, before)
        before.append(layer)
    for name, values in zip(("boxes_xywh", "objectness_and_scores"), zip(*found, strict=True), strict=True):
        net.output(name, net.Concat(*values, axis=1))


Build = Callable[[ImageNet, Section, Layer, Sequence[Layer]], Layer]


def _built(net: ImageNet, section: Section, layer: Layer, before: Sequence[Layer]) -> Layer:
    """A layer on the one before it."""
    build = LAYERS.get(section.kind)
    unusual = [
        f"{key}={section.options[key][:40]}" for key, value in PLAIN.items() if section.options.get(key, value) != value
    ]
    if build is None or unusual:
        what = f"has {unusual[0]}" if unusual else "is a layer"
        why = f"[{section.kind}] in line {section.line:,} {what}, which is not supported"
        raise UnsupportedError("E-DARKNET-LAYER", section.path, why, expected=", ".join(LAYERS))
    return build(net, section, layer, before)


def _convolutional(net: ImageNet, section: Section, layer: Layer, before: Sequence[Layer]) -> Layer:
    name = f"layers.{len(before)}"
    filters, size, groups = (section.integer(key, 1, 1) for key in ("filters", "size", "groups"))
    weight = f32(net.kernel(f"{name}.weights"))
    if weight.shape != (filters, layer.channels // groups, size, size):
        raise section.malformed(f"has weights of the shape {list(weight.shape)}")
    if section.integer("batch_normalize", 0):
        kernel = scaled_kernel(Kernel(weight, None), *affine(net, name, filters, names=NORM))
    else:
        kernel = Kernel(weight, net.array(f"{name}.biases"))
    padding = size // 2 if section.integer("pad", 0) else section.integer("padding", 0)
    stride = section.integer("stride", 1, 1)
    x = convolve(net, layer.value, name, kernel, stride=stride, padding=padding, groups=groups)
    return Layer(_activated(net, section, x, "logistic"), filters, layer.stride * stride)


def _activated(net: ImageNet, section: Section, x: Value, default: str) -> Value:
    name = section.options.get("activation", default)
    if name not in ACTIVATIONS:
        why = f"[{section.kind}] in line {section.line:,} has the activation {name[:40]!r}"
        raise UnsupportedError("E-DARKNET-LAYER", section.path, why, expected=", ".join(ACTIVATIONS))
    return net.activate(x, ACTIVATIONS[name])


def _pooled(net: ImageNet, section: Section, layer: Layer, before: Sequence[Layer]) -> Layer:
    stride = section.integer("stride", 1, 1)
    size = section.integer("size", stride, 1)
    added = section.integer("padding", size - 1)
    start, end = added // 2, added - added // 2
    if end >= size:
        raise section.malformed(f"has padding={added}, which is too much for windows of {size}")
    pads = [start, start, end, end]
    x = net.MaxPool(layer.value, kernel_shape=[size] * 2, strides=[stride] * 2, pads=pads)
    return Layer(x, layer.channels, layer.stride * stride)


def _upsampled(net: ImageNet, section: Section, layer: Layer, before: Sequence[Layer]) -> Layer:
    factor = section.integer("stride", 2, 1)
    stride = layer.stride / factor
    if stride * MAX_ENLARGED < 1:
        raise section.malformed(f"makes images more than {MAX_ENLARGED} times as large as the picture")
    return Layer(enlarged(net, layer.value, factor), layer.channels, stride)


def _routed(net: ImageNet, section: Section, layer: Layer, before: Sequence[Layer]) -> Layer:
    layers = [before[number] for number in section.layers("layers", len(before))]
    groups, group = section.integer("groups", 1, 1), section.integer("group_id", 0)
    channels = sum(each.channels for each in layers)
    if channels % groups or group >= groups:
        raise section.malformed(f"takes part {group} of {groups} of {channels} channels")
    if any(each.stride != layers[0].stride for each in layers):
        raise section.malformed("joins layers of different height or width")
    x = layers[0].value if len(layers) == 1 else net.Concat(*(each.value for each in layers), axis=1)
    if groups > 1:
        x = net.split(x, [channels // groups] * groups, axis=1)[group]
    return Layer(x, channels // groups, layers[0].stride)


def _added(net: ImageNet, section: Section, layer: Layer, before: Sequence[Layer]) -> Layer:
    x = layer.value
    for number in section.layers("from", len(before)):
        if (before[number].channels, before[number].stride) != (layer.channels, layer.stride):
            raise section.malformed("adds layers of different shapes")
        x = net.Add(x, before[number].value)
    return Layer(_activated(net, section, x, "linear"), layer.channels, layer.stride)


def _unchanged(net: ImageNet, section: Section, layer: Layer, before: Sequence[Layer]) -> Layer:
    return layer


LAYERS: dict[str, Build] = {
    **dict.fromkeys(("convolutional", "conv"), _convolutional),
    **dict.fromkeys(("maxpool", "max"), _pooled),
    "upsample": _upsampled,
    "route": _routed,
    "shortcut": _added,
    "dropout": _unchanged,
}


def _boxes(net: ImageNet, section: Section, layer: Layer) -> tuple[Value, Value]:
    """Boxes [batch, anchors x pixels, 4] and their scores, relative to anchors: usual widths and heights."""
    classes = section.integer("classes", 20, 1)
    pairs = np.array(section.reals("anchors"), np.float32)
    chosen = [int(number) for number in section.reals("mask", tuple(range(pairs.size // 2)))]
    if pairs.size % 2 or not chosen or not all(0 <= number < pairs.size // 2 for number in chosen):
        raise section.malformed(f"has {counted(pairs.size, 'length')} of anchors, and the mask {chosen[:9]}")
    count = len(chosen)
    if layer.channels != count * (5 + classes):
        raise section.malformed(f"has {counted(count, 'anchor')} of {classes} classes for {layer.channels} channels")
    x = net.Transpose(net.Reshape(layer.value, [0, count, 5 + classes, -1]), perm=[0, 1, 3, 2])
    middles, lengths, scores = net.split(x, [2, 2, 1 + classes], axis=3)
    (factor,) = section.reals("scale_x_y", (1.0,))[:1]
    anchors = pairs.reshape(-1, 1, 2)[chosen]
    if section.integer("new_coords", 0):
        lengths = net.Mul(net.Mul(lengths, lengths), 4 * anchors)
    else:
        middles, scores = net.Sigmoid(middles), net.Sigmoid(scores)
        lengths = net.Mul(net.Exp(lengths), anchors)
    if factor != 1:
        middles = net.Sub(net.Mul(middles, factor), (factor - 1) / 2)
    middles = net.Mul(net.Add(middles, places(net, size_of(net, layer.value), 0.0)), float(layer.stride))
    boxes = net.Reshape(net.Concat(middles, lengths, axis=3), [0, -1, 4])
    return boxes, net.Reshape(scores, [0, -1, 1 + classes])


ARCHITECTURES = (
    Architecture(
        "yolov3",
        "YOLO v3",
        (),
        ("yolov3",),
        KEYS,
        (),
        (Task(OBJECT_DETECTION, {MODEL: image_graph(detected)}, run_image_model),),
        implied=implied,
        settle=settle,
        prefixes=(),
        ignored=(r"\.yolo_\d+\.anchor(s|_grid)$",),
        modules=MODULES,
    ),
)
