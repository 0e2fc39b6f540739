"""Functions of torch that other operations compose."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...runtime.base.errors import UsageError
from ...runtime.base.units import counted
from ..core.registry import FUNCTIONS, function, method, operation
from ..core.tensor import Tensor
from . import arithmetic, elementwise, formulas, indexing, reduction
from .creation import as_tensor, eye, ones_like, tensor, zeros, zeros_like
from .indexing import like, scatter, scatter_add, where
from .linalg import matmul, scaled
from .operands import default_float, dim_of, promoted
from .random import Generator, exponential, rand
from .reduction import amax, amin
from .shape import flip
from .sorting import Sorted, searchsorted, sort, topk

REGISTERED = arithmetic, elementwise, formulas, indexing, reduction
"""Modules whose functions are taken from the registry below."""

for _name, _made in (
    ("multiply", FUNCTIONS["mul"]), ("subtract", FUNCTIONS["sub"]), ("less", FUNCTIONS["lt"]),
    ("less_equal", FUNCTIONS["le"]), ("greater", FUNCTIONS["gt"]), ("greater_equal", FUNCTIONS["ge"]),
    ("not_equal", FUNCTIONS["ne"]),
    ("arctan2", FUNCTIONS["atan2"]), ("argwhere", FUNCTIONS["nonzero"]),
):  # fmt: skip
    function(_name)(_made)
    method(_name)(_made)


@operation()
def cross(input: Tensor, other: Tensor, dim: int | None = None) -> Tensor:
    """Cross products along a dim of length 3, the first such one by default."""
    axis = input.shape.index(3) if dim is None and 3 in input.shape else dim_of(-1 if dim is None else dim, input.ndim)
    if input.shape[axis] != 3:
        raise UsageError("E-TENSOR-SHAPE", None, f"cross along a dim of length {input.shape[axis]}", expected="3")
    return input.roll(-1, axis) * other.roll(1, axis) - input.roll(1, axis) * other.roll(-1, axis)


@operation()
def inner(input: Tensor, other: Tensor) -> Tensor:
    """Sums of products along the last dims of both."""
    if not input.ndim or not other.ndim:
        return input * other
    return tensordot(input, other, ([-1], [-1]))


@function()
def tensordot(a: Tensor, b: Tensor, dims: Any = 2) -> Tensor:
    """Sums of products along dims: so many last ones of `a` and first ones of `b`, or two lists of them."""
    if isinstance(dims, int):
        dims = [*range(a.ndim - dims, a.ndim)], [*range(dims)]
    ours, theirs = ([dim_of(dim, each.ndim) for dim in given] for each, given in zip((a, b), dims, strict=True))
    kept = [dim for dim in range(a.ndim) if dim not in ours], [dim for dim in range(b.ndim) if dim not in theirs]
    outer = [a.shape[dim] for dim in kept[0]], [b.shape[dim] for dim in kept[1]]
    pairs = list(zip(ours, theirs, strict=True))
    short = [dim for dim, other in pairs if a.shape[dim] == 1 != b.shape[other]]
    if short:  # as in torch, a dim of length 1 goes with any other
        b = b.sum([other for dim, other in pairs if dim in short], True)
    if any(a.shape[dim] != b.shape[other] == 1 for dim, other in pairs):
        a = a.sum([dim for dim, other in pairs if a.shape[dim] != b.shape[other] == 1], True)
    lengths = [a.shape[dim] for dim in ours]
    if lengths != [b.shape[dim] for dim in theirs]:
        why = f"tensordot along dims of lengths {lengths} and {[b.shape[dim] for dim in theirs]}"
        raise UsageError("E-TENSOR-SHAPE", None, why, expected="equal lengths")
    count = math.prod(lengths)
    left = a.permute(*kept[0], *ours).reshape(math.prod(outer[0]), count)
    right = b.permute(*theirs, *kept[1]).reshape(count, math.prod(outer[1]))
    return matmul(left, right).reshape(*outer[0], *outer[1])


@operation()
def baddbmm(input: Any, batch1: Any, batch2: Any, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """beta * input + alpha * (batch1 @ batch2)."""
    return scaled(input, beta) + scaled(matmul(batch1, batch2), alpha)


@operation()
def addbmm(input: Any, batch1: Any, batch2: Any, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """beta * input + alpha * the sum of all batch1 @ batch2."""
    return scaled(input, beta) + scaled(matmul(batch1, batch2).sum(0), alpha)


@operation()
def addmv(input: Any, mat: Any, vec: Any, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """beta * input + alpha * (mat @ vec)."""
    return scaled(input, beta) + scaled(matmul(mat, vec), alpha)


@operation()
def fliplr(input: Tensor) -> Tensor:
    """The second dim from its end to its start."""
    return flip(input, 1)


@operation()
def flipud(input: Tensor) -> Tensor:
    """The first dim from its end to its start."""
    return flip(input, 0)


@operation()
def rot90(input: Tensor, k: int = 1, dims: Sequence[int] = (0, 1)) -> Tensor:
    """Rotated by k times 90 degrees from the first of two dims to the second."""
    first, second = dims
    if k % 4 == 2:
        return flip(input, first, second)
    if k % 2:
        input = input.transpose(first, second)
        return flip(input, first if k % 4 == 1 else second)
    return input.clone()


@operation()
def logit(input: Tensor, eps: float | None = None) -> Tensor:
    """log(x / (1 - x)), of x within eps and 1 - eps."""
    x = Tensor(default_float(input.expression))
    x = x if eps is None else x.clamp(eps, 1 - eps)
    return (x / (1 - x)).log()


@operation()
def xlogy(input: Any, other: Tensor) -> Tensor:
    """input * log(other), 0 where input is 0."""
    input, other = (Tensor(default_float(each)) for each in promoted([input, other]))
    product = input * other.log()
    return where(FUNCTIONS["eq"](input, 0).logical_and(other.isnan().logical_not()), zeros_like(product), product)


@operation()
def nansum(input: Tensor, dim: Any = None, keepdim: bool = False) -> Tensor:
    """The sum of the elements that are not NaN."""
    return where(input.isnan(), zeros_like(input), input).sum(dim, keepdim)


@operation()
def nanmean(input: Tensor, dim: Any = None, keepdim: bool = False) -> Tensor:
    """The mean of the elements that are not NaN."""
    return nansum(input, dim, keepdim) / input.isnan().logical_not().sum(dim, keepdim)


@operation()
def aminmax(input: Tensor, *, dim: Any = None, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    """The smallest and the largest element."""
    dims = () if dim is None else dim
    return amin(input, dims, keepdim), amax(input, dims, keepdim)


@operation()
def msort(input: Tensor) -> Tensor:
    """Sorted along the first dim."""
    return sort(input, 0).values


@operation()
def kthvalue(input: Tensor, k: int, dim: int = -1, keepdim: bool = False) -> Sorted:
    """The k-th smallest element along a dim, and its index."""
    axis = dim_of(dim, input.ndim)
    length = input.shape[axis] if input.ndim else 1
    if not 1 <= k <= length:
        raise UsageError("E-TENSOR-VALUE", None, f"kthvalue of {k} among {counted(length, 'element')}")
    if not input.ndim:
        return sort(input)
    values, places = (each.narrow(axis, k - 1, 1) for each in sort(input, axis))
    return Sorted(values, places) if keepdim else Sorted(values.squeeze(axis), places.squeeze(axis))


BETWEEN: dict[str, Callable[[float], float]] = {
    "linear": lambda place: place % 1,
    "lower": lambda place: 0.0,
    "higher": lambda place: float(place % 1 > 0),
    "midpoint": lambda place: 0.5 if place % 1 else 0.0,
    "nearest": lambda place: float(round(place) - int(place)),
}
"""Interpolation -> the fraction from the lower to the higher of two elements at which a quantile is, by its position
among all."""


def _along(input: Tensor, dim: int | None) -> tuple[Tensor, int]:
    """A tensor and the dim along which quantiles are: that of all elements for None, and of a scalar."""
    axis = dim_of(0 if dim is None else dim, input.ndim)
    return (input.reshape(-1), 0) if dim is None or not input.ndim else (input, axis)


@operation()
def quantile(
    input: Tensor, q: Any, dim: int | None = None, keepdim: bool = False, *, interpolation: str = "linear"
) -> Tensor:
    """Quantiles along a dim, or of all elements; of several q along a first dim.

    Args:
        interpolation: between two elements: linear, lower, higher, midpoint or nearest.
    """
    if interpolation not in BETWEEN:
        why = f"interpolation is {interpolation!r}"
        raise UsageError("E-TENSOR-VALUE", None, why, expected=", ".join(BETWEEN))
    if isinstance(q, list | tuple) or (isinstance(q, Tensor) and q.ndim):
        parts = [quantile(input, each, dim, keepdim, interpolation=interpolation) for each in q]
        return FUNCTIONS["stack"](parts)
    part = float(q)
    if not 0 <= part <= 1:
        raise UsageError("E-TENSOR-VALUE", None, f"a quantile at {part}", expected="0 to 1")
    x, axis = _along(input, dim)
    place = part * (x.shape[axis] - 1)
    values, low = sort(x, axis).values, int(place)
    between: Any = BETWEEN[interpolation](place)
    if isinstance(q, Tensor) and interpolation == "linear":
        between = q * (x.shape[axis] - 1) - low
    first, last = (values.narrow(axis, min(low + step, x.shape[axis] - 1), 1) for step in (0, 1))
    found = first + (last - first) * between
    found = where(x.isnan().any(axis, True), float("nan"), found)
    if dim is None or not input.ndim:
        return found.reshape([1] * input.ndim) if keepdim else found.reshape(())
    return found if keepdim else found.squeeze(axis)


@operation()
def nanquantile(
    input: Tensor, q: Any, dim: int | None = None, keepdim: bool = False, *, interpolation: str = "linear"
) -> Tensor:
    """Quantiles of the elements that are not NaN, as `quantile`."""
    if interpolation not in BETWEEN:
        why = f"interpolation is {interpolation!r}"
        raise UsageError("E-TENSOR-VALUE", None, why, expected=", ".join(BETWEEN))
    if isinstance(q, list | tuple) or (isinstance(q, Tensor) and q.ndim):
        return FUNCTIONS["stack"]([nanquantile(input, each, dim, keepdim, interpolation=interpolation) for each in q])
    x, axis = _along(input, dim)
    values = where(x.isnan(), math.inf, x).sort(axis).values
    count = x.isnan().logical_not().sum(axis, True)
    place = (count - 1).clamp(min=0).to(x.dtype) * q
    low = place.detach().floor().long()
    high = (low + 1).minimum((count - 1).clamp(min=0))
    share: Any = place - low
    if interpolation != "linear":
        share = {
            "lower": share * 0, "higher": (share > 0).to(x.dtype), "midpoint": (share > 0).to(x.dtype) / 2,
            "nearest": place.round() - low,
        }[interpolation].detach()  # fmt: skip
    first, last = values.gather(axis, low), values.gather(axis, high)
    found = where(share.eq(0), first, first + (last - first) * share)  # infinity times 0 is NaN
    found = where(count.eq(0), float("nan"), found)
    if dim is None or not input.ndim:
        return found.reshape([1] * input.ndim) if keepdim else found.reshape(())
    return found if keepdim else found.squeeze(axis)


@operation()
def diag_embed(input: Tensor, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
    """Matrices, along two dims of the result, whose diagonals are the last dim."""
    one, two = (dim_of(dim, input.ndim + 1) for dim in (dim1, dim2))
    if one > two:
        one, two, offset = two, one, -offset
    return _matrices_of(input, offset).movedim((-2, -1), (one, two))


def _matrices_of(input: Tensor, offset: int) -> Tensor:
    size = input.shape[-1]
    wide = size + abs(offset)
    padded = FUNCTIONS["cat"]([input.new_zeros(*input.shape[:-1], abs(offset)), input], -1) if offset > 0 else input
    if offset < 0:
        padded = FUNCTIONS["cat"]([input, input.new_zeros(*input.shape[:-1], -offset)], -1)
    on = eye(wide).bool().roll(offset, 1) if offset else eye(wide).bool()
    kept = on.triu(offset) if offset > 0 else on.tril(offset) if offset < 0 else on
    row = padded.unsqueeze(-2)
    return where(kept, row, zeros_like(row))


@operation()
def diagflat(input: Tensor, offset: int = 0) -> Tensor:
    """A matrix whose diagonal has all elements."""
    return FUNCTIONS["diag"](input.reshape(-1), offset)


@operation()
def take(input: Tensor, index: Tensor) -> Tensor:
    """Elements by their position among all of them."""
    return input.reshape(-1)[index]


@operation()
def tensor_split(input: Tensor, indices_or_sections: Any, dim: int = 0) -> tuple[Tensor, ...]:
    """Parts of a dim: so many of nearly equal lengths, or those that begin at indices."""
    length = input.shape[dim_of(dim, input.ndim)]
    if isinstance(indices_or_sections, Tensor):
        indices_or_sections = indices_or_sections.tolist()
    if isinstance(indices_or_sections, int):
        each, more = divmod(length, indices_or_sections)
        sizes = [each + (index < more) for index in range(indices_or_sections)]
    else:
        ends = [0, *(min(max(end + length if end < 0 else end, 0), length) for end in indices_or_sections), length]
        sizes = [max(stop - start, 0) for start, stop in itertools.pairwise(ends)]
    starts = [sum(sizes[:index]) for index in range(len(sizes))]
    return tuple(input.narrow(dim, start, size) for start, size in zip(starts, sizes, strict=True))


@method()
def unfold(self: Tensor, dimension: int, size: int, step: int) -> Tensor:
    """Windows of a dim every `step` elements, along a new last dim."""
    axis = dim_of(dimension, self.ndim)
    if not self.ndim:
        return unfold(self.reshape(1), 0, size, step).reshape(-1)
    count = (self.shape[axis] - size) // step + 1
    if size < 1 or step < 1 or count < 1:
        why = f"windows of {size} elements every {step} along a dim of length {self.shape[axis]}"
        raise UsageError("E-TENSOR-VALUE", None, why)
    places = tensor([start * step + index for start in range(count) for index in range(size)])
    return self.index_select(axis, places).unflatten(axis, (count, size)).movedim(axis + 1, -1)


NEUTRAL = {"sum": 0.0, "mean": 0.0, "prod": 1.0, "amax": -float("inf"), "amin": float("inf")}
"""Initial value of a reduction of no elements."""
SCATTERED = {"sum": "add", "mean": "add", "prod": "mul", "amax": "max", "amin": "min"}


@operation()
def scatter_reduce(
    input: Tensor, dim: int, index: Tensor, src: Tensor, reduce: str, *, include_self: bool = True
) -> Tensor:
    """A copy in which values of `src` are joined with what is at an index along a dim.

    Args:
        reduce: sum, prod, mean, amax or amin.
        include_self: whether what was there counts.
    """
    if reduce not in NEUTRAL:
        raise UsageError("E-TENSOR-VALUE", None, f"scatter_reduce of {reduce!r}", expected=", ".join(NEUTRAL))
    if input.dtype.kind == "bool":
        return scatter_reduce(input.long(), dim, index, src.long(), reduce, include_self=include_self) != 0
    src = src[tuple(map(slice, index.shape))]
    neutral = NEUTRAL[reduce]
    if math.isinf(neutral) and input.dtype.kind != "float":
        limits = np.iinfo(input.dtype.as_numpy())
        neutral = limits.max if neutral > 0 else limits.min
    start = input if include_self else scatter(input, dim, index, neutral)
    found = indexing._scattered(start, dim, index, src, SCATTERED[reduce])
    if reduce != "mean":
        return found
    ones = ones_like(input) if include_self else scatter(ones_like(input), dim, index, zeros_like(src))
    counts = scatter_add(ones, dim, index, ones_like(src))
    return found / counts if input.dtype.kind == "float" else found // counts


@operation()
def index_copy(input: Tensor, dim: int, index: Tensor, source: Tensor) -> Tensor:
    """A copy with entries of `source` written to the entries of a dim at an index."""
    if not input.ndim:
        return source.reshape(()).to(input.dtype)
    return scatter(input, dim, indexing.along(index, dim_of(dim, input.ndim), source), source)


@operation()
def index_reduce(
    input: Tensor, dim: int, index: Tensor, source: Tensor, reduce: str, *, include_self: bool = True
) -> Tensor:
    """A copy in which entries of `source` are joined with the entries of a dim at an index, as in `scatter_reduce`."""
    axis = dim_of(dim, input.ndim)
    if not input.ndim:
        found = index_reduce(input.reshape(1), 0, index, source.reshape(-1), reduce, include_self=include_self)
        return found.reshape(())
    return scatter_reduce(input, dim, indexing.along(index, axis, source), source, reduce, include_self=include_self)


@operation()
def index_fill(input: Tensor, dim: int, index: Tensor, value: Any) -> Tensor:
    """A copy with one number in the entries of a dim at an index; negative ones count from the end."""
    axis = dim_of(dim, input.ndim)
    length = input.shape[axis] if input.ndim else 1
    places = where(index < 0, index + length, index).reshape(-1)
    chosen = scatter(zeros(length, dtype="bool"), 0, places, ones_like(places, dtype="bool"))
    return where(chosen.reshape([-1 if other == axis else 1 for other in range(input.ndim)]), like(value, input), input)


@operation()
def isin(elements: Tensor, test_elements: Tensor) -> Tensor:
    """Whether each element is one of others."""
    same: Tensor = FUNCTIONS["eq"](elements.unsqueeze(-1), test_elements.reshape(-1))
    return same.any(-1)


@operation()
def dist(input: Tensor, other: Tensor, p: float = 2) -> Tensor:
    """The p-norm of a difference."""
    return (input - other).norm(p)


@function()
def cdist(x1: Tensor, x2: Tensor, p: float = 2.0, compute_mode: str | None = None) -> Tensor:
    """p-norms of the differences of all rows of one [..., n, size] and of another [..., m, size]; `compute_mode` is
    PyTorch's choice of an algorithm, without effect."""
    return (x1.unsqueeze(-2) - x2.unsqueeze(-3)).norm(p, -1)


