"""Where: elements of one of two tensors, chosen by a condition."""

from __future__ import annotations

import numpy as np

from ...runtime.ir.graph import Dim
from ...runtime.ir.op import Trait, case, op
from ...runtime.ir.shape_inference import Inference
from ..rules.shape_rules import broadcast
from .declare import fitting, refuse_mismatched


def infer_where(node: Inference) -> None:
    """The dtype of the second input, the shape that all three broadcast to, and elements whose choice is known."""
    refuse_mismatched(node)
    node.set(0, node.dtype(1) or node.dtype(2), broadcast(broadcast(node.shape(0), node.shape(1)), node.shape(2)))
    conditions, xs, ys = (node.data(index) or _flags(node, index) for index in range(3))
    if conditions is None or xs is None or ys is None or node.dtype(1) is None:
        return
    count = max((len(column) for column in (conditions, xs, ys) if len(column) != 1), default=1)
    if any(len(column) not in (1, count) for column in (conditions, xs, ys)):
        return
    picked: list[Dim] = []
    for index in range(count):
        condition, x, y = (column[index if len(column) == count else 0] for column in (conditions, xs, ys))
        picked.append(x if condition == 1 or x == y else y if condition == 0 else None)
    node.set(0, None, None, data=picked)


def _flags(node: Inference, index: int) -> tuple[Dim, ...] | None:
    array = node.array(index)
    return (
        tuple(int(item) for item in array.reshape(-1))
        if array is not None and array.dtype == bool and array.ndim <= 1
        else None
    )


@op(
    "Where",
    since=16,
    types="bool T=tensor T",
    traits=(Trait.MOVES,),
    infer=infer_where,
    scalar=lambda condition, x, y: x if condition else y,
    examples=[
        case("bool[2,3]", "f32[3]", "f32[2,1]"),
        case("bool[3]", "string[2,3]", "string[3]"),
        case("bool[1]", "i64[3]", "i64[2,1]"),
        case("bool[0,3]", "f32[3]", "f32[1]"),
    ],
)
@fitting("Where")
def where(condition: np.ndarray, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Elements of `x` where the condition holds, else of `y`."""
    return np.where(condition, x, y)
