"""NumPy's basic indexing of tensors; reads only the rows that the result needs."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from types import EllipsisType
from typing import TYPE_CHECKING, Any, Protocol

from ..base.dataclass import dataclass
from ..base.errors import UsageError
from .dtype import BlockType, DType
from .storage import Derived, Storage, window

if TYPE_CHECKING:
    import numpy as np

Index = int | slice | EllipsisType | tuple[int | slice | EllipsisType, ...]
Selection = tuple[tuple[int, ...], Storage]
"""Shape and bytes of a part."""
WHOLE = slice(None)
READ_WHOLE = 1 << 16
"""Bytes of a row up to which it is read whole, and the part of it taken by NumPy."""


@dataclass(frozen=True)
class Part:
    """The selection of one dimension's index.

    Attributes:
        places: in the order of the result.
        kept: whether the dimension is part of the result; an integer drops it.
    """

    places: range
    kept: bool


class Indexed(Protocol):
    """An object that indexing applies to, such as `Tensor`."""

    @property
    def dtype(self) -> DType: ...
    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def storage(self) -> Storage: ...
    @property
    def qtype(self) -> BlockType | None: ...
    def rows(self, start: int, stop: int, *, keep: bool = True) -> Indexed: ...
    def numpy(self) -> np.ndarray: ...


def part(tensor: Indexed, index: Any) -> Selection | None:
    """The part of a tensor that an index selects, still unread: integers, slices with any step, ``...`` and tuples of
    these. None for all of it.

    Raises:
        IndexError: an integer is out of range, or there are more indices than dimensions.
        UsageError: an array, None or a mask as index; a cut inside the blocks or packed bytes of a row.
    """
    parts = _parts(tensor.shape, index)
    if all(each.kept and each.places == range(length) for each, length in zip(parts, tensor.shape, strict=True)):
        return None
    return _taken(tensor, parts)


def _parts(shape: tuple[int, ...], index: Any) -> list[Part]:
    words = list(index) if isinstance(index, tuple) else [index]
    if sum(word is Ellipsis for word in words) > 1:
        raise IndexError("an index can only have a single ellipsis ('...')")
    given = len(words) - sum(word is Ellipsis for word in words)
    if given > len(shape):
        raise IndexError(f"too many indices: the tensor is {len(shape)}-dimensional, but {given} were indexed")
    place = next((number for number, word in enumerate(words) if word is Ellipsis), len(words))
    words[place : place + 1] = [WHOLE] * (len(shape) - given)
    return [_selected(word, length, axis) for axis, (word, length) in enumerate(zip(words, shape, strict=True))]


def _selected(word: Any, length: int, axis: int) -> Part:
    if isinstance(word, slice):
        return Part(range(length)[word], kept=True)
    try:
        number = operator.index(word) if not isinstance(word, bool) else None
    except TypeError:
        number = None
    if number is None:
        hint = "Use .numpy() first for None, masks and arrays of indices"
        why = f"tensors are indexed with integers, slices and ..., not with {type(word).__name__}"
        raise UsageError("E-SLICE", None, why, hint=hint)
    if not -length <= number < length:
        raise IndexError(f"index {number} is out of bounds for axis {axis} with size {length}")
    return Part(range(number % length, number % length + 1), kept=False)


def _taken(tensor: Indexed, parts: Sequence[Part]) -> Selection:
    first, inner = parts[0], parts[1:]
    whole = all(
        each.kept and each.places == range(length) for each, length in zip(inner, tensor.shape[1:], strict=True)
    )
    rows = first.places
    if whole and rows.step == 1 and (inner or (tensor.qtype is None and tensor.dtype.bits >= 8)):
        cut = tensor.rows(rows.start, max(rows.start, rows.stop), keep=first.kept)
        return cut.shape, cut.storage
    if not inner:
        return _elements(tensor, first)
    if not first.kept:
        return _taken(tensor.rows(rows.start, rows.stop, keep=False), inner)
    if not rows:
        sample = _shape(inner)
        return (0, *sample), Derived(0, 1, _nothing)
    shape, row = _taken(tensor.rows(rows[0], rows[0] + 1, keep=False), inner)
    return (len(rows), *shape), Derived(len(rows) * row.nbytes, 1, _reader(tensor, rows, inner, row.nbytes))


def _shape(parts: Sequence[Part]) -> tuple[int, ...]:
    return tuple(len(each.places) for each in parts if each.kept)


def _nothing(first: int, last: int) -> bytes:
    return b""


def _reader(tensor: Indexed, rows: range, inner: Sequence[Part], size: int) -> Any:
    """Reads a range of the bytes of rows, each cut to `inner`, which has `size` bytes."""

    def row(number: int) -> bytes | memoryview:
        found = tensor.rows(rows[number], rows[number] + 1, keep=False)
        if found.qtype is None and found.dtype.bits >= 8 and found.storage.nbytes <= READ_WHOLE:
            import numpy

            index = tuple(_slice(each) for each in inner)
            return numpy.ascontiguousarray(found.numpy()[index]).reshape(-1).view(numpy.uint8).data
        _, storage = _taken(found, inner)
        return storage.read(0, storage.nbytes)

    def read(first: int, last: int) -> bytes:
        if first == last:
            return b""
        begin, end = first // size, -(-last // size)
        data = b"".join(row(number) for number in range(begin, end))
        return data[first - begin * size : last - begin * size]

    return read


def _slice(selected: Part) -> slice | int:
    places = selected.places
    if not selected.kept:
        return places.start
    stop = places.stop if places.step > 0 or places.stop >= 0 else None
    return slice(places.start, stop, places.step) if places else slice(0, 0)


def _elements(tensor: Indexed, selected: Part) -> Selection:
    """Elements of a tensor of one dimension."""
    places, width = selected.places, tensor.dtype.bits // 8
    block = tensor.dtype.block
    shape = _shape([selected])
    if tensor.qtype is not None or width == 0:
        size = tensor.dtype.block_nbytes
        if tensor.qtype is None or places.step != 1 or not selected.kept or places.start % block or places.stop % block:
            hint = "Use dequantize() first" if tensor.qtype is not None else "Use numpy() first"
            raise UsageError("E-SLICE", None, f"{tensor!r} is cut inside a block or byte", hint=hint)
        low = places.start // block * size
        return shape, window(tensor.storage, low, len(places) // block * size)
    if places.step == 1:
        return shape, window(tensor.storage, places.start * width, len(places) * width)
    low, high = (min(places), max(places) + 1) if places else (0, 0)
    base = window(tensor.storage, low * width, (high - low) * width)
    count = len(places)

    def read(first: int, last: int) -> bytes:
        import numpy

        array = numpy.frombuffer(base.read(0, base.nbytes), numpy.dtype((numpy.void, width)))[:: places.step]
        assert len(array) == count
        return array.tobytes()[first:last]

    return shape, Derived(count * width, 1, read)
