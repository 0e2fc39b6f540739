"""Quantization of arrays: `encode` values to the bytes of a type, and `decode` them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ...runtime.base.errors import FormatError, UsageError
from ...runtime.base.out_of_memory import memory_limited
from ...runtime.base.units import counted
from ...runtime.tensor.block_codec import codec_of, decoded, encoded
from ...runtime.tensor.cast import convert
from ...runtime.tensor.dtype import BlockType, DType
from ...runtime.tensor.element_packing import nbytes, pack, unpack
from .recipe.rule import type_named

if TYPE_CHECKING:
    import numpy as np


@memory_limited
def encode(array: Any, type: str | DType, importance: Any = None) -> np.ndarray:
    """The bytes of an array in a type, uint8 ``[..., bytes of a row]``.

    Args:
        array: numbers ``[..., columns]`` that are finite for block types; `columns` is a multiple of the block.
        type: name of a block type or dtype, see ``candle-convert types``.
        importance: of each column, ``[columns]``, or ``[..., columns]`` with one row for each matrix
            ``[rows, columns]`` of the array.

    Raises:
        FormatError: shapes that do not fit, numbers that blocks cannot hold.
        UnsupportedError: a type that is only decoded, or that needs importance.
    """
    import numpy

    dtype = _named(type)
    values = numpy.asarray(array)
    if not isinstance(dtype, BlockType):
        data = pack(convert(numpy.ascontiguousarray(values), dtype), dtype)
        rows = values.shape[:-1] if dtype.nbytes(values.shape[-1] if values.shape else 1) is not None else ()
        return (
            numpy.frombuffer(data, numpy.uint8).reshape(*rows, -1)
            if values.size
            else numpy.empty((*rows, 0), numpy.uint8)
        )
    size = dtype.nbytes(values.shape[-1]) if values.shape else None
    if size is None:
        why = (
            f"an array of shape {list(values.shape)} cannot be quantized to {dtype.name}: "
            "its rows are not a multiple of the block length"
        )
        raise FormatError("E-QUANT-SHAPE", None, why, expected=f"rows of a multiple of {dtype.block}")
    weights = None if importance is None else _weights(importance, values.shape)
    if not values.size:
        return numpy.empty((*values.shape[:-1], size), numpy.uint8)
    matrices = values.reshape(-1, values.shape[-2] if values.ndim > 1 else 1, values.shape[-1])
    blocks = [
        encoded(codec_of(dtype), matrix, None if weights is None else weights[number])
        for number, matrix in enumerate(matrices)
    ]
    return numpy.stack(blocks).reshape(*values.shape[:-1], size)


@memory_limited
def decode(data: Any, type: str | DType, shape: Sequence[int]) -> np.ndarray:
    """An array of `shape` from the bytes of a type: float32 for block types, the dtype's own numpy type (ml_dtypes for
    bf16) for others.

    Raises FormatError where the number of bytes does not fit.
    """
    import numpy

    dtype, lengths = _named(type), tuple(int(length) for length in shape)
    wanted = nbytes(dtype, lengths) if all(length >= 0 for length in lengths) else None
    flat = (
        numpy.frombuffer(numpy.ascontiguousarray(data), numpy.uint8)
        if isinstance(data, numpy.ndarray)
        else numpy.frombuffer(data, numpy.uint8)
    )
    if wanted is None or flat.size != wanted:
        why = f"{counted(flat.size, 'byte', verb='is')} not {dtype.name} of shape {list(lengths)}"
        raise FormatError(
            "E-QUANT-SHAPE", None, why, expected="whole blocks" if wanted is None else f"{counted(wanted, 'byte')}"
        )
    if isinstance(dtype, BlockType):
        return decoded(codec_of(dtype), flat.data if flat.size else b"").reshape(lengths)
    return unpack(flat.data if flat.size else b"", dtype, math.prod(lengths)).reshape(lengths).copy()


def _named(type: str | DType) -> DType:
    return type if isinstance(type, DType) else type_named(type)


def _weights(importance: Any, shape: tuple[int, ...]) -> np.ndarray:
    """Importance ``[matrices, columns]``."""
    import numpy

    given = numpy.asarray(importance, dtype=numpy.float32)
    try:
        spread = numpy.broadcast_to(given, (*shape[:-2], shape[-1]))
    except ValueError as error:
        why = f"importance of shape {list(given.shape)} does not fit an array of shape {list(shape)}"
        raise UsageError("E-QUANT-IMPORTANCE", None, why, hint="One value per column") from error
    return spread.reshape(-1, shape[-1])
