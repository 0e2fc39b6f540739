"""Shape and Size: the dimensions and the element count of a tensor."""

from __future__ import annotations

import numpy as np

from ...runtime.ir.op import Trait, case, op
from ...runtime.ir.shape_inference import Inference
from ...runtime.tensor.dtype import I64
from ..rules.axes import product


def infer_shape(node: Inference) -> None:
    """One element for each dim, known as far as the dim is."""
    dims = node.shape(0)
    if dims is None:
        node.set(0, I64, (None,))
        return
    part = dims[_window(len(dims), node.attributes["start"], node.attributes["end"])]
    node.set(0, I64, (len(part),), data=part)


def _window(rank: int, start: int, end: int | None) -> slice:
    first, last = (min(max(at + rank if at < 0 else at, 0), rank) for at in (start, rank if end is None else end))
    return slice(first, last)


@op(
    "Shape",
    since=25,
    types="any",
    traits=(Trait.MOVES,),
    infer=infer_shape,
    examples=[
        case("f32[2,3,4]"),
        case("f32[2,3,4]", start=1),
        case("f32[2,3,4]", start=-2, end=-1),
        case("f32[0,3]"),
        case("f32[]"),
        case("i8[2,3]", start=2, end=1),
    ],
)
def shape(x: np.ndarray, *, end: int | None = None, start: int = 0) -> np.ndarray:
    """Lengths of the axes from `start` to before `end`, i64; both count from the back where negative, and are cut to
    the rank."""
    return np.array(x.shape[_window(x.ndim, start, end)], np.int64)


def infer_size(node: Inference) -> None:
    """A scalar, known where the product of the dims is."""
    dims = node.shape(0)
    known = None if dims is None else product(dims)
    node.set(0, I64, (), data=None if known is None else [known])


@op(
    "Size",
    since=25,
    types="any",
    traits=(Trait.MOVES,),
    infer=infer_size,
    examples=[case("f32[2,3,4]"), case("f32[0,3]"), case("string[]")],
)
def size(x: np.ndarray) -> np.ndarray:
    """The number of elements, an i64 scalar."""
    return np.array(x.size, np.int64)
