"""LinearTransposed: rows times the weight of a layer as it is stored, the gradient of Linear by its rows."""

from __future__ import annotations

import numpy as np

from ...runtime.ir.builder import Builder
from ...runtime.ir.domain import CANDLE
from ...runtime.ir.graph import Node
from ...runtime.ir.op import Undecomposable, case, op
from ...runtime.ir.shape_inference import Inference
from ...runtime.tensor.dtype import BlockType
from ...runtime.tensor.weight_array import Blocks
from ..elementwise.declare import fitting, quiet
from .linear import DECODED, activated, decoded_rows, infer_rows


def _infer(node: Inference) -> None:
    infer_rows(node, 0, "the weight has {} rows")


def _lower(node: Node, build: Builder) -> None:
    weight = node.inputs[1]
    if weight is not None and isinstance(weight.dtype, BlockType):
        raise Undecomposable("its weight stays in blocks")
    build.add("MatMul", node.inputs, outputs=node.outputs, name=node.name)


@op(
    "LinearTransposed",
    CANDLE,
    infer=_infer,
    lower=_lower,
    stored=True,
    examples=[case("f32[2,4]", "f32[4,3]"), case("f32[2,5,4]", "f32[4,3]"), case("f32[4]", "f32[4,3]")],
)
@fitting("LinearTransposed")
@quiet
def linear_transposed(x: np.ndarray, weight: np.ndarray | Blocks) -> np.ndarray:
    """``x W`` for x [..., out] and W [out, in], in the dtype of x. Rows of a quantized weight are decoded a few at a
    time; narrow and quantized numbers are multiplied in f32."""
    rows = activated(x.reshape(-1, x.shape[-1]), "f32")
    out, inner = weight.shape
    y = np.zeros((len(rows), inner), rows.dtype)
    step = max(1, DECODED // max(1, inner))
    for start in range(0, out, step):
        stop = min(start + step, out)
        y += rows[:, start:stop] @ decoded_rows(weight, start, stop, rows.dtype)
    return y.reshape(*x.shape[:-1], inner).astype(x.dtype, copy=False)
