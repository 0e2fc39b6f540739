"""p-norms along dims, whose gradients at 0 are 0, as in torch."""

from __future__ import annotations

import math
from typing import Any

from ....runtime.base.errors import UsageError
from ...core.expression import cast
from ...core.promotion import category, named
from ...core.registry import FUNCTIONS, operation
from ...core.tensor import Tensor
from ..indexing import where
from ..operands import expression_of
from ..reduction import Dims, amax, amin, reduced, sum


def constant_in(x: Tensor, values: Tensor) -> Tensor:
    """Values as a function of a tensor of their shape, which has the gradient 0 everywhere."""
    return where(x.ne(x) & x.eq(x), x, values) if x.requires_grad else values


def root(x: Tensor, p: float = 2) -> Tensor:
    """``x ** (1 / p)`` of numbers that are not negative, with the gradient 0 at 0."""
    is_zero = x.eq(0)
    inside = where(is_zero, 1, x)
    found = inside.sqrt() if p == 2 else inside ** (1 / p)
    return where(is_zero, 0, found) if p > 0 else where(is_zero, math.inf, found)


def _power(size: Tensor, p: float) -> Tensor:
    """``size ** p``, with the gradient 0 at 0."""
    if p >= 1:
        return size**p
    is_zero = size.eq(0)
    return where(is_zero, 0 if p > 0 else math.inf, where(is_zero, 1, size) ** p)


def vector_norm(x: Tensor, p: float, dim: Dims, keepdim: bool) -> Tensor:
    """``sum(|x| ** p) ** (1 / p)``, inf for the largest, -inf for the smallest, 0 for how many are not 0."""
    if p == 2:
        sizes = x if x.ndim and x.dtype.kind == "float" else x.abs()
        return Tensor(reduced("ReduceL2", sizes.expression, dim, keepdim))
    size = x.abs()
    if math.isinf(p):
        return (amax if p > 0 else amin)(size, () if dim is None else dim, keepdim)
    if p == 0:
        return sum(constant_in(size, size.ne(0).to(size.dtype)), dim, keepdim)
    if p == 1:
        return sum(size, dim, keepdim)
    return root(sum(_power(size, p), dim, keepdim), p)


@operation()
def norm(input: Any, p: Any = 2, dim: Dims = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:
    """The p-norm of the elements along dims; "fro" is 2, "nuc" the sum of singular values."""
    x = expression_of(input)
    x = x if dtype is None else cast(x, named(dtype))
    if p == "nuc":
        return FUNCTIONS["nuclear_norm"](Tensor(x), dim, keepdim)
    if category(x.type.dtype) < 2:
        why = f"norm of {x.type.dtype} is not defined"
        raise UsageError("E-TENSOR-DTYPE", None, why, hint="Convert it with float()")
    return vector_norm(Tensor(x), 2 if p in ("fro", None) else p, dim, keepdim)
