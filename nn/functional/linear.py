"""Products with matrices."""

from __future__ import annotations

from ...tensors.core.expression import op_named, shape_error
from ...tensors.core.tensor import Tensor
from ...tensors.operations.linalg import einsum
from ...tensors.operations.operands import apply_in, require_one_dtype

__all__ = ["bilinear", "linear"]


def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """input @ weight.T + bias of input [..., in], weight [out, in] and bias [out]."""
    if not input.ndim or weight.ndim != 2 or input.shape[-1] != weight.shape[1]:
        raise shape_error(f"linear: input {list(input.shape)} does not fit a weight {list(weight.shape)} [out, in]")
    parts = [each.expression for each in (input, weight, bias) if each is not None]
    require_one_dtype(parts, "linear")
    rows = input if input.ndim == 2 else input.reshape(-1, weight.shape[1])
    tensor = Tensor(apply_in(op_named("Gemm"), [rows.expression, *parts[1:]], {"transB": 1}))
    return tensor if input.ndim == 2 else tensor.reshape(*input.shape[:-1], weight.shape[0])


def bilinear(input1: Tensor, input2: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """input1 @ weight[k] @ input2 + bias[k] of input1 [..., a], input2 [..., b], weight [out, a, b] and bias [out]."""
    found = einsum("...i,kij,...j->...k", input1, weight, input2)
    return found if bias is None else found + bias
