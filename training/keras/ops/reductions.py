"""Reductions, scans and orders along axes by Keras' names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ....tensors.core.tensor import Tensor
from .operation import as_floats, dims_of, named_functions, operation, ours, tensor_of

REDUCTIONS = ("all", "amax", "amin", "any", "max", "mean", "min", "prod", "std", "sum", "var")
__all__ = [
    *REDUCTIONS, "argmax", "argmin", "argsort", "average", "bincount", "count_nonzero", "cumprod", "cumsum", "diff",
    "in_top_k", "logsumexp", "median", "moments", "quantile", "sort", "top_k", "unique",
]  # fmt: skip
OF_EXTREMES = {"max": "amax", "min": "amin", "amax": "amax", "amin": "amin"}


def _reduction(name: str) -> Callable[..., Any]:
    def reduced(x: Any, axis: Any = None, keepdims: bool = False) -> Any:
        tensor = as_floats(x) if name in ("mean", "std", "var") else tensor_of(x)
        axes = list(range(tensor.ndim)) if axis is None else dims_of(axis)
        if name in ("std", "var"):
            return ours(name)(tensor, axes, correction=0, keepdim=keepdims)
        if name in ("all", "any"):
            tensor = tensor.bool()
        if name == "prod":
            return _product(tensor, axes, keepdims)
        found = ours(OF_EXTREMES.get(name, name))(tensor, axes, keepdims) if tensor.ndim else tensor
        narrow = tensor.dtype.kind == "int" and tensor.dtype.bits >= 32 and name == "sum"
        return found.to(tensor.dtype) if narrow else found

    return reduced


def _product(tensor: Tensor, axes: Any, keepdims: bool) -> Tensor:
    found = tensor
    chosen = [axes] if isinstance(axes, int) else axes
    for axis in sorted((each % tensor.ndim for each in chosen), reverse=True):
        found = found.prod(axis, keepdims)
    return found.to(tensor.dtype) if tensor.dtype.kind == "int" else found


globals().update(named_functions(REDUCTIONS, _reduction))


@operation
def argmax(x: Any, axis: int | None = None, keepdims: bool = False) -> Tensor:
    """The index of the largest element, i32."""
    return ours("argmax")(tensor_of(x), axis, keepdims).to("i32")


@operation
def argmin(x: Any, axis: int | None = None, keepdims: bool = False) -> Tensor:
    """The index of the smallest element, i32."""
    return ours("argmin")(tensor_of(x), axis, keepdims).to("i32")


@operation
def logsumexp(x: Any, axis: Any = None, keepdims: bool = False) -> Tensor:
    """``log(sum(exp(x)))``."""
    tensor = as_floats(x)
    return ours("logsumexp")(tensor, list(range(tensor.ndim)) if axis is None else dims_of(axis), keepdims)


@operation
def count_nonzero(x: Any, axis: Any = None) -> Tensor:
    """How many elements are not 0, i32."""
    tensor = tensor_of(x) != 0
    return tensor.sum(list(range(tensor.ndim)) if axis is None else dims_of(axis)).to("i32")


@operation
def average(x: Any, axis: Any = None, weights: Any = None) -> Tensor:
    """The mean, of elements that count by their weights."""
    tensor = as_floats(x)
    axes = list(range(tensor.ndim)) if axis is None else dims_of(axis)
    if weights is None:
        return tensor.mean(axes)
    shares = as_floats(weights)
    if shares.ndim < tensor.ndim:
        shares = shares.reshape([length if dim == axis % tensor.ndim else 1 for dim, length in enumerate(tensor.shape)])
    return (tensor * shares).sum(axes) / shares.expand(tensor.shape).sum(axes)


@operation
def moments(x: Any, axes: Any, keepdims: bool = False, synchronized: bool = False) -> tuple[Tensor, Tensor]:
    """Mean and variance along axes."""
    tensor = as_floats(x)
    return tensor.mean(dims_of(axes), keepdims), tensor.var(dims_of(axes), correction=0, keepdim=keepdims)


@operation
def median(x: Any, axis: Any = None, keepdims: bool = False) -> Tensor:
    """The median, the mean of the two in the middle of an even number."""
    return ours("quantile")(as_floats(x), 0.5, axis, keepdims)


@operation
def quantile(x: Any, q: Any, axis: Any = None, method: str = "linear", keepdims: bool = False) -> Tensor:
    """The numbers below which shares of the elements are."""
    return ours("quantile")(as_floats(x), as_floats(q), axis, keepdims, interpolation=method)


@operation
def cumsum(x: Any, axis: int | None = None, dtype: Any = None) -> Tensor:
    """Sums of the elements up to each."""
    tensor = tensor_of(x)
    flat = tensor.reshape(-1) if axis is None else tensor
    return ours("cumsum")(flat, axis or 0).to(dtype or tensor.dtype)


@operation
def cumprod(x: Any, axis: int | None = None, dtype: Any = None) -> Tensor:
    """Products of the elements up to each."""
    tensor = tensor_of(x)
    flat = tensor.reshape(-1) if axis is None else tensor
    return ours("cumprod")(flat, axis or 0).to(dtype or tensor.dtype)


@operation
def diff(a: Any, n: int = 1, axis: int = -1) -> Tensor:
    """Differences of neighbours, n times."""
    return ours("diff")(tensor_of(a), n, axis)


@operation
def sort(x: Any, axis: int = -1) -> Tensor:
    """The elements in order."""
    return ours("sort")(tensor_of(x), axis)[0]


@operation
def argsort(x: Any, axis: int | None = -1) -> Tensor:
    """The indices that sort the elements, i32; those of all elements without an axis."""
    tensor = tensor_of(x)
    flat = tensor.reshape(-1) if axis is None else tensor
    return ours("sort")(flat, -1 if axis is None else axis, stable=True)[1].to("i32")


@operation
def top_k(x: Any, k: int, sorted: bool = True) -> tuple[Tensor, Tensor]:
    """The k largest elements along the last axis, and their indices."""
    values, indices = ours("topk")(tensor_of(x), k, sorted=sorted)
    return values, indices


@operation
def in_top_k(targets: Any, predictions: Any, k: int) -> Tensor:
    """Whether the class of each row is among its k largest predictions."""
    scores, classes = as_floats(predictions), tensor_of(targets).long()
    own = scores.gather(1, classes.unsqueeze(1))
    return (scores > own).sum(1) < k


@operation
def bincount(x: Any, weights: Any = None, minlength: int = 0, sparse: bool = False) -> Tensor:
    """How often each integer occurs, along the last axis."""
    given = tensor_of(x)
    rows = given.reshape(-1, given.shape[-1])
    length = max(minlength, int(given.max()) + 1)
    parts = [
        ours("bincount")(row, None if weights is None else tensor_of(weights).reshape(rows.shape)[number], length)
        for number, row in enumerate(rows)
    ]
    return ours("stack")(parts).reshape(*given.shape[:-1], length).to("i32" if weights is None else parts[0].dtype)


@operation
def unique(x: Any) -> Tensor:
    """The different elements, in order."""
    found: Any = ours("unique")(tensor_of(x))
    return found
