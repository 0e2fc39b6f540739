"""Gradients of data movement: reshape, transpose, slice, gather, scatter, concat, expand."""

from __future__ import annotations

from ...runtime.base.errors import UnsupportedError
from ..gather.gather import gather, gather_elements, gather_nd
from ..gather.non_zero import compress, non_zero
from ..gather.scatter import scatter_elements, scatter_nd
from ..generator.constant import constant
from ..generator.constant_of_shape import constant_of_shape, eye_like
from ..generator.one_hot import one_hot
from ..generator.range import range_
from ..generator.trilu import trilu
from ..rules.expression import Term
from ..shape.concat import concat
from ..shape.depth_to_space import depth_to_space, space_to_depth
from ..shape.expand import expand, tile
from ..shape.pad import pad
from ..shape.reshape import flatten, reshape
from ..shape.reverse_sequence import reverse_sequence
from ..shape.shape import shape, size
from ..shape.slice import slice_
from ..shape.split import split
from ..shape.squeeze import squeeze, unsqueeze
from ..shape.transpose import transpose
from ..signal import mel_weight_matrix, window_function
from ..sort.top_k import top_k
from .gradient_rule import Step, differentiated, without_gradient

without_gradient(shape, size, constant, constant_of_shape, eye_like, non_zero)
without_gradient(
    window_function.hann_window,
    window_function.hamming_window,
    window_function.blackman_window,
    mel_weight_matrix.mel_weight_matrix,
)


@differentiated(reshape, flatten, squeeze, unsqueeze)
def _reshape(step: Step) -> list[Term | None]:
    return [step.slope.like(step.input(0))]


@differentiated(transpose)
def _transpose(step: Step) -> list[Term | None]:
    perm = step.attributes["perm"]
    return [
        step.slope.call(
            "Transpose", **({} if perm is None else {"perm": [list(perm).index(axis) for axis in range(len(perm))]})
        )
    ]


@differentiated(concat)
def _concat(step: Step) -> list[Term | None]:
    axis = step.attributes["axis"]
    parts = [x.length(axis) for x in step.x if x is not None]
    lengths = step.of("Concat", parts, axis=0)
    outputs = step.build.node("Split", [step.slope.value, lengths.value], {"axis": axis}, outputs=len(parts)).outputs
    return [Term(value, step.build) for value in outputs]


@differentiated(split)
def _split(step: Step) -> list[Term | None]:
    """Parts that nothing depends on are zeros."""
    parts = [g if g is not None else step.output(index).filled(0) for index, g in enumerate(step.g)]
    return [step.of("Concat", parts, axis=step.attributes["axis"])]


@differentiated(expand)
def _expand(step: Step) -> list[Term | None]:
    return [step.slope.summed_to(step.input(0))]


@differentiated(range_)
def _range(step: Step) -> list[Term | None]:
    g = step.slope
    counts = step.integers(0).call("Range", g.call("Size"), step.integers(1)).call("CastLike", g)
    return [g.call("ReduceSum", keepdims=0), None, (g * counts).call("ReduceSum", keepdims=0)]


@differentiated(gather, gather_elements, gather_nd, slice_, tile, compress)
def _picked(step: Step) -> list[Term | None]:
    """The operator on the places of the elements says where each slope belongs; those of one place are added."""
    x, flat = step.input(0), step.integers([-1])
    zero, one = step.integers(0), step.integers(1)
    places = zero.call("Range", x.call("Size"), one).like(x)
    found = step.of(step.node.op.name, [places, *step.x[1:]], **step.attributes)
    zeros = x.filled(0).call("Reshape", flat)
    return [
        zeros.call(
            "ScatterElements", found.call("Reshape", flat), step.slope.call("Reshape", flat), axis=0, reduction="add"
        ).like(x)
    ]


@differentiated(reverse_sequence, trilu)
def _by_itself(step: Step) -> list[Term | None]:
    """Each slope goes the way that its element went."""
    return [step.of(step.node.op.name, [step.slope, *step.x[1:]], **step.attributes)]


@differentiated(depth_to_space)
def _depth_to_space(step: Step) -> list[Term | None]:
    return [step.slope.call("SpaceToDepth", **step.attributes)]


@differentiated(space_to_depth)
def _space_to_depth(step: Step) -> list[Term | None]:
    return [step.slope.call("DepthToSpace", **step.attributes)]


@differentiated(pad)
def _pad(step: Step) -> list[Term | None]:
    """What was added is taken away again; a constant has the rest of the slope."""
    pads, value, axes = (*step.x, None, None)[1:4]
    assert pads is not None
    if step.attributes["mode"] != "constant":
        return list(_picked(step))
    by_x = step.of("Pad", [step.slope, pads.call("Neg"), None, axes])
    if value is None:
        return [by_x]
    return [by_x, None, (step.slope.call("ReduceSum", keepdims=0) - by_x.call("ReduceSum", keepdims=0)).like(value)]


@differentiated(one_hot)
def _one_hot(step: Step) -> list[Term | None]:
    """The slopes of each of both values together."""
    g = step.slope
    switch = step.integers([0, 1]).call("CastLike", g)
    hot = step.of("OneHot", [step.input(0), step.input(1), switch], **step.attributes)
    parts = [(g * part).call("ReduceSum", keepdims=0).call("Unsqueeze", step.integers([0])) for part in (1 - hot, hot)]
    return [None, None, step.of("Concat", parts, axis=0)]


@differentiated(scatter_elements, scatter_nd)
def _scatter(step: Step) -> list[Term | None]:
    """Elements that were written over have no slope; those that were added to keep it."""
    indices, updates, g, reduction = step.input(1), step.input(2), step.slope, step.attributes["reduction"]
    if reduction not in ("none", "add"):
        raise UnsupportedError(
            "E-OP-GRADIENT", None, f"no derivative of {step.node.op.name} by {reduction} is known", hint="Use add"
        )
    along = {"axis": step.attributes["axis"]} if "axis" in step.attributes else {}
    by_updates = g.call("GatherElements" if along else "GatherND", indices, **along)
    by_data = g if reduction == "add" else step.of(step.node.op.name, [g, indices, updates.filled(0)], **along)
    return [by_data, None, by_updates]


@differentiated(top_k)
def _top_k(step: Step) -> list[Term | None]:
    x, axis = step.input(0), step.attributes["axis"]
    return [x.filled(0).call("ScatterElements", step.output(1), step.slope, axis=axis, reduction="add")]
