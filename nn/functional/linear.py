"""Products with matrices."""

from __future__ import annotations

from ...tensors.core.lazy_tensor import LazyTensor
from ...tensors.operations.linalg import einsum, matmul

__all__ = ["bilinear", "linear"]


def linear(input: LazyTensor, weight: LazyTensor, bias: LazyTensor | None = None) -> LazyTensor:
    """input @ weight.T + bias of input [..., in], weight [out, in] and bias [out]."""
    product = matmul(input, weight.T)
    return product if bias is None else product + bias


def bilinear(input1: LazyTensor, input2: LazyTensor, weight: LazyTensor, bias: LazyTensor | None = None) -> LazyTensor:
    """input1 @ weight[k] @ input2 + bias[k] of input1 [..., a], input2 [..., b], weight [out, a, b] and bias [out]."""
    found = einsum("...i,kij,...j->...k", input1, weight, input2)
    return found if bias is None else found + bias
