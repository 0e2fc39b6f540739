"""Lazy casts between element types, chunk by chunk while values are read."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from ..base.errors import UnsupportedError
from ..jit.code_cache import CachedKernel
from .dtype import BF16, F16, F32, BlockType, DType
from .element_packing import nbytes, pack, unpack
from .storage import Derived, Storage

if TYPE_CHECKING:
    import numpy as np

COMPILED_FROM = 1 << 14
"""Elements from which on compiled code casts them, where there is some or Numba is loaded."""
_COMPILED = CachedKernel(f"{__package__.rpartition('.')[0]}.simd.half_cast_kernel", "cast")
_KINDS = {F32: 0, F16: 1, BF16: 2}
"""Codes of dtypes in the compiled cast."""

_KEEPS_MEANING = {
    *((kind, kind) for kind in ("float", "int", "uint", "bool", "complex")),
    *(("bool", kind) for kind in ("float", "int", "uint", "complex")),
    *((kind, "float") for kind in ("int", "uint")),
    *((kind, "complex") for kind in ("float", "int", "uint")),
    ("int", "uint"),
    ("uint", "int"),
}
"""Pairs of kinds between which a value can go: fractions, imaginary parts and "true" do not become something else."""


Observer = Callable[[int, "np.ndarray", "np.ndarray"], None]
"""Called for every chunk with the index of its first element, the values before and the values after."""


def rounded(
    storage: Storage, source: DType, dtype: DType, shape: tuple[int, ...], audit: Observer | None = None
) -> Derived:
    """The bytes of elements of `source` with their values rounded to another `dtype` (to nearest even) when they are
    read.

    Raises:
        UnsupportedError: one of the types is a block type, the values do not keep their meaning, or they do not fill
            whole bytes.
    """
    if isinstance(source, BlockType) or isinstance(dtype, BlockType):
        raise UnsupportedError("E-CAST-BLOCK", None, f"a cast from {source.name} to {dtype.name} is quantization")
    size = nbytes(dtype, shape)
    if size is None:
        raise UnsupportedError(
            "E-CAST-PACK", None, f"{math.prod(shape)} elements of {dtype.name} do not fill whole bytes"
        )
    if (source.kind, dtype.kind) not in _KEEPS_MEANING:
        raise UnsupportedError(
            "E-CAST-KIND", None, f"a cast from {source.name} to {dtype.name} would lose what the values mean"
        )
    run = math.lcm(source.block, dtype.block)
    unit = math.lcm(run * source.block_nbytes // source.block, storage.step)
    step = unit * source.block // source.block_nbytes * dtype.block_nbytes // dtype.block

    def read(start: int, stop: int) -> memoryview:
        first, last = (position * dtype.block // dtype.block_nbytes for position in (start, stop))
        data = storage.read(first * source.block_nbytes // source.block, last * source.block_nbytes // source.block)
        before = unpack(data, source, last - first)
        after = convert(before, dtype)
        if audit is not None:
            audit(first, before, after)
        return pack(after, dtype)

    return Derived(size, step, read, sequential=storage.sequential)


def convert(values: np.ndarray, dtype: DType) -> np.ndarray:
    """A contiguous array of the dtype's numpy type, rounded to nearest even; out of range becomes infinity, NaN or the
    largest value.

    Types of 8 and fewer bits go through float32, which holds all their values, because ml_dtypes has no casts between
    some of them.
    """
    import numpy

    wanted = dtype.as_numpy()
    source = (
        next((kind for kind in _KINDS if kind.as_numpy() == values.dtype), None)
        if values.size >= COMPILED_FROM
        else None
    )
    if source is not None and dtype in _KINDS and source != dtype and (_COMPILED.is_cached or "numba" in sys.modules):
        values, result = numpy.ascontiguousarray(values), numpy.empty(values.shape, wanted)
        _COMPILED(values.ctypes.data, result.ctypes.data, values.size, _KINDS[source], _KINDS[dtype])
        return result
    with numpy.errstate(all="ignore"):
        if values.dtype.itemsize == wanted.itemsize == 1 and dtype.kind == "float":
            values = values.astype(numpy.float32)
        return numpy.ascontiguousarray(values.astype(wanted, copy=False))
