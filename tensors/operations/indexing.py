"""Indexing as NumPy and PyTorch have it: slices, integers, None, `...`, masks and index arrays; reads and writes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...runtime.base.errors import UsageError, UsageIndexError
from ...runtime.base.units import counted
from ...runtime.tensor.dtype import BOOL, I64, U8
from ..core.expression import Expression, apply, cast, leaf, op_named, shape_error
from ..core.registry import function, method, operation
from ..core.tensor import Tensor
from .operands import NUMBERS, broadcast, copied, dim_of, expression_of, integers, promoted, scalar
from .shape import reshape

ENDS = 1 << 62
"""A bound of a slice with a negative step that includes the first element."""


@method("__getitem__")
def get(self: Tensor, index: Any) -> Tensor:
    """The elements at an index."""
    if isinstance(index, Tensor) and index.dtype in (BOOL, U8) and not index.ndim:
        index = bool(index)
    if index is False:
        return self.unsqueeze(0).narrow(0, 0, 0)
    items = _expanded(index, self)
    x = self.expression
    starts, ends, axes, steps, lengths, arrays = [], [], [], [], [], []
    axis = 0
    for item in items:
        if item is None:
            lengths.append(1)
            continue
        length = x.type.shape[axis]
        if isinstance(item, slice):
            start, stop, step = item.indices(length)
            if (start, stop, step) != (0, length, 1):
                starts.append(start)
                ends.append(stop if stop >= 0 else -ENDS)
                axes.append(axis)
                steps.append(step)
            lengths.append(len(range(start, stop, step)))
        elif isinstance(item, int):
            place = _place(item, length, axis)
            starts.append(place)
            ends.append(place + 1)
            axes.append(axis)
            steps.append(1)
        else:
            arrays.append((len(lengths), item))
            lengths.append(length)
        axis += 1
    if axes:
        bounds = [integers(row) for row in (starts, ends, axes, steps)]
        x = apply(op_named("Slice"), [x, *bounds])
    found = Tensor(x).reshape(lengths)
    return found if not arrays else _gathered(found, arrays)


def _place(index: int, length: int, axis: int) -> int:
    if not -length <= index < length:
        why = f"index {index} is out of range for dim {axis} of length {length}"
        raise IndexError(why)
    return index % length


def _expanded(index: Any, x: Tensor) -> list[Any]:
    """One item for each dim, and None for each new one; masks as their indices."""
    items = list(index) if isinstance(index, tuple) else [index]
    found: list[Any] = []
    for item in items:
        if item is None or item is Ellipsis or isinstance(item, slice):
            found.append(slice(*map(_bound, (item.start, item.stop, item.step))) if isinstance(item, slice) else item)
        elif item is True:
            found.append(None)
        elif isinstance(item, int | np.integer):
            found.append(int(item))
        else:
            array = Tensor(expression_of(item)) if not isinstance(item, Tensor) else item
            if array.dtype is U8:
                array = array.bool()
            if array.dtype is BOOL:
                _check_mask(array, x, found)
                found += _mask(array)
            elif array.dtype.kind not in ("int", "uint"):
                if array.numel():
                    raise IndexError(f"tensors of {array.dtype} are not indices; use integers or booleans")
                found.append(cast(array.expression, I64))
            elif not array.ndim and array.expression.data is not None:
                found.append(int(array.item()))
            else:
                found.append(cast(array.expression, I64))
    given = sum(item is not None and item is not Ellipsis for item in found)
    if given > x.ndim:
        raise IndexError(f"{given} indices for a tensor of {counted(x.ndim, 'dim')}")
    missing = [slice(None)] * (x.ndim - given)
    places = [place for place, item in enumerate(found) if item is Ellipsis]
    if len(places) > 1:
        raise IndexError("an index has more than one ...")
    place = places[0] if places else len(found)
    return [*found[:place], *missing, *found[place + 1 :]]


def _bound(item: Any) -> int | None:
    return None if item is None else int(item)


def _check_mask(mask: Tensor, x: Tensor, before: list[Any]) -> None:
    axis = sum(item is not None and item is not Ellipsis for item in before)
    if Ellipsis not in before and mask.shape != x.shape[axis : axis + mask.ndim]:
        raise IndexError(f"a mask of shape {list(mask.shape)} does not fit a tensor of shape {list(x.shape)}")


def _mask(mask: Tensor) -> list[Expression]:
    """The indices where a mask is true, along each of its dims; its values have to be known."""
    return [leaf(places) for places in np.nonzero(mask.array())]


def _gathered(x: Tensor, arrays: list[tuple[int, Expression]]) -> Tensor:
    """The elements at index arrays, which broadcast; their dims come first unless the arrays stand side by side."""
    dims = [dim for dim, _ in arrays]
    rest = [dim for dim in range(x.ndim) if dim not in dims]
    shape = broadcast([item.type.shape for _, item in arrays], "index")
    place = dims[0] if dims == list(range(dims[0], dims[0] + len(dims))) else 0
    lengths = [x.shape[dim] for dim in dims]
    if len(dims) == 1:
        return Tensor(apply(op_named("Gather"), [x.expression, arrays[0][1]], {"axis": dims[0]}))
    flat = x.permute([*rest[:place], *dims, *rest[place:]]).reshape(
        [*(x.shape[dim] for dim in rest[:place]), math.prod(lengths), *(x.shape[dim] for dim in rest[place:])]
    )
    places = _flat_places([item for _, item in arrays], lengths).broadcast_to(shape)
    return Tensor(apply(op_named("Gather"), [flat.expression, places.expression], {"axis": place}))


def _flat_places(items: list[Expression], lengths: list[int]) -> Tensor:
    """One index for several dims; negative ones count from the end, and those out of range raise an error when they
    are used."""
    found: Tensor | None = None
    for item, length in zip(items, lengths, strict=True):
        places = Tensor(item)
        _check_range(places, length)
        places = _positive(places, length)
        found = places if found is None else found * length + places
    assert found is not None
    return found


def _positive(places: Tensor, length: int) -> Tensor:
    return Tensor(apply(op_named("Where"), [places.lt(0).expression, (places + length).expression, places.expression]))


def _check_range(places: Tensor, length: int) -> None:
    array = places.array()
    if array.size and not (-length <= array.min() and array.max() < length):
        raise IndexError(f"an index is out of range for a dim of length {length}")


@method("__setitem__")
def set(self: Tensor, index: Any, value: Any) -> None:
    """Write values to the elements at an index; the tensor has a new value then, others keep theirs."""
    if isinstance(index, Tensor) and index.dtype is BOOL and not np.ndim(_number(value)):
        _check_mask(index, self, [])
        mask = index.reshape([*index.shape, *[1] * (self.ndim - index.ndim)])
        self.become(where(mask, like(value, self), self))
        return
    count = self.numel()
    positions = Tensor(leaf(np.arange(count).reshape(self.shape)))[index]
    values = like(value, self)
    try:
        wanted = np.broadcast_shapes(values.shape, positions.shape)
    except ValueError:
        wanted = ()
    if wanted != positions.shape:
        squeezed = list(values.shape)
        while len(squeezed) > positions.ndim and squeezed[0] == 1:
            squeezed.pop(0)
        values = values.reshape(squeezed)
        if broadcast((values.shape, positions.shape), "assignment") != positions.shape:
            sides = f"{list(values.shape)} do not fit an index of shape {list(positions.shape)}"
            raise shape_error(f"values of shape {sides}")
    self.become(replaced(self, positions, values.broadcast_to(positions.shape)))


def replaced(base: Tensor, places: Tensor, values: Tensor) -> Tensor:
    """A tensor with `values` at `places`, which number the elements of `base`."""
    inputs = [reshape(each, -1).expression for each in (base, places, values)]
    return reshape(Tensor(apply(op_named("ScatterElements"), inputs, {"axis": 0})), base.shape)


def _number(value: Any) -> Any:
    return [0] * value.ndim if isinstance(value, Tensor) else value


def like(value: Any, x: Tensor) -> Tensor:
    """A value in the dtype of a tensor.

    Raises UsageError for a number that the dtype cannot hold.
    """
    if not isinstance(value, NUMBERS):
        return Tensor(cast(expression_of(value), x.dtype))
    if x.dtype.kind in ("int", "uint"):
        limits = np.iinfo(x.dtype.as_numpy())
        if isinstance(value, complex | np.complexfloating) or not (
            math.isfinite(value) and limits.min <= int(value) <= limits.max
        ):
            why = f"a tensor of {x.dtype} cannot hold {value}"
            raise UsageError("E-TENSOR-VALUE", None, why, expected=f"{limits.min} to {limits.max}")
        value = int(value)
    return Tensor(scalar(value, x.dtype))


@function()
def where(condition: Tensor, input: Any = None, other: Any = None) -> Any:
    """`input` where the condition is true, `other` elsewhere; alone, the indices where it is true."""
    if input is None:
        return condition.nonzero(as_tuple=True)
    one, two = promoted([input, other])
    truth = cast(expression_of(condition), BOOL)
    broadcast((truth.type.shape, one.type.shape, two.type.shape), "where")
    return Tensor(apply(op_named("Where"), [truth, one, two]))


@method("where")
def where_method(self: Tensor, condition: Any, other: Any) -> Tensor:
    """The elements where the condition is true, `other` elsewhere."""
    return where(condition, self, other)


@operation()
def masked_fill(input: Tensor, mask: Tensor, value: Any) -> Tensor:
    """A number where the mask is true, the elements elsewhere."""
    return where(mask, like(value, input), input)


@operation()
def masked_select(input: Tensor, mask: Tensor) -> Tensor:
    """The elements where the mask is true, in a row."""
    shape = broadcast((input.shape, mask.shape), "masked_select")
    return input.broadcast_to(shape)[mask.broadcast_to(shape)]


@operation()
def nonzero(input: Tensor, *, as_tuple: bool = False) -> Any:
    """The indices of elements that are not 0: a row for each, or a tensor for each dim."""
    places = np.nonzero(np.atleast_1d(input.array()))
    if as_tuple:
        return tuple(Tensor(leaf(item)) for item in places)
    return Tensor(leaf(np.stack(places, -1) if input.ndim else np.zeros((len(places[0]), 0), np.int64)))


def _numbers(index: Tensor, what: str) -> Expression:
    """An index as i64. UsageError for one that is not of integers; IndexError where it is known to have negative
    numbers, which count from the end nowhere but in brackets."""
    if index.dtype.kind not in ("int", "uint"):
        raise UsageError("E-TENSOR-DTYPE", None, f"{what}: an index of {index.dtype}", hint="Use long()")
    known = index.expression.data
    if known is not None and known.size and known.min() < 0:
        raise IndexError(f"{what}: an index is {known.min()}, and dims are counted from 0")
    return cast(index.expression, I64)


@operation()
def gather(input: Tensor, dim: int, index: Tensor) -> Tensor:
    """The elements at an index along a dim, one for each element of `index`."""
    axis = dim_of(dim, input.ndim)
    if not index.numel():
        return input.reshape(-1)[:0].reshape(index.shape)
    if not input.ndim and index.ndim == 1:
        return gather(input.reshape(1), 0, index)
    if index.ndim != input.ndim:
        raise shape_error(f"gather: index of shape {list(index.shape)} for a tensor of shape {list(input.shape)}")
    if not input.ndim:
        return input
    cut = tuple(slice(None) if other == axis else slice(0, length) for other, length in enumerate(index.shape))
    inputs = [input[cut].expression, _numbers(index, "gather")]
    return Tensor(apply(op_named("GatherElements"), inputs, {"axis": axis}))


@operation()
def take_along_dim(input: Tensor, indices: Tensor, dim: int | None = None) -> Tensor:
    """`gather` with an index and a tensor that broadcast; of all elements in a row without a dim."""
    if dim is None:
        return gather(input.reshape(-1), 0, _positive(indices.reshape(-1), input.numel()))
    axis = dim_of(dim, input.ndim)
    ours, theirs = (
        [1 if other == axis else length for other, length in enumerate(each.shape)] for each in (input, indices)
    )
    shape = list(broadcast((tuple(ours), tuple(theirs)), "take_along_dim"))
    wide, places = (
        each.broadcast_to([*shape[:axis], each.shape[axis], *shape[axis + 1 :]]) if each.ndim else each
        for each in (input, indices)
    )
    return gather(wide, dim, _positive(places, wide.shape[axis]))


@operation()
def index_select(input: Tensor, dim: int, index: Tensor) -> Tensor:
    """The entries of a dim at an index."""
    if index.ndim > 1:
        raise UsageIndexError(
            "E-TENSOR-SHAPE", None, f"index_select takes a vector, not an index {index.expression.type}"
        )
    if not input.ndim:
        return index_select(input.reshape(1), 0, index).reshape(())
    inputs = [input.expression, _numbers(index.reshape(-1), "index_select")]
    return Tensor(apply(op_named("Gather"), inputs, {"axis": dim_of(dim, input.ndim)}))


@operation()
def select(input: Tensor, dim: int, index: int) -> Tensor:
    """One entry of a dim."""
    return input[(*[slice(None)] * dim_of(dim, input.ndim), index)]


@operation()
def narrow(input: Tensor, dim: int, start: int, length: int) -> Tensor:
    """`length` entries of a dim from `start` on, which counts from the end if it is negative."""
    count = input.shape[dim_of(dim, input.ndim)]
    first = int(start) + count if start < 0 else int(start)
    if not 0 <= first <= first + length <= count:
        raise IndexError(f"narrow: {counted(length, 'entry', 'entries')} from {int(start)} of a dim of length {count}")
    start = first
    return input[(*[slice(None)] * dim_of(dim, input.ndim), slice(start, start + length))]


def _scattered(input: Tensor, dim: int, index: Tensor, source: Any, reduction: str) -> Tensor:
    axis = dim_of(dim, input.ndim)
    updates = like(source, input)
    if updates.shape != index.shape:
        updates = updates.broadcast_to(index.shape) if not updates.ndim else updates[tuple(map(slice, index.shape))]
    if not input.ndim:
        return _scattered(input.reshape(1), 0, index.reshape(-1), updates.reshape(-1), reduction).reshape(())
    inputs = [input.expression, _numbers(index, "scatter"), updates.expression]
    return Tensor(apply(op_named("ScatterElements"), inputs, {"axis": axis, "reduction": reduction}))


REDUCTIONS = {None: "none", "add": "add", "multiply": "mul"}
"""Reductions of `scatter`: how new and old elements are joined."""


@operation()
def scatter(
    input: Tensor, dim: int, index: Tensor, src: Any = None, *, value: Any = None, reduce: str | None = None
) -> Tensor:
    """A copy with values of `src`, or one number, written at an index along a dim.

    Args:
        reduce: add or multiply joins them with what was there.
    """
    if reduce not in REDUCTIONS:
        raise UsageError("E-TENSOR-VALUE", None, f"scatter with reduce={reduce!r}", expected="add or multiply")
    return _scattered(input, dim, index, value if src is None else src, REDUCTIONS[reduce])


@operation()
def scatter_add(input: Tensor, dim: int, index: Tensor, src: Any) -> Tensor:
    """A copy with values of `src` added at an index along a dim."""
    return _scattered(input, dim, index, src, "add")


def along(index: Tensor, axis: int, source: Tensor) -> Tensor:
    """An index of entries of a dim as one of the elements of `source`."""
    numbers = Tensor(_numbers(index, "the index of a dim"))
    if index.numel() != source.shape[axis]:
        shapes = f"an index {index.expression.type} of dim {axis} of {source.expression.type}"
        raise shape_error(f"{shapes}: {counted(index.numel(), 'place')} for {source.shape[axis]} entries")
    return numbers.reshape([-1 if other == axis else 1 for other in range(source.ndim)]).broadcast_to(source.shape)


@operation()
def index_add(
    input: Tensor, dim: int, index: Tensor, source: Tensor, *, alpha: float = 1
) -> Tensor:  # fmt: skip
    """A copy with entries of `source`, times `alpha`, added to the entries of a dim at an index."""
    if not input.ndim:
        return index_add(input.reshape(1), 0, index.reshape(-1), source.reshape(-1), alpha=alpha).reshape(())
    added = source if alpha == 1 else source * Tensor(scalar(alpha, source.dtype))
    return _scattered(input, dim, along(index, dim_of(dim, input.ndim), source), added, "add")


@operation()
def diagonal(input: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    """The elements of a diagonal of two dims, as the last dim."""
    one, two = dim_of(dim1, input.ndim), dim_of(dim2, input.ndim)
    rest = [dim for dim in range(input.ndim) if dim not in (one, two)]
    x = input.permute([one, two, *rest])
    rows = np.arange(max(0, -offset), min(x.shape[0], x.shape[1] - offset))
    found = x[Tensor(leaf(rows)), Tensor(leaf(rows + offset))]
    return found.movedim(0, -1) if rest else found


@operation()
def diag(input: Tensor, diagonal: int = 0) -> Tensor:
    """The diagonal of a matrix, or a matrix with a vector as its diagonal."""
    if input.ndim == 2:
        return copied(input.diagonal(diagonal))
    size = input.shape[0] + abs(diagonal)
    tensor = Tensor(leaf(np.zeros((size, size), input.dtype.as_numpy())))
    positions = np.arange(input.shape[0])
    set(tensor, (Tensor(leaf(positions + max(0, -diagonal))), Tensor(leaf(positions + max(0, diagonal)))), input)
    return tensor


@operation()
def trace(input: Tensor) -> Tensor:
    """The sum of the diagonal of a matrix."""
    if input.ndim != 2:
        raise shape_error(f"trace: a tensor of shape {list(input.shape)} is not a matrix")
    return input.diagonal().sum()
