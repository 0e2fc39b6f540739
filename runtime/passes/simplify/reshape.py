"""Reshape simplification: computed shapes become constants; consecutive reshapes, slices and concatenations are
merged."""

from __future__ import annotations

from collections.abc import Sequence

from ...ir.builder import Builder
from ...ir.graph import Dim, Value
from ...ir.registry import onnx
from ..pattern.pattern import call, var
from ..pattern.rewrite_rules import Match, Rule, same_dims

X = var("x")
ONE_SHAPE = "Reshape|Flatten|Squeeze|Unsqueeze"


def entries(wanted: Sequence[Dim], given: Sequence[Dim]) -> list[int] | None:
    """The entries of a Reshape from shape `given` to `wanted`: lengths, 0 to keep one, or one -1; None if they would be
    ambiguous.

    A -1 goes with positive lengths only: with a 0 it would be undefined for a tensor without elements.
    """
    found = []
    for axis, dim in enumerate(wanted):
        if isinstance(dim, int):
            found.append(dim if dim > 0 else None)
        else:
            found.append(None if dim is None else 0 if axis < len(given) and given[axis] == dim else -1)
    known = [entry for entry in found if entry is not None]
    clear = len(known) == len(found) and known.count(-1) <= 1 and not (-1 in known and 0 in known)
    return known if clear else None


def _constant_shape(match: Match, build: Builder) -> Value | None:
    """Reshape by a constant shape."""
    x, root = match["x"], match.root.outputs[0]
    if match.array(match["shape"]) is not None or x.shape is None or root.shape is None:
        return None
    asked = entries(root.shape, x.shape)
    return None if asked is None else build.add("Reshape", [x, build.constant(asked)])


def _one_reshape(match: Match, build: Builder) -> Value | None:
    """One Reshape for two."""
    x, root = match["x"], match.root.outputs[0]
    if x.shape is None or root.shape is None:
        return None
    if same_dims(x, root):
        return x
    asked = entries(root.shape, x.shape)
    if asked is not None:
        return build.add("Reshape", [x, build.constant(asked)])
    shape = match.array(match.root.inputs[1]) if match.root.op is onnx.Reshape else None
    return None if shape is None or (shape <= 0).any() else build.add("Reshape", [x, match.root.inputs[1]])


def _lengths(match: Match, build: Builder) -> Value | None:
    """The condition "is -1" of lengths, always false: how exporters write Expand with -1 for "unchanged"."""
    lengths, minus = match["lengths"], match.array(match["minus"])
    known = match.facts.partial.get(lengths)
    never = known is not None and all(isinstance(dim, str) or (isinstance(dim, int) and dim >= 0) for dim in known)
    return (
        lengths
        if never and minus is not None and (minus == -1).all() and lengths.shape == match.root.outputs[0].shape
        else None
    )


def _matrices_transposed(match: Match, build: Builder) -> Value | None:
    """Transpose of the last two axes, whose leading axes were merged and split again."""
    x, root = match["x"], match.root.outputs[0]
    middle = match.node("middle").outputs[0]
    if (
        x.shape is None
        or root.shape is None
        or middle.shape is None
        or len(x.shape) != len(root.shape)
        or len(x.shape) < 3
        or len(middle.shape) != 3
    ):
        return None
    rank = len(x.shape)
    swapped = (*x.shape[:-2], x.shape[-1], x.shape[-2])
    if None in x.shape or swapped != root.shape or middle.shape[1:] != root.shape[-2:] or 0 in x.shape:
        return None
    return build.add("Transpose", [x], {"perm": [*range(rank - 2), rank - 1, rank - 2]})


def _softmax(match: Match, build: Builder) -> Value | None:
    """Softmax over the last axis, whose leading axes were merged."""
    x, flat = match["x"], match.attributes("flat")["axis"]
    if x.shape is None or flat not in (len(x.shape) - 1, -1) or not same_dims(x, match.root.outputs[0]):
        return None
    return build.add(match.node("softmax").op, [x], {"axis": -1})


def _window(match: Match, name: str) -> list[list[int]] | None:
    """Constant starts, ends, axes and steps of a Slice."""
    node = match.node(name)
    found = [match.integers(node, index) for index in (1, 2, 3, 4)]
    starts, ends, axes, steps = found
    shape = node.outputs[0].shape
    if starts is None or ends is None or shape is None:
        return None
    if len(node.inputs) <= 3 or node.inputs[3] is None:
        axes = list(range(len(starts)))
    if len(node.inputs) <= 4 or node.inputs[4] is None:
        steps = [1] * len(starts)
    return None if axes is None or steps is None else [starts, ends, [axis % len(shape) for axis in axes], steps]


def _one_slice(match: Match, build: Builder) -> Value | None:
    """One Slice for two along different axes."""
    first, second = _window(match, "first"), _window(match, "second")
    if first is None or second is None or set(first[2]) & set(second[2]):
        return None
    return build.add(
        "Slice", [match["x"], *(build.constant(one + other) for one, other in zip(first, second, strict=True))]
    )


MAX_CONCAT_INPUTS = 64
"""Inputs of a merged Concat, at most: a chain in which each joins the one before twice would grow exponentially."""


def _one_concat(match: Match, build: Builder) -> Value | None:
    """One Concat for nested ones along the same axis."""
    node = match.root
    axis, rank = node.attributes.get("axis"), len(node.outputs[0].shape or ())
    inputs: list[Value | None] = []
    for value in node.inputs:
        maker = match.view.maker(value)
        inner = maker is not None and maker.op is node.op and value is not None and match.view.only(value) and rank
        same = inner and maker is not None and (maker.attributes.get("axis") or 0) % rank == (axis or 0) % rank
        inputs += (
            maker.inputs
            if same and maker is not None and len(inputs) + len(maker.inputs) <= MAX_CONCAT_INPUTS
            else [value]
        )
    return build.add(node.op, inputs, node.attributes) if len(inputs) > len(node.inputs) else None


RULES = (
    Rule(
        "lengths that are not -1",
        call("Where", call("Equal", var("lengths"), var("minus")), var("ones"), var("lengths")),
        _lengths,
    ),
    Rule(
        "matrices transposed",
        call("Reshape", call("Transpose", call("Reshape", X, ...), name="middle", perm=[0, 2, 1]), ...),
        _matrices_transposed,
    ),
    Rule(
        "softmax over the last axis",
        call("Reshape", call("Softmax", call("Flatten", X, name="flat"), name="softmax", axis=-1), ...),
        _softmax,
    ),
    Rule("two shapes", call(ONE_SHAPE, call(ONE_SHAPE, X, ..., shared=True), ...), _one_reshape),
    Rule("computed shape", call("Reshape", X, var("shape")), _constant_shape),
    Rule("two slices", call("Slice", call("Slice", X, ..., name="first"), ..., name="second"), _one_slice),
    Rule("two joins", call("Concat", ...), _one_concat),
)
