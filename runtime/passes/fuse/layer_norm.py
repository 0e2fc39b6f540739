"""LayerNormalization and RMSNormalization fusion, from means, squares and roots as exporters write them."""

from __future__ import annotations

import numpy as np

from ...ir.builder import Builder
from ...ir.graph import Value
from ..pattern.pattern import Pattern, call, number, optional, product, var
from ..pattern.rewrite_rules import Match, Rule, is_float

X, SCALE, BIAS = var("x"), var("scale"), var("bias")
EPSILON = number("epsilon")
MAX_EPSILON = 1e-2
"""Largest epsilon that guards against division by zero; a larger one has another meaning."""


def _mean(of: Pattern, name: str) -> Pattern:
    return call("ReduceMean", of, ..., name=name, keepdims=1)


def _over_root(numerator: Pattern, squared: Pattern) -> Pattern:
    """A numerator divided by the square root of `squared`, in the forms that exporters write."""
    root = call("Sqrt", squared + EPSILON)
    inverse = call("Reciprocal", root) | 1.0 / root | call("Pow", squared + EPSILON, -0.5)
    return numerator / root | product(numerator, inverse)


WIDE = optional("Cast", X)
CENTRED = WIDE - _mean(WIDE, "mean")
NORMAL = optional("Cast", _over_root(CENTRED, _mean(product(CENTRED, CENTRED), "variance")), shared=False)
ROOT = optional("Cast", _over_root(WIDE, _mean(product(WIDE, WIDE), "square")), shared=False)

_root = call("Sqrt", _mean(product(CENTRED, CENTRED), "variance") + EPSILON)
_factor = product(call("Reciprocal", _root) | 1.0 / _root, SCALE)
FOLDED = product(X, _factor) + (BIAS - product(_mean(X, "mean"), _factor))
"""Keras's form: the scale is folded into the factor, the mean into the bias."""


def first_axis(match: Match, *means: str) -> int | None:
    """The first normalized axis; None if the nodes differ, or do not reduce all axes after it."""
    shape = match["x"].shape
    found = set()
    for name in means:
        node = match.node(name)
        axes = match.integers(node, 1) if len(node.inputs) > 1 and node.inputs[1] is not None else None
        if axes is None or shape is None or not axes:
            return None
        found.add(frozenset(axis % len(shape) for axis in axes))
    rank = len(shape or ())
    first = min(min(axes) for axes in found)
    return first if found == {frozenset(range(first, rank))} else None


def _fits(match: Match, first: int) -> bool:
    """Whether scale and bias have the shape of the normalized axes, and all dtypes are floating-point."""
    whole = match["x"].shape or ()
    wanted = whole[first:]
    parts = [value for value in (match.get("scale"), match.get("bias")) if value is not None]
    known = all(isinstance(dim, int) for dim in wanted) and 0 <= match.number("epsilon") <= MAX_EPSILON
    return known and is_float(match["x"], *parts) and all(_without_ones(value) == wanted for value in parts)


def _without_ones(value: Value) -> tuple[object, ...] | None:
    """A shape without leading ones."""
    shape = value.shape
    while shape is not None and len(shape) > 1 and shape[0] == 1:
        shape = shape[1:]
    return shape


def _flat(match: Match, build: Builder, name: str, first: int) -> Value:
    """A scale or bias reshaped to the normalized axes."""
    value, wanted = match[name], (match["x"].shape or ())[first:]
    return (
        value
        if value.shape == wanted
        else build.add("Reshape", [value, build.constant([int(dim or 0) for dim in wanted])])
    )


def _precise(match: Match) -> bool:
    """Whether statistics are computed in the dtype of `x`, or in f32 if that is wider."""
    x = match["x"].dtype
    mean = next(match.node(name) for name in ("variance", "square") if match.has(name)).outputs[0].dtype
    return x is not None and mean is not None and (mean is x or (mean.name == "f32" and x.bits < mean.bits))


def _layer_norm(match: Match, build: Builder) -> Value | None:
    first = first_axis(match, "mean", "variance")
    x, root = match["x"], match.root.outputs[0]
    if first is None or not _precise(match) or not _fits(match, first) or root.dtype is not x.dtype:
        return None
    if match.has("scale"):
        parts = [_flat(match, build, name, first) for name in ("scale", "bias") if match.has(name)]
    else:
        dims = [int(dim or 0) for dim in (x.shape or ())[first:]]
        parts = [build.constant(np.ones(dims, x.dtype.as_numpy()))] if x.dtype is not None else []
    if any(part.dtype is not x.dtype for part in parts):
        return None
    axis = first - len(x.shape or ())
    return build.add("LayerNormalization", [x, *parts], {"axis": axis, "epsilon": match.number("epsilon")})


def _rms_norm(match: Match, build: Builder) -> Value | None:
    first = first_axis(match, "square")
    x, root, scale = match["x"], match.root.outputs[0], match["scale"]
    if first is None or not _precise(match) or not _fits(match, first) or not root.dtype is scale.dtype is x.dtype:
        return None
    flat = _flat(match, build, "scale", first)
    return build.add(
        "RMSNormalization", [x, flat], {"axis": first - len(x.shape or ()), "epsilon": match.number("epsilon")}
    )


FUSION_RULES = (
    Rule("LayerNormalization", product(NORMAL, SCALE) + BIAS, _layer_norm, 17),
    Rule("LayerNormalization of Keras", FOLDED, _layer_norm, 17),
    Rule("LayerNormalization without bias", product(NORMAL, SCALE), _layer_norm, 17),
    Rule("LayerNormalization without scale", NORMAL, _layer_norm, 17),
    Rule("RMSNormalization", product(ROOT, SCALE), _rms_norm, 23),
)
