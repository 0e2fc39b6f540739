"""Reductions along dims: sums, means, extremes, and functions composed of them."""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from typing import Any, NamedTuple

from ...runtime.base.errors import UsageError
from ...runtime.tensor.dtype import BOOL, F32, I64, U8
from ..core.expression import Expression, apply, cast, op_named
from ..core.promotion import category, named
from ..core.registry import operation
from ..core.tensor import Tensor
from .operands import apply_in, dim_of, dims_of, expression_of, integers, without_booleans

Dims = int | Sequence[int] | None


class Extremes(NamedTuple):
    """Values and their indices along a dim."""

    values: Tensor
    indices: Tensor


def reduced(op: str, x: Expression, dim: Dims, keepdim: bool) -> Expression:
    """A reduction along dims; an empty list of dims stands for all, as in torch."""
    dims = dims_of(None if isinstance(dim, list | tuple) and not dim else dim, len(x.type.shape))
    if not x.type.shape:
        return x
    axes = None if len(dims) == len(x.type.shape) else integers(dims)
    return apply_in(op_named(op), [x, axes], {"keepdims": int(keepdim)})


def _total(op: str, input: Any, dim: Dims, keepdim: bool, dtype: Any) -> Tensor:
    """Sums and products, of integers as i64."""
    x = expression_of(input)
    x = cast(x, named(dtype) if dtype is not None else I64 if category(x.type.dtype) < 2 else x.type.dtype)
    return Tensor(reduced(op, x, dim, keepdim))


