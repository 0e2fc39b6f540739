"""The weight shapes that the layers of a darknet ``.cfg`` file imply.

Only keys that determine shapes are interpreted. Source: darknet's parser.c and the layers' make functions, in both the
original and AlexeyAB's version.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from ...runtime.base.errors import UnsupportedError
from ...runtime.contract.darknet_cfg import MAX_SIZE, Section, check_length, sections_of
from ...runtime.tensor.file import Source

UNUSUAL = ("flipped", "dontload", "numload", "dontloadscales", "share_index", "antialiasing", "xnor")
"""Options that change which weights are stored, or how."""

Size = tuple[int, int, int]
"""Height, width and channels of a layer's output."""
Weights = list[tuple[str, tuple[int, ...]]]
"""Names and shapes in the order of the file."""


def text_of(source: Source) -> str:
    """The text of a configuration file, or of one with names of labels."""
    check_length(source.size, source.path)
    source.budget.charge(8 * source.size, "the configuration")
    return source.read(0, source.size).decode("utf-8", "replace")


def parse(text: str, source: Source) -> list[Section]:
    """The sections of a configuration file, from its text."""
    sections = sections_of(text, source.path)
    source.budget.entry(len(sections), "layers")
    return sections


def weights_of(sections: list[Section]) -> list[Weights]:
    """The stored weights of every layer.

    Raises:
        FormatError: inconsistent options.
        UnsupportedError: a layer type whose weights or output shape are unknown.
    """
    net = sections[0]
    sizes: list[Size] = []
    found = []
    size = (net.integer("height", 0), net.integer("width", 0), net.integer("channels", 0))
    for section in sections[1:]:
        kind = LAYER_TYPES.get(section.kind)
        unusual = [key for key in UNUSUAL if section.options.get(key, "0") != "0"]
        if kind is None or unusual or section.options.get("weights_type", "none") != "none":
            what = f"has {unusual[0]}={section.options[unusual[0]][:40]}" if unusual else "is a layer"
            why = f"[{section.kind}] in line {section.line:,} {what} whose weights are not understood"
            raise UnsupportedError(
                "E-DARKNET-LAYER", section.path, why, hint="Move the .cfg away to read the weights as one flat tensor"
            )
        size, weights = kind(section, size, sizes)
        if min(size) < 0 or math.prod(size) > MAX_SIZE << 16:
            raise section.malformed(f"puts out {size[0]} x {size[1]} x {size[2]}")
        sizes.append(size)
        found.append(weights)
    return found


