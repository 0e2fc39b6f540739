"""Gradients of operators that move elements: reshaping, transposing, slicing, gathering, scattering, joining, repeating."""

from __future__ import annotations

from ..shape.concat import concat
from ..shape.constant import constant
from ..shape.constant_of_shape import constant_of_shape, eye_like
from ..shape.expand import expand, tile
from ..shape.gather import gather, gather_elements, gather_nd
from ..shape.range import range_
from ..shape.reshape import flatten, reshape
from ..shape.shape import shape, size
from ..shape.slice import slice_
from ..shape.split import split
from ..shape.squeeze import squeeze, unsqueeze
from ..shape.transpose import transpose
from .rule import Step, differentiated, without_gradient
from .term import Term

without_gradient(shape, size, constant, constant_of_shape, eye_like)


@differentiated(reshape, flatten, squeeze, unsqueeze)
def _reshape(step: Step) -> list[Term | None]:
    return [step.slope.like(step.input(0))]


@differentiated(transpose)
def _transpose(step: Step) -> list[Term | None]:
    perm = step.attributes["perm"]
    return [step.slope.call("Transpose", **({} if perm is None else {"perm": [list(perm).index(axis) for axis in range(len(perm))]}))]


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


@differentiated(gather, gather_elements, gather_nd, slice_, tile)
def _picked(step: Step) -> list[Term | None]:
    """The operator on the places of the elements says where each slope belongs; those of one place are added."""
    x, flat = step.input(0), step.integers([-1])
    zero, one = step.integers(0), step.integers(1)
    places = zero.call("Range", x.call("Size"), one).like(x)
    found = step.of(step.node.op.name, [places, *step.x[1:]], **step.attributes)
    zeros = x.filled(0).call("Reshape", flat)
    return [zeros.call("ScatterElements", found.call("Reshape", flat), step.slope.call("Reshape", flat), axis=0, reduction="add").like(x)]
