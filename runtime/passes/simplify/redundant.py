"""Removal of redundant nodes: arithmetic with 0 or 1, no-op moves, QuantizeLinear of dequantized codes."""

from __future__ import annotations

import numpy as np

from ...ir.builder import Builder
from ...ir.graph import Value
from ..pattern.pattern import call, var
from ..pattern.rewrite_rules import Build, Match, Rule, same_dims

X, OTHER = var("x"), var("other")
TAUTOLOGY = var("tautology")
NARROW = 8
"""Bits up to which an integer survives dequantization and quantization, whatever the scale's dtype."""


def _input(match: Match, build: Builder) -> Value | None:
    """`x`, if it is known to have the shape of the result."""
    return match["x"] if same_dims(match["x"], match.root.outputs[0]) else None


def _only_input(match: Match, build: Builder) -> Value | None:
    return match["x"]


def _whole(match: Match, build: Builder) -> Value | None:
    """`x`, if no axis is reversed or strided."""
    node = match.root
    steps = match.integers(node, 4) if len(node.inputs) > 4 and node.inputs[4] is not None else [1]
    return _input(match, build) if steps is not None and all(step == 1 for step in steps) else None


def _unpadded(match: Match, build: Builder) -> Value | None:
    pads = match.integers(match.root, 1)
    return match["x"] if pads is not None and not any(pads) else None


def _holding(truth: bool) -> Build:
    def build(match: Match, build: Builder) -> Value | None:
        array = match.array(match["tautology"])
        return _input(match, build) if array is not None and array.dtype == bool and (array == truth).all() else None

    return build


def _same_constant(match: Match, one: Value | None, other: Value | None) -> bool:
    if one is None or other is None or one is other:
        return one is other
    first, second = match.array(one), match.array(other)
    return first is not None and second is not None and first.dtype == second.dtype and np.array_equal(first, second)


def _quantized(match: Match, build: Builder) -> Value | None:
    back, again, x = match.node("back"), match.root, match["x"]
    scale = back.inputs[1]
    pairs = zip([*back.inputs[1:3], None][:2], [*again.inputs[1:3], None][:2], strict=True)
    if (
        x.dtype is None
        or x.dtype.kind not in ("int", "uint")
        or scale is None
        or not all(_same_constant(match, *pair) for pair in pairs)
    ):
        return None
    exact = x.dtype.bits <= NARROW or (
        scale.dtype is not None and scale.dtype.name == "f32" and x.dtype.bits <= 2 * NARROW
    )
    layout = [{**node.op.defaults, **node.attributes} for node in (back, again)]
    return x if exact and all(layout[0].get(name) == layout[1].get(name) for name in ("axis", "block_size")) else None


def _added(match: Match, build: Builder) -> Value | None:
    """Add in place of Sum of two inputs, so that fusions need to match Add only."""
    return build.add("Add", [match["x"], match["other"]])


RULES = (
    Rule("times one", X * 1.0 | X / 1.0 | call("Pow", X, 1.0), _input),
    Rule("plus zero", X + 0.0 | X - 0.0, _input),
    Rule("and true", call("And", X, TAUTOLOGY), _holding(True)),
    Rule("or false", call("Or", X, TAUTOLOGY), _holding(False)),
    Rule("in the same shape", call("Reshape|Expand|Tile|Squeeze|Unsqueeze|Flatten", X, ...), _input),
    Rule("whole slice", call("Slice", X, ...), _whole),
    Rule("pad of nothing", call("Pad", X, ...), _unpadded),
    Rule("one of one", call("Concat|Sum|Max|Min|Mean", X), _only_input),
    Rule("sum of two", call("Sum", X, OTHER), _added, opset=7),
    Rule(
        "quantized again",
        call("QuantizeLinear", call("DequantizeLinear", X, ..., name="back", shared=True), ...),
        _quantized,
    ),
)
