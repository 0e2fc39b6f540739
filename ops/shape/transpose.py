"""Transpose: permuted axes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...runtime.base.units import counted
from ...runtime.ir.op import Trait, case, op
from ...runtime.ir.shape_inference import Inference
from ..rules.axes import input_error


def infer_transpose(node: Inference) -> None:
    """Dims in the order asked for, reversed where none is."""
    shape, order = node.shape(0), node.attributes["perm"]
    if shape is None:
        node.set(0, node.dtype(0), None if order is None else [None] * len(order))
        return
    order = range(len(shape))[::-1] if order is None else order
    if sorted(order) != list(range(len(shape))):
        node.fail(f"perm {list(order)} is not a permutation of {counted(len(shape), 'axis', 'axes')}")
    node.set(0, node.dtype(0), [shape[axis] for axis in order], data=node.data(0) if len(shape) <= 1 else None)


@op(
    "Transpose",
    since=25,
    types="any",
    traits=(Trait.MOVES,),
    infer=infer_transpose,
    examples=[
        case("f32[2,3,4]"),
        case("f32[2,3,4]", perm=[0, 2, 1]),
        case("string[2,3]"),
        case("f32[0,3]", perm=[1, 0]),
        case("f32[]"),
    ],
)
def transpose(x: np.ndarray, *, perm: Sequence[int] | None = None) -> np.ndarray:
    """Axis `i` of the result is axis `perm[i]` of `x`; all in reverse where no order is given."""
    if perm is not None and sorted(perm) != list(range(x.ndim)):
        raise input_error(
            "Transpose", "perm is not a permutation of the axes", expected=f"{x.ndim} axes", found=list(perm)
        )
    return x.transpose(perm)