@function()
def bucketize(input: Any, boundaries: Tensor, *, out_int32: bool = False, right: bool = False) -> Tensor:
    """Between which sorted boundaries elements lie."""
    return searchsorted(boundaries, input, out_int32=out_int32, right=right)


def of_each(made: Callable[[Tensor], Tensor]) -> None:
    """Register a function of one tensor, of several, or of a list, for which it gives a tuple."""

    def called(*tensors: Any) -> Any:
        given = tensors[0] if len(tensors) == 1 else tensors
        if isinstance(given, Tensor) or not isinstance(given, list | tuple) or not any(map(_is_tensor, given)):
            return made(as_tensor(given))
        return tuple(made(as_tensor(each)) for each in given)

    called.__name__ = called.__qualname__ = made.__name__
    called.__doc__ = f"{made.__doc__} Several tensors give a tuple."
    function()(called)


def _is_tensor(item: Any) -> bool:
    return isinstance(item, Tensor)


def atleast_1d(input: Tensor) -> Tensor:
    """With one dim at least."""
    return input.reshape(1) if not input.ndim else input


def atleast_2d(input: Tensor) -> Tensor:
    """With two dims at least, new ones in front."""
    return input if input.ndim > 1 else atleast_1d(input).unsqueeze(0)


of_each(atleast_1d)
of_each(atleast_2d)


