"""Counts, covariances and integrals."""

from __future__ import annotations

from typing import Any

import numpy as np

from ....runtime.base.errors import UsageError
from ...core.expression import leaf
from ...core.registry import FUNCTIONS, function, operation
from ...core.tensor import Tensor
from ..creation import creator, dtype_between, spaced
from ..indexing import where
from ..operands import default_float, dim_of, require_real


@operation()
def cov(
    input: Tensor, *, correction: int = 1, fweights: Tensor | None = None, aweights: Tensor | None = None
) -> Tensor:
    """Covariances of the rows of a matrix, whose columns are observations.

    Args:
        correction: subtracted from the count of observations.
        fweights: how often each observation was made.
        aweights: how much each observation counts.
    """
    x = Tensor(default_float(input.expression))
    x = x.reshape(1, -1) if input.ndim < 2 else x
    given = [each for each in (fweights, aweights) if each is not None]
    if not given:
        apart = x - x.mean(1, keepdim=True)
        scaled, count = apart, FUNCTIONS["tensor"](float(x.shape[1] - correction), dtype=x.dtype)
    else:
        weights = (given[0] if len(given) == 1 else given[0] * given[1]).to(x.dtype)
        total = weights.sum()
        apart = x - (x * weights).sum(1, keepdim=True) / total
        lost = total if aweights is None else (weights * aweights.to(x.dtype)).sum()
        scaled, count = apart * weights, total - correction * lost / total
    found = apart @ scaled.mH / count.real.clamp(min=0)
    return found if x.shape[0] > 1 else found.reshape(())


@operation()
def corrcoef(input: Tensor) -> Tensor:
    """Correlations of the rows of a matrix."""
    found = cov(input)
    if not found.ndim:
        return found / found
    spread = found.diagonal().real.sqrt()
    scaled = found / spread.unsqueeze(0) / spread.unsqueeze(1)
    if scaled.dtype.is_complex:
        return FUNCTIONS["complex"](scaled.real.clamp(-1, 1), scaled.imag.clamp(-1, 1))
    return scaled.clamp(-1, 1)


@function("trapz")
def trapezoid(y: Tensor, x: Tensor | None = None, *, dx: float = 1.0, dim: int = -1) -> Tensor:
    """The integral along a dim by trapezoids, at the positions `x` or every `dx`."""
    axis = dim_of(dim, y.ndim)
    return _trapezoids(y, x, dx, axis).sum(axis)


def _trapezoids(y: Tensor, x: Tensor | None, dx: float, axis: int) -> Tensor:
    """The areas between neighbours."""
    count = max(y.shape[axis] - 1, 0)
    mean = (y.narrow(axis, 0, count) + y.narrow(axis, y.shape[axis] - count, count)) / 2
    if x is None:
        return mean * dx
    if x.ndim == 1:
        x = x.reshape([-1 if each == axis else 1 for each in range(y.ndim)])
    return mean * FUNCTIONS["diff"](x, dim=axis if x.ndim == y.ndim else -1)


FUNCTIONS["trapezoid"] = trapezoid


@function()
def cumulative_trapezoid(y: Tensor, x: Tensor | None = None, *, dx: float = 1.0, dim: int = -1) -> Tensor:
    """Integrals along a dim up to each element, by trapezoids."""
    axis = dim_of(dim, y.ndim)
    return _trapezoids(y, x, dx, axis).cumsum(axis)


@creator()
def logspace(start: complex, end: complex, steps: int, base: float = 10.0, dtype: Any = None) -> Tensor:
    """Powers of a base with evenly spaced exponents."""
    wanted = dtype_between(start, end, dtype)
    return Tensor(leaf(np.power(base, spaced(start, end, steps, wanted)).astype(wanted.as_numpy())))


@function()
def vander(x: Tensor, N: int | None = None, increasing: bool = False) -> Tensor:  # noqa: N803 (torch's name)
    """Powers of the elements of a vector, one a column."""
    count = x.shape[0] if N is None else N
    order = range(count) if increasing else range(count - 1, -1, -1)
    columns = [x**power if power else FUNCTIONS["ones_like"](x) for power in order]
    return FUNCTIONS["stack"](columns, 1) if columns else x.new_zeros(x.shape[0], 0)


@operation()
def histc(input: Tensor, bins: int = 100, min: float = 0, max: float = 0) -> Tensor:
    """Number of elements in each of equal intervals between two numbers, or the extremes; computed at once."""
    require_real("histc", input)
    if bins < 1 or min > max:
        raise UsageError("E-TENSOR-VALUE", None, f"histc of {bins} bins from {min} to {max}", expected="at least 1 bin")
    elements = input.array().astype(np.float64).reshape(-1)
    if min == max and elements.size:
        min, max = float(elements.min()), float(elements.max())
    if min == max:
        min, max = min - 1, max + 1
    if not np.isfinite([min, max]).all():
        raise UsageError("E-TENSOR-VALUE", None, f"histc from {min} to {max}", expected="finite numbers")
    found = np.histogram(elements[np.isfinite(elements)], bins, (min, max))[0]
    return Tensor(leaf(found.astype(input.dtype.as_numpy())))


@operation()
def unique_consecutive(
    input: Tensor, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None
) -> Any:
    """Without elements, or entries of a dim, that are equal to the one before; computed at once."""
    axis = 0 if dim is None else dim_of(dim, input.ndim)
    rows = np.moveaxis(input.array(), axis, 0) if dim is not None else input.array().reshape(-1)
    changes = (rows[1:] != rows[:-1]).any(tuple(range(1, rows.ndim)))
    first = np.concatenate([np.ones(min(len(rows), 1), bool), changes])
    places = np.flatnonzero(first)
    found = [np.moveaxis(rows[places], 0, axis)]
    if return_inverse:
        numbers = np.cumsum(first) - 1
        found.append(numbers.reshape(input.shape) if dim is None else numbers)
    if return_counts:
        found.append(np.diff([*places, len(rows)]))
    tensors = tuple([Tensor(leaf(np.array(each, order="C"))) for each in found])
    return tensors if len(tensors) > 1 else tensors[0]


@operation()
def renorm(input: Tensor, p: float, dim: int, maxnorm: float) -> Tensor:
    """A copy in which each entry of a dim whose p-norm is larger than `maxnorm` is scaled down to it."""
    axis = dim_of(dim, input.ndim)
    rest = [each for each in range(input.ndim) if each != axis]
    size = input.norm(p, rest, keepdim=True)
    return where(size > maxnorm, input * (maxnorm / (size + 1e-7)), input)
