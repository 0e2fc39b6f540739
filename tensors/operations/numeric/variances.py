"""Variances and standard deviations, alone and with the mean."""

from __future__ import annotations

from typing import Any

from ...core.registry import function, operation
from ...core.tensor import Tensor
from ..operands import dims_of, expression_of
from ..reduction import mean, sum
from .norms import root


def _chosen(dim: Any, unbiased: bool, rank: int) -> tuple[list[int], bool]:
    """The dims and whether they are unbiased; a boolean in place of the dims is the latter, no dims are all."""
    if isinstance(dim, bool):
        dim, unbiased = None, dim
    return dims_of(None if isinstance(dim, list | tuple) and not dim else dim, rank), unbiased


def squared_size(x: Tensor) -> Tensor:
    """The squares of elements, of complex ones those of their sizes."""
    return (x * x.conj()).real if x.dtype.is_complex else x * x


@operation()
def var(
    input: Any, dim: Any = None, unbiased: bool = True, keepdim: bool = False, *, correction: float | None = None
) -> Tensor:
    """The variance; `correction` (1 if `unbiased`) is subtracted from the count."""
    return var_mean(input, dim, unbiased, keepdim, correction=correction)[0]


@operation()
def std(
    input: Any, dim: Any = None, unbiased: bool = True, keepdim: bool = False, *, correction: float | None = None
) -> Tensor:
    """The standard deviation, whose gradient is 0 where it is 0."""
    return root(var(input, dim, unbiased, keepdim, correction=correction))


@function()
def var_mean(
    input: Any, dim: Any = None, unbiased: bool = True, keepdim: bool = False, *, correction: float | None = None
) -> tuple[Tensor, Tensor]:
    """Variance and mean."""
    x = input if isinstance(input, Tensor) else Tensor(expression_of(input))
    dims, unbiased = _chosen(dim, unbiased, x.ndim)
    count = 1
    for axis in dims:
        count *= x.shape[axis] if x.ndim else 1
    lost = float(unbiased) if correction is None else correction
    middle = mean(x, dims, keepdim=True)
    distance = x - middle
    found = sum(squared_size(distance), dims, keepdim) / max(count - lost, 0.0)
    return found, middle if keepdim else mean(x, dims)


@function()
def std_mean(
    input: Any, dim: Any = None, unbiased: bool = True, keepdim: bool = False, *, correction: float | None = None
) -> tuple[Tensor, Tensor]:
    """Standard deviation and mean."""
    found, middle = var_mean(input, dim, unbiased, keepdim, correction=correction)
    return root(found), middle