@operation()
def multinomial(
    input: Tensor, num_samples: int, replacement: bool = False, *, generator: Generator | None = None
) -> Tensor:
    """Indices drawn with the weights of the last dim, i64 [num_samples] or [rows, num_samples].

    Raises UsageError for weights that are negative, not finite, or all 0, and for more samples without replacement than
    there are.
    """
    weights = np.asarray(input.detach().array(), np.float64)
    if weights.ndim not in (1, 2) or not np.isfinite(weights).all() or (weights < 0).any():
        why = f"weights of shape {list(input.shape)} are not rows of finite numbers from 0 on"
        raise UsageError("E-TENSOR-VALUE", None, why, expected="[weights] or [rows, weights]")
    if (weights.sum(-1) <= 0).any() or not num_samples >= 1 or (not replacement and num_samples > input.shape[-1]):
        raise UsageError("E-TENSOR-VALUE", None, f"{num_samples} indices cannot be drawn of {input.shape[-1]} weights")
    if replacement and num_samples > 1:
        bounds = (input / input.sum(-1, keepdim=True)).cumsum(-1).detach()
        places = rand(*input.shape[:-1], num_samples, dtype="f64", generator=generator)
        found: Tensor = searchsorted(bounds.double(), places).clamp(max=input.shape[-1] - 1)
        return found
    keys = input.detach() / exponential(input.shape, input.dtype, generator=generator)
    return keys.argmax(-1, keepdim=True) if num_samples == 1 else topk(keys, num_samples, -1).indices