@operation()
def sum(input: Any, dim: Dims = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:
    """Sum over dims; the sum of no elements is 0."""
    return _total("ReduceSum", input, dim, keepdim, dtype)


@operation()
def prod(input: Any, dim: int | None = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:
    """The product; 1 of nothing."""
    return _total("ReduceProd", input, dim, keepdim, dtype)


@operation()
def mean(input: Any, dim: Dims = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:
    """The mean of floats; NaN of nothing."""
    x = expression_of(input)
    x = x if dtype is None else cast(x, named(dtype))
    if category(x.type.dtype) < 2:
        why = f"mean of {x.type.dtype} is not defined"
        raise UsageError("E-TENSOR-DTYPE", None, why, hint="Convert it with float(), or give dtype")
    return Tensor(reduced("ReduceMean", x, dim, keepdim))


def _extreme(op: str, input: Any, dim: Dims, keepdim: bool) -> Tensor:
    x = expression_of(input)
    chosen = dims_of(None if isinstance(dim, list | tuple) and not dim else dim, len(x.type.shape))
    if builtins.any(x.type.shape[axis] == 0 for axis in chosen if x.type.shape):
        why = f"the largest or smallest element along an empty dim of {x.type} does not exist"
        raise UsageError("E-TENSOR-SHAPE", None, why, hint="Reduce a dim that has elements")
    return Tensor(reduced(op, x, dim, keepdim))


@operation()
def amax(input: Any, dim: Dims = (), keepdim: bool = False) -> Tensor:
    """The largest element; equal ones share its gradient."""
    return _extreme("ReduceMax", input, dim, keepdim)


@operation()
def amin(input: Any, dim: Dims = (), keepdim: bool = False) -> Tensor:
    """The smallest element; equal ones share its gradient."""
    return _extreme("ReduceMin", input, dim, keepdim)


def _arg(op: str, input: Any, dim: int | None = None, keepdim: bool = False) -> Tensor:
    x = expression_of(input)
    x = cast(x, I64) if x.type.dtype is BOOL else x
    tensor = Tensor(x)
    if dim is None:
        found = _arg(op, tensor.reshape(-1), 0, False)
        return found.reshape([1] * len(x.type.shape)) if keepdim else found
    if not x.type.shape:
        return Tensor(integers(0))
    dim = dim_of(dim, len(x.type.shape))
    if not x.type.shape[dim]:
        raise UsageError("E-TENSOR-SHAPE", None, f"dim {dim} of {x.type} is empty", hint="Reduce a dim with elements")
    return Tensor(apply_in(op_named(op), [x], {"axis": dim, "keepdims": int(keepdim)}, back=False))


@operation()
def argmax(input: Any, dim: int | None = None, keepdim: bool = False) -> Tensor:
    """The index of the largest element, the first of equal ones; of all elements in a row without `dim`."""
    return _arg("ArgMax", without_booleans(input, "argmax"), dim, keepdim)


@operation()
def argmin(input: Any, dim: int | None = None, keepdim: bool = False) -> Tensor:
    """The index of the smallest element, the first of equal ones; of all elements in a row without `dim`."""
    return _arg("ArgMin", without_booleans(input, "argmin"), dim, keepdim)


def _selected(op: str, input: Tensor, dim: int, keepdim: bool) -> Extremes:
    """The elements at the indices, which alone have the gradient."""
    if not input.ndim:
        return Extremes(input, _arg(op, input, 0))
    places = _arg(op, input, dim, True)
    values = input.gather(dim, places)
    if keepdim:
        return Extremes(values, places)
    return Extremes(values.squeeze(dim), places.squeeze(dim))


@operation()
def max(input: Any, dim: Any = None, keepdim: bool = False) -> Any:
    """The largest element of all; with `dim` the largest of each row, and their indices; of two tensors, `maximum`."""
    tensor = Tensor(expression_of(input)) if not isinstance(input, Tensor) else input
    if isinstance(dim, Tensor):
        return tensor.maximum(dim)
    return amax(tensor) if dim is None else _selected("ArgMax", tensor, dim, keepdim)


@operation()
def min(input: Any, dim: Any = None, keepdim: bool = False) -> Any:
    """The smallest element of all; with `dim` the smallest of each row, and their indices; of two tensors,
    `minimum`."""
    tensor = Tensor(expression_of(input)) if not isinstance(input, Tensor) else input
    if isinstance(dim, Tensor):
        return tensor.minimum(dim)
    return amin(tensor) if dim is None else _selected("ArgMin", tensor, dim, keepdim)


@operation()
def any(input: Any, dim: Dims = None, keepdim: bool = False) -> Tensor:
    """Whether one element is not 0; of u8 as u8, as in torch."""
    return _counted(input, dim, keepdim, "gt")


@operation()
def all(input: Any, dim: Dims = None, keepdim: bool = False) -> Tensor:
    """Whether no element is 0."""
    x = expression_of(input)
    found = _counted(Tensor(apply(op_named("Not"), [cast(x, BOOL)])), dim, keepdim, "eq")
    return found.to(U8) if x.type.dtype is U8 else found


def _counted(input: Any, dim: Dims, keepdim: bool, compare: str) -> Tensor:
    x = expression_of(input)
    tensor = Tensor(reduced("ReduceSum", cast(cast(x, BOOL), I64), dim, keepdim))
    truth: Tensor = getattr(tensor, compare)(0)
    return truth.to(U8) if x.type.dtype is U8 else truth


@operation()
def count_nonzero(input: Any, dim: Dims = None) -> Tensor:
    """Number of elements that are not 0."""
    return Tensor(reduced("ReduceSum", cast(cast(expression_of(input), BOOL), I64), dim, False))


@operation()
def logsumexp(input: Any, dim: Dims, keepdim: bool = False) -> Tensor:
    """log(sum(exp(x)))."""
    x = expression_of(input)
    if x.type.dtype.kind == "complex":
        tensor = Tensor(x)
        most = amax(tensor.real.detach(), dim, True).nan_to_num(0, 0, 0)
        found = sum((tensor - most).exp(), dim, keepdim).log()
        return found + (most if keepdim else most.reshape(found.shape))
    return Tensor(reduced("ReduceLogSumExp", x if category(x.type.dtype) >= 2 else cast(x, F32), dim, keepdim))


def _cumulative(op: str, input: Any, dim: int, dtype: Any) -> Tensor:
    x = expression_of(input)
    x = cast(x, named(dtype) if dtype is not None else I64 if category(x.type.dtype) < 2 else x.type.dtype)
    if not x.type.shape:
        return Tensor(x)
    return Tensor(apply_in(op_named(op), [x, integers(dim_of(dim, len(x.type.shape)))]))


@operation()
def cumsum(input: Any, dim: int, *, dtype: Any = None) -> Tensor:
    """Sums of all elements up to each one."""
    return _cumulative("CumSum", input, dim, dtype)


@operation()
def cumprod(input: Any, dim: int, *, dtype: Any = None) -> Tensor:
    """Products of all elements up to each one."""
    return _cumulative("CumProd", input, dim, dtype)
