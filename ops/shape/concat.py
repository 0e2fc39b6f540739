"""Concat: tensors joined along an axis."""

from __future__ import annotations

import numpy as np

from ...runtime.base.units import counted
from ...runtime.ir.builder import Builder
from ...runtime.ir.graph import Dim, Node
from ...runtime.ir.op import Trait, case, op, upgrade
from ...runtime.ir.shape_inference import Inference, merged
from ...runtime.ir.symbolic_dim import sum_dims
from ..rules.axes import axis_in, axis_of, elements, input_error


def infer_concat(node: Inference) -> None:
    """The sum of the lengths along the axis; elements of 1-D integers stay known."""
    shapes = [node.shape(index) for index in range(len(node))]
    known = [shape for shape in shapes if shape is not None]
    dtype = next((node.dtype(index) for index in range(len(node)) if node.dtype(index) is not None), None)
    if not known:
        node.set(0, dtype, None)
        return
    rank = len(known[0])
    axis = axis_of(node, node.attributes["axis"], rank)
    result: tuple[Dim, ...] | None = (None,) * rank
    for shape in known:
        if len(shape) != rank:
            node.fail(f"inputs have {rank} and {counted(len(shape), 'dim')}")
        result = merged(result, (*shape[:axis], None, *shape[axis + 1 :]), f"inputs of {node.node.op.name}")
    assert result is not None
    lengths = [shape[axis] for shape in known]
    along = lengths[0] if len(shapes) == 1 else sum_dims(lengths) if len(known) == len(shapes) else None
    parts = [elements(node, index) for index in range(len(node))] if rank == 1 else [None]
    data = None if any(part is None for part in parts) else [item for part in parts for item in part or ()]
    node.set(0, dtype, (*result[:axis], along, *result[axis + 1 :]), data=data)


@op(
    "Concat",
    since=13,
    types="tensor*",
    traits=(Trait.MOVES,),
    infer=infer_concat,
    examples=[
        case("f32[2,3]", "f32[2,1]", axis=1),
        case("f32[1,3]", "f32[2,3]", "f32[0,3]", axis=0),
        case("i64[2]", "i64[3]", axis=-1),
        case("string[2]", "string[1]", axis=0),
        case("bf16[2,3]", axis=0),
    ],
)
def concat(*inputs: np.ndarray, axis: int) -> np.ndarray:
    """Tensors that have the same lengths on all axes but one."""
    first = inputs[0]
    along = axis_in("Concat", axis, first.ndim)
    for item in inputs:
        if (
            item.ndim != first.ndim
            or item.shape[:along] + item.shape[along + 1 :] != first.shape[:along] + first.shape[along + 1 :]
        ):
            why = f"the inputs differ outside of axis {along}"
            raise input_error("Concat", why, expected=list(first.shape), found=list(item.shape))
    return np.concatenate(inputs, along)


@upgrade(concat, below=4)
def axis_was_optional(node: Node, build: Builder) -> None:
    """Before opset 4 the axis was 1 where it was not given."""
    node.attributes.setdefault("axis", 1)
