"""Slices of weights along an axis; block-quantized weights are sliced at block borders."""

from __future__ import annotations

from collections.abc import Sequence

from ...tensor.storage import Held, Mapped, Region
from ...tensor.stored_tensor import StoredTensor

Spans = tuple[tuple[int, int], ...]
"""From and to, along an axis."""


def _bits(tensor: StoredTensor) -> tuple[int, int]:
    """Elements and bytes of the smallest run that is stored by itself."""
    from ...tensor.dtype import BlockType

    if isinstance(tensor.dtype, BlockType):
        return tensor.dtype.block, tensor.dtype.block_nbytes
    return (1, tensor.dtype.bits // 8) if tensor.dtype.bits % 8 == 0 else (8 // tensor.dtype.bits, 1)


def can_slice(tensor: StoredTensor, axis: int, spans: Spans) -> bool:
    """Whether `spans` do not split a block."""
    length, _ = _bits(tensor)
    last = axis == len(tensor.shape) - 1
    return tensor.shape[-1] % length == 0 and (not last or all(end % length == 0 for span in spans for end in span))


def slice_weight(tensor: StoredTensor, axis: int, spans: Spans) -> StoredTensor:
    """The elements within `spans` of an axis, which `can_slice` allows. Consecutive rows of a file are not copied."""
    import numpy

    shape = list(tensor.shape)
    shape[axis] = sum(stop - start for start, stop in spans)
    storage = tensor.storage
    row = tensor.nbytes // tensor.shape[0] if tensor.shape[0] else 0
    if axis == 0 and len(spans) == 1 and isinstance(storage, Region):
        (start, stop) = spans[0]
        return StoredTensor(
            tensor.dtype, tuple(shape), Region(storage.source, storage.offset + start * row, (stop - start) * row)
        )
    length, size = _bits(tensor)
    whole = Mapped(storage).data if isinstance(storage, Region) else tensor.raw()
    runs = numpy.frombuffer(whole, numpy.uint8).reshape(*tensor.shape[:-1], tensor.shape[-1] // length, size)
    unit = length if axis == len(shape) - 1 else 1
    parts = [runs[_along(runs.ndim, axis, start // unit, stop // unit)] for start, stop in spans]
    return StoredTensor(
        tensor.dtype, tuple(shape), Held(numpy.ascontiguousarray(numpy.concatenate(parts, axis)).reshape(-1).data)
    )


def _along(count: int, axis: int, start: int, stop: int) -> tuple[slice, ...]:
    found: Sequence[slice] = [slice(start, stop) if index == axis else slice(None) for index in range(count)]
    return tuple(found)
