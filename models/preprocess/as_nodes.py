"""A preparation as nodes in front of a graph, which then takes bytes of pictures."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ...runtime.base.errors import UnsupportedError
from ...runtime.ir.graph import Graph, Node, Value
from ...runtime.tensor.dtype import U8
from .preparation import BICUBIC, BILINEAR, NEAREST, TWO_BY_TWO, Padding, Preparation, floor_half
from .resize_rules import EdgesWithin, Exact, Letterbox, LongestEdge, ShortestEdge, Size, Within
from .size_nodes import RULES, SizeNet, resized

PIXELS, BYTES = "pixel_values", "pixels"
"""The input of prepared pixels, and the one that takes its place: u8 [batch, height, width, 3]."""
FLOAT = 1
FILTERS: Mapping[int, Mapping[str, Any]] = {
    NEAREST: {"mode": "nearest", "nearest_mode": "round_prefer_ceil"},
    BILINEAR: {"mode": "linear", "antialias": 1, "exclude_outside": 1},
    BICUBIC: {"mode": "cubic", "antialias": 1, "cubic_coeff_a": -0.5, "exclude_outside": 1},
    TWO_BY_TWO: {"mode": "linear"},
}
"""Attributes of Resize that compute as a filter does."""


def take_bytes(graph: Graph, preparation: Preparation, path: str | None = None) -> None:
    """Change a graph with the input ``pixel_values`` to take ``pixels``, u8 [batch, height, width, channels], of
    pictures of one size, and to prepare them.

    Raises UnsupportedError for steps that are not written as nodes.
    """
    pixels = graph.values.get(PIXELS)
    if pixels is None or pixels not in graph.inputs:
        raise UnsupportedError("E-PREPROCESSOR-GRAPH", path, f"the graph has no input {PIXELS}")
    _check(preparation, path)
    nodes: list[Node] = []
    net = SizeNet(graph, nodes, stem="prepare")
    value = Value(BYTES, U8, ("batch", "height", "width", preparation.channels))
    graph.values[BYTES] = value
    graph.inputs[graph.inputs.index(pixels)] = value
    x = net.call("Transpose", net.call("Cast", value, to=FLOAT), perm=[0, 3, 1, 2])
    if preparation.resize is not None:
        x = _resized(net, x, preparation)
    if preparation.crop is not None:
        x = _cropped(net, x, preparation)
    if preparation.bgr:
        x = net.call("Gather", x, [2, 1, 0], axis=1)
    padding = preparation.padding or Padding()
    if padding.black:
        x = _padded(net, x, padding)
    x = net.call("Add", net.call("Mul", x, _by_channel(net, preparation.factor)), _by_channel(net, preparation.shift))
    if not padding.black:
        x = _padded(net, x, padding)
    net.add("Identity", [x], outputs=[pixels])
    graph.nodes[:0] = nodes


def _check(preparation: Preparation, path: str | None) -> None:
    rule, padding = preparation.resize, preparation.padding
    why = None
    if rule is not None and type(rule) not in RULES:
        why = f"resizing by the rule {type(rule).__name__}"
    elif rule is not None and preparation.filter not in FILTERS:
        why = f"the filter {preparation.filter} of Pillow"
    elif padding is not None and padding.size is not None and not _fits(preparation, padding.size):
        why = f"padding to {padding.size[0]} x {padding.size[1]} of pictures that may be larger"
    if why is not None:
        hint = "Leave out --with-preprocessing, and prepare pictures outside of the graph"
        raise UnsupportedError("E-PREPROCESSOR-GRAPH", path, f"{why} is not written as nodes", hint=hint)


def _fits(preparation: Preparation, box: Size) -> bool:
    """Whether every picture is smaller than a box before it is padded."""
    rule, most = preparation.resize, preparation.crop
    if most is None and isinstance(rule, Exact | Within | Letterbox):
        most = rule.height, rule.width
    elif most is None and isinstance(rule, LongestEdge | EdgesWithin):
        longest = rule.length if isinstance(rule, LongestEdge) else max(rule.longest, rule.shortest)
        most = longest, longest
    return most is not None and most[0] <= box[0] and most[1] <= box[1]


def _by_channel(net: SizeNet, numbers: tuple[float, ...]) -> Value:
    return net.constant(np.array(numbers, np.float32).reshape(1, -1, 1, 1))


def _resized(net: SizeNet, x: Value, preparation: Preparation) -> Value:
    """Widths, then heights are resized, and each result is rounded to bytes, as Pillow does; it may take heights first,
    which changes bytes by one, and by a few where a cubic filter overshoots. OpenCV rounds once."""
    assert preparation.resize is not None
    size = resized(net, preparation.resize, net.call("Shape", x, start=2))
    lowest, highest = (net.constant(np.array(edge, np.float32)) for edge in (0, 255))
    for axes in ((2, 3),) if preparation.filter == TWO_BY_TWO else ((3,), (2,)):
        lengths = net.call("Gather", size, [axis - 2 for axis in axes], axis=0)
        x = net.add("Resize", [x, None, None, lengths], {**FILTERS[preparation.filter], "axes": list(axes)})
        x = net.call("Clip", net.call("Round", x), lowest, highest)
    return x


def _cropped(net: SizeNet, x: Value, preparation: Preparation) -> Value:
    """The middle; smaller pictures are surrounded with the fill."""
    assert preparation.crop is not None
    crop = list(preparation.crop)
    margin = net.call("Sub", net.call("Shape", x, start=2), crop)
    half = net.call("Mul", net.real(margin), 0.5)
    if preparation.halved is floor_half:
        start = net.whole(net.call("Floor", half))
    else:
        start = net.call("Where", net.call("Greater", margin, 0), net.rounded(half), net.whole(half))
    if not _covers(preparation):
        fill = _by_channel(net, tuple(map(float, preparation.fill)))
        before = net.call("Max", net.call("Neg", start), 0)
        after = net.call("Max", net.call("Sub", start, margin), 0)
        x = net.call("Add", _pad(net, net.call("Sub", x, fill), before, after), fill)
        start = net.call("Max", start, 0)
    return net.call("Slice", x, start, net.call("Add", start, crop), [2, 3])


def _covers(preparation: Preparation) -> bool:
    """Whether every resized picture is at least as large as the crop."""
    rule, crop = preparation.resize, preparation.crop
    assert crop is not None
    if isinstance(rule, ShortestEdge):
        return max(crop) <= rule.length
    return isinstance(rule, Exact) and crop[0] <= rule.height and crop[1] <= rule.width


def _padded(net: SizeNet, x: Value, padding: Padding) -> Value:
    """The picture with zeros around it."""
    if padding.size is None and padding.divisor == 1:
        return x
    size = net.call("Shape", x, start=2)
    wanted = size if padding.size is None else net.constant(list(padding.size))
    wanted = net.multiple(net.call("Add", wanted, padding.divisor - 1), padding.divisor)
    missing = net.call("Sub", wanted, size)
    before = net.call("Div", missing, 2) if padding.centered else net.call("Mul", missing, 0)
    return _pad(net, x, before, net.call("Sub", missing, before))


def _pad(net: SizeNet, x: Value, before: Value, after: Value) -> Value:
    """Zeros above and left of a picture, and below and right."""
    return net.add("Pad", [x, net.call("Concat", before, after, axis=0), None, net.constant([2, 3])])
