"""Codecs: how the blocks of a quantized type become numbers and back.

A codec is found by existence: every module directly in `ops/quants/` defines a tuple `CODECS`. Decoders are plain numpy, so that reading
quantized files never loads Numba; encoders are compiled kernels in modules that only `encoder` imports.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .cast import cast
from .dtype import BLOCK_TYPES, F32, BlockType, DType
from .errors import FormatError
from .storage import Derived
from .tensor import Tensor, nbytes

if TYPE_CHECKING:
    import numpy as np

Encoder = Callable[["np.ndarray", "np.ndarray", "np.ndarray", int, int], None]
"""A range kernel ``encode(rows, importance, out, start, stop)`` that fills `out` for the rows ``[start, stop)``.

`rows` is float32 ``[n, columns]``, `importance` float32 ``[columns]``, or ``[0]`` for none; `out` is uint8 ``[n, bytes of a row]``.
All three are C-contiguous, `columns` is a multiple of the block length, all values are finite.
"""

SLICE = 1 << 18
"""Elements that one call of a decoder gets, so that its temporaries stay in cache."""


@dataclass(frozen=True)
class Codec:
    """Decoder and encoder of one block type.

    Attributes:
        dtype: the block type.
        decode: uint8 ``[n, dtype.block_nbytes]`` to float32 ``[n, dtype.block]``; any bytes are valid blocks.
        encoder: loads and compiles the encoder; None for types that only exist in old files or as intermediates.
        needs_importance: whether the type is encoded only with an importance matrix.
    """

    dtype: BlockType
    decode: Callable[[np.ndarray], np.ndarray]
    encoder: Callable[[], Encoder] | None = None
    needs_importance: bool = False


def block_type(name: str) -> BlockType:
    """The block type with that name."""
    return next(dtype for dtype in BLOCK_TYPES if dtype.name == name)


def decoded(codec: Codec, data: bytes | memoryview) -> np.ndarray:
    """The values of whole blocks as a flat float32 array; NaN and infinite scales give what IEEE arithmetic gives."""
    import numpy

    size, length = codec.dtype.block_nbytes, codec.dtype.block
    if len(data) % size:
        why = f"{len(data):,} bytes are not whole blocks of {codec.dtype.name}"
        raise FormatError("E-QUANT-PARTIAL", None, why, expected=f"a multiple of {size}", hint="Cut between blocks")
    blocks = numpy.frombuffer(data, dtype=numpy.uint8).reshape(-1, size)
    values = numpy.empty((len(blocks), length), dtype=numpy.float32)
    step = max(1, SLICE // length)
    with numpy.errstate(all="ignore"):
        for first in range(0, len(blocks), step):
            values[first : first + step] = codec.decode(blocks[first : first + step])
    return values.reshape(-1)


def dequantized(tensor: Tensor, codec: Codec, dtype: DType = F32) -> Tensor:
    """`tensor` with its blocks decoded when they are read, and only those asked for; values rounded to `dtype`."""
    assert tensor.dtype == codec.dtype, f"{tensor!r} is not {codec.dtype}"
    inner = tensor.storage
    size, run = codec.dtype.block_nbytes, codec.dtype.block * F32.block_nbytes
    total = nbytes(F32, tensor.shape)
    assert total is not None

    def read(start: int, stop: int) -> memoryview:
        values = decoded(codec, inner.read(start // run * size, stop // run * size))
        return values.view("u1").data if values.size else memoryview(b"")

    step = math.lcm(size, inner.step) // size * run
    return cast(Tensor(F32, tensor.shape, Derived(total, step, read, sequential=inner.sequential)), dtype)
