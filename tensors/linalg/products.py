"""Norms, powers and products of matrices, written with other operations."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...runtime.base.errors import UsageError
from ..core.registry import FUNCTIONS, function, operation
from ..core.tensor import Tensor
from ..operations.composed import cross as cross_of
from ..operations.creation import eye
from ..operations.joining import stack
from ..operations.linalg import scaled
from ..operations.numeric import norms
from .decompositions import inv, matrices, svdvals

MAX_TERMS = 18
"""Terms of the series of exp, after which those of matrices of norm 1/2 are below f64's eps."""


def vector_norm(x: Tensor, ord: float = 2, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:
    """The norm along dims, by default of all elements: (sum |x| ** ord) ** (1 / ord), inf for the largest, 0 for how
    many are not 0."""
    return norms.norm(x, ord, dim, keepdim, dtype=dtype)


def matrix_norm(
    A: Tensor,  # noqa: N803 (torch's name)
    ord: Any = "fro",
    dim: Sequence[int] = (-2, -1),
    keepdim: bool = False,
    *,
    dtype: Any = None,
) -> Tensor:
    """The norm of matrices along two dims: "fro", "nuc" (the sum of singular values), inf and -inf (of rows), 1 and -1
    (of columns), 2 and -2 (the largest and smallest singular value)."""
    x = A if dtype is None else A.to(dtype)
    rows, columns = (each % x.ndim for each in dim)
    if ord == "fro":
        return vector_norm(x, 2, (rows, columns), keepdim)
    if ord in ("nuc", 2, -2):
        s = svdvals(x.movedim((rows, columns), (-2, -1)))
        found = s.sum(-1) if ord == "nuc" else s.amax(-1) if ord == 2 else s.amin(-1)
    elif ord in (math.inf, -math.inf, 1, -1):
        along, across = (columns, rows) if math.isinf(ord) else (rows, columns)
        sums = x.abs().sum(along, True)
        found = sums.amax((along, across)) if ord > 0 else sums.amin((along, across))
    else:
        why = f"there is no matrix norm {ord!r}"
        raise UsageError("E-TENSOR-VALUE", None, why, expected="fro, nuc, inf, -inf, 1, -1, 2 or -2")
    if keepdim:
        for place in sorted((rows, columns)):
            found = found.unsqueeze(place)
    return found


def norm(A: Tensor, ord: Any = None, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:  # noqa: N803
    """The norm of vectors or matrices: of all elements without `ord`, of matrices for two dims, else of vectors."""
    if ord is not None and (
        isinstance(ord, str) or (dim is None and A.ndim == 2) or (dim is not None and np.size(dim) == 2)
    ):
        return matrix_norm(A, ord, (-2, -1) if dim is None else dim, keepdim, dtype=dtype)
    return vector_norm(A, 2 if ord is None else ord, dim, keepdim, dtype=dtype)


@function()
def nuclear_norm(input: Tensor, dim: Any = None, keepdim: bool = False) -> Tensor:
    """The sum of the singular values of matrices along two dims."""
    return matrix_norm(input, "nuc", (0, 1) if dim is None else dim, keepdim)


@operation()
def matrix_power(input: Tensor, n: int) -> Tensor:
    """Each matrix times itself, n times; of its inverse for negative n."""
    matrices(input, "matrix_power")
    base, found = (inv(input) if n < 0 else input), None
    count = abs(n)
    while count:
        if count & 1:
            found = base if found is None else found @ base
        base, count = base @ base, count >> 1
    one = eye(input.shape[-1], dtype=input.dtype).expand(input.shape)
    return norms.constant_in(input, one) if found is None else found


@operation("linalg_matrix_exp")
def matrix_exp(input: Tensor) -> Tensor:
    """The series of exp of each matrix, by scaling and squaring."""
    matrices(input, "matrix_exp")
    largest = float(matrix_norm(input.detach(), 1).amax().item()) if input.numel() else 0.0
    steps = max(0, math.ceil(math.log2(max(largest, 1e-30))) + 1)
    scaled = input / 2**steps
    found = term = eye(input.shape[-1], dtype=input.dtype).expand(input.shape)
    for number in range(1, MAX_TERMS):
        term = term @ scaled / number
        found = found + term
    for _ in range(steps):
        found = found @ found
    return found


@function("chain_matmul")
def _chain(*matrices: Tensor) -> Tensor:
    """The product of matrices in their order."""
    return multi_dot(matrices)


def multi_dot(tensors: Sequence[Tensor]) -> Tensor:
    """The product of matrices, the first and last of which may be vectors, in their order."""
    found = tensors[0]
    for each in tensors[1:]:
        found = found @ each
    return found


def cond(A: Tensor, p: Any = None) -> Tensor:  # noqa: N803 (torch's name)
    """The norm of a matrix times that of its inverse; of singular values by default."""
    if p in (None, 2, -2):
        s = svdvals(A)
        return s.amin(-1) / s.amax(-1) if p == -2 else s.amax(-1) / s.amin(-1)
    return matrix_norm(A, p) * matrix_norm(inv(A), p)


def cross(input: Tensor, other: Tensor, *, dim: int = -1) -> Tensor:
    """Cross products along a dim of length 3."""
    return cross_of(input, other, dim)


@function("linalg_vander")
def vander(x: Tensor, N: int | None = None) -> Tensor:  # noqa: N803 (torch's name)
    """The powers 0 to N - 1 of numbers along a new last dim."""
    x = x if x.ndim else x.reshape(1)
    return stack([x**power for power in range(x.shape[-1] if N is None else N)], -1)


@operation()
def addr(input: Any, vec1: Tensor, vec2: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """beta * input + alpha * the products of all pairs of elements of two vectors."""
    return scaled(input, beta) + scaled(FUNCTIONS["outer"](vec1, vec2), alpha)
