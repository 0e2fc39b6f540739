"""Packing of sub-byte elements into bytes, and unpacking."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from .dtype import BlockType, DType

if TYPE_CHECKING:
    import numpy as np


def exact_nbytes(dtype: DType, shape: tuple[int, ...]) -> int | None:
    """Bytes of a tensor, None where its elements (of a row, for block types) do not fill whole runs."""
    if isinstance(dtype, BlockType):
        row = dtype.nbytes(shape[-1]) if shape else None
        return None if row is None else row * math.prod(shape[:-1])
    return dtype.nbytes(math.prod(shape))


def nbytes(dtype: DType, shape: tuple[int, ...]) -> int | None:
    """Bytes of a tensor; the last byte of a sub-byte type may be part empty. None where blocks do not fill the rows."""
    if isinstance(dtype, BlockType):
        return exact_nbytes(dtype, shape)
    return -(-math.prod(shape) * dtype.bits // 8)


def unpack(data: bytes | memoryview, dtype: DType, count: int) -> np.ndarray:
    """`count` elements from packed little-endian bytes, as a flat array."""
    import numpy

    wanted = dtype.as_numpy()
    if dtype.bits >= 8:
        return numpy.frombuffer(data, dtype=wanted.newbyteorder("<"), count=count).astype(wanted, copy=False)
    bits = numpy.unpackbits(numpy.frombuffer(data, dtype=numpy.uint8), bitorder="little")[: count * dtype.bits]
    codes = numpy.packbits(bits.reshape(count, dtype.bits), axis=1, bitorder="little").reshape(count)
    if dtype.kind == "int":
        shift = 8 - dtype.bits
        return ((codes << shift).view(numpy.int8) >> shift).astype(wanted)
    return codes.view(wanted) if dtype.kind == "float" else codes.astype(wanted)


def pack(array: np.ndarray, dtype: DType) -> memoryview:
    """The packed bytes of a contiguous array of the dtype's numpy type; the inverse of `unpack`."""
    import numpy

    flat = array.reshape(-1)
    if dtype.bits >= 8:
        return flat.view(numpy.uint8).data if flat.size else memoryview(b"")
    codes = flat.view(numpy.uint8) if dtype.kind == "float" else flat.astype(numpy.int8).view(numpy.uint8)
    bits = numpy.unpackbits(codes.reshape(-1, 1), axis=1, bitorder="little", count=dtype.bits)
    return numpy.packbits(bits.reshape(-1), bitorder="little").data