def _convolutional(section: Section, size: Size, before: list[Size]) -> tuple[Size, Weights]:
    height, width, channels = size
    filters, side, groups = (
        section.integer("filters", 1, 1),
        section.integer("size", 1, 1),
        max(1, section.integer("groups", 1)),
    )
    if not channels or channels % groups:
        raise section.malformed(f"has {groups} groups for {channels} channels")
    padding = side // 2 if section.integer("pad", 0) else section.integer("padding", 0)
    down, across = _strides(section)
    out = ((height + 2 * padding - side) // down + 1, (width + 2 * padding - side) // across + 1, filters)
    normalized = section.integer("batch_normalize", 0) or section.integer("cbn", 0)
    return out, [*_biases(filters, normalized), ("weights", (filters, channels // groups, side, side))]


def _local(section: Section, size: Size, before: list[Size]) -> tuple[Size, Weights]:
    filters, side, stride = (
        section.integer("filters", 1, 1),
        section.integer("size", 1, 1),
        section.integer("stride", 1, 1),
    )
    lost = 1 if section.integer("pad", 0) else side
    height, width = (size[0] - lost) // stride + 1, (size[1] - lost) // stride + 1
    return (height, width, filters), [
        ("biases", (filters * height * width,)),
        ("weights", (height * width, filters, size[2], side, side)),
    ]


def _connected(section: Section, size: Size, before: list[Size]) -> tuple[Size, Weights]:
    outputs, inputs = section.integer("output", 1, 1), math.prod(size)
    if not inputs:
        raise section.malformed("does not state the size of the network's input")
    bias, *normalization = _biases(outputs, section.integer("batch_normalize", 0))
    return (1, 1, outputs), [bias, ("weights", (outputs, inputs)), *normalization]


def _biases(count: int, normalized: int) -> Weights:
    names = ("biases", "scales", "rolling_mean", "rolling_variance") if normalized else ("biases",)
    return [(name, (count,)) for name in names]


def _strides(section: Section) -> tuple[int, int]:
    stride = section.integer("stride", 1, 1)
    return section.integer("stride_y", stride, 1), section.integer("stride_x", stride, 1)


def _pooled(section: Section, size: Size, before: list[Size]) -> tuple[Size, Weights]:
    if section.integer("maxpool_depth", 0):
        return (*size[:2], section.integer("out_channels", 1, 1)), []
    down, across = _strides(section)
    side = section.integer("size", section.integer("stride", 1, 1), 1)
    padding = section.integer("padding", side - 1)
    return ((size[0] + padding - side) // down + 1, (size[1] + padding - side) // across + 1, size[2]), []


def _averaged(section: Section, size: Size, before: list[Size]) -> tuple[Size, Weights]:
    return (1, 1, size[2]), []


def _reorganised(section: Section, size: Size, before: list[Size]) -> tuple[Size, Weights]:
    stride = section.integer("stride", 1, 1)
    if section.integer("reverse", 0):
        return (size[0] * stride, size[1] * stride, size[2] // (stride * stride)), []
    return (size[0] // stride, size[1] // stride, size[2] * stride * stride), []


def _upsampled(section: Section, size: Size, before: list[Size]) -> tuple[Size, Weights]:
    stride = section.integer("stride", 2, 1)
    return (size[0] * stride, size[1] * stride, size[2]), []


def _routed(section: Section, size: Size, before: list[Size]) -> tuple[Size, Weights]:
    inputs = [before[number] for number in section.layers("layers", len(before))]
    groups = section.integer("groups", 1, 1)
    if any(each[:2] != inputs[0][:2] for each in inputs):
        raise section.malformed("joins layers of different height or width")
    return (*inputs[0][:2], sum(each[2] for each in inputs) // groups), []


def _added(section: Section, size: Size, before: list[Size]) -> tuple[Size, Weights]:
    section.layers("from", len(before))
    return size, []


def _scaled(section: Section, size: Size, before: list[Size]) -> tuple[Size, Weights]:
    return before[section.layers("from", len(before))[0]], []


def _cropped(section: Section, size: Size, before: list[Size]) -> tuple[Size, Weights]:
    return (section.integer("crop_height", 1, 1), section.integer("crop_width", 1, 1), size[2]), []


def _unchanged(section: Section, size: Size, before: list[Size]) -> tuple[Size, Weights]:
    return size, []


Kind = Callable[[Section, Size, list[Size]], tuple[Size, Weights]]
LAYER_TYPES: dict[str, Kind] = {
    **dict.fromkeys(("convolutional", "conv"), _convolutional),
    "local": _local,
    **dict.fromkeys(("connected", "conn"), _connected),
    **dict.fromkeys(("maxpool", "max", "local_avgpool", "local_avg"), _pooled),
    **dict.fromkeys(("avgpool", "avg"), _averaged),
    **dict.fromkeys(("reorg", "reorg3d"), _reorganised),
    "upsample": _upsampled,
    "route": _routed,
    **dict.fromkeys(("shortcut", "sam"), _added),
    "scale_channels": _scaled,
    "crop": _cropped,
    **dict.fromkeys(
        ("dropout", "cost", "softmax", "soft", "logistic", "activation", "l2norm", "lrn", "normalization"), _unchanged
    ),
    **dict.fromkeys(
        ("yolo", "gaussian_yolo", "region", "detection", "iseg", "contrastive", "empty", "silence"), _unchanged
    ),
}
"""Output size and weights by layer type, from the input size and the outputs of earlier layers."""
