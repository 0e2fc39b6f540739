"""Block codecs: encoders and decoders of quantized block types.

Modules of `ops` that declare a tuple `CODECS` are found without importing them. Decoders are NumPy functions, so that
reading quantized files does not load Numba; common types also have compiled decoders for large tensors. Encoders are
compiled kernels, whose modules are imported only if their machine code is not cached.
"""

from __future__ import annotations

import ctypes
import math
import struct
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from ..base.dataclass import dataclass
from ..base.errors import FormatError, UnsupportedError
from ..base.process_cache import FILES, process_cache
from ..base.units import counted
from ..jit.code_cache import CachedKernel
from ..plugin.discovery import BLOCK_CODECS
from .dtype import DTYPES, F32, STORAGE_TYPES, BlockType
from .element_packing import nbytes
from .storage import Derived, Storage

if TYPE_CHECKING:
    import numpy as np

KINDS = {"f32": 0, "f16": 1, "bf16": 2}
"""Element types that encoders read, by the code of the kernel argument."""

COMPILED_FROM = 1 << 27
"""Elements decoded by one process from which on loading Numba pays."""

SLICE = 1 << 18
"""Elements per decoder call, so that temporaries stay in the CPU cache."""


class Encoder:
    """An encoder of blocks.

    Args:
        plain, weighted: kernels without and with importance.
        lattice: returns the arrays of the lattice that the kernels search.

    Attributes:
        slice: elements per call that use the machine well.
    """

    slice = SLICE

    def __init__(
        self, plain: CachedKernel, weighted: CachedKernel, lattice: Callable[[], tuple[np.ndarray, ...]]
    ) -> None:
        self.kernels = (plain, weighted)
        self.lattice = lattice

    @property
    def is_cached(self) -> bool:
        """Whether the machine code of both kernels is cached."""
        return all(kernel.is_cached for kernel in self.kernels)

    def load(self) -> None:
        """Compile the kernels if their code is not cached."""
        for kernel in self.kernels:
            kernel.load()
        self.lattice()

    def run(self, source: int, kind: int, shape: tuple[int, int], importance: int, out: int) -> float:
        """Encode rows by address, without the GIL. Returns the largest magnitude; infinite or NaN if a value is not
        finite.

        Args:
            source: contiguous rows of `shape` (rows, columns), of an element type in `KINDS`; columns are a
                multiple of the block length.
            importance: address of f32 [columns], 0 for none.
            out: address of the blocks.
        """
        kernel = self.kernels[importance != 0]
        lattice = self.lattice()  # held until the kernel is done: two threads that ask first make arrays of their own
        greatest = ctypes.c_int64()
        addresses = [array.ctypes.data for array in lattice] or [0] * 4
        kernel(source, kind, shape[1], shape[0], importance, out, ctypes.addressof(greatest), *addresses)
        return float(struct.unpack("<f", struct.pack("<i", greatest.value))[0])

    def __call__(self, rows: np.ndarray, importance: np.ndarray, out: np.ndarray, start: int, stop: int) -> None:
        """Fill `out` for the rows ``[start, stop)``.

        `rows` is float32 ``[n, columns]``, `importance` float32 ``[columns]``, or ``[0]`` for none; `out` is uint8
        ``[n, bytes of a row]``. All three are C-contiguous, all values are finite.
        """
        weights = importance.ctypes.data if importance.size else 0
        self.run(
            rows[start:].ctypes.data, KINDS["f32"], (stop - start, rows.shape[1]), weights, out[start:].ctypes.data
        )


class Decoder:
    """A compiled decoder."""

    def __init__(self, kernel: CachedKernel) -> None:
        self.kernel = kernel

    def __call__(self, blocks: np.ndarray, values: np.ndarray) -> None:
        """Decode blocks, uint8 and flat, into flat float32 `values`; both are contiguous."""
        self.kernel(blocks.ctypes.data, values.ctypes.data, values.size)


class Scaled(NamedTuple):
    """Decoded blocks in the form ``scales * codes - minima``.

    Attributes:
        codes: int8 [blocks, groups, elements].
        scales: f32 [blocks, groups]; minima: likewise, None if all are 0.
    """

    codes: np.ndarray
    scales: np.ndarray
    minima: np.ndarray | None = None

    def values(self) -> np.ndarray:
        """The elements, f32 [blocks, elements of a block]."""
        found = self.codes * self.scales[..., None]
        if self.minima is not None:
            found -= self.minima[..., None]
        return found.reshape(len(found), -1)


@dataclass(frozen=True)
class Codec:
    """Decoder and encoder of one block type.

    Attributes:
        dtype: the block type.
        decode: uint8 ``[n, dtype.block_nbytes]`` to float32 ``[n, dtype.block]``; any bytes are valid blocks.
        encoder: compiled; None for types that only exist in old files or as intermediates.
        decoder: a compiled decoder with bit-identical results, or None.
        needs_importance: whether the type is encoded only with an importance matrix.
        scaled: blocks as scaled codes; None for types that are not made of such, or not for products.
        code_bits: of these codes, 4 where they are from -8 to 7 or from 0 to 15, else 8.
        layout: where blocks hold their codes and scales (`ops/quants/layout/block_layout.py`); None for types that have
            decoders of their own.
    """

    dtype: BlockType
    decode: Callable[[np.ndarray], np.ndarray]
    encoder: Encoder | None = None
    needs_importance: bool = False
    decoder: Decoder | None = None
    scaled: Callable[[np.ndarray], Scaled] | None = None
    code_bits: int = 8
    layout: Any = None


@process_cache(kept=FILES)
def codecs() -> dict[BlockType, Codec]:
    """The codec of each block type that has one."""
    return {codec.dtype: codec for module in BLOCK_CODECS.all() for codec in module}


def codec_of(dtype: BlockType) -> Codec:
    """The codec of a block type; raises UnsupportedError if it has no codec."""
    codec = codecs().get(dtype)
    if codec is None:
        known = ", ".join(sorted(each.name for each in codecs() if each.name in DTYPES))
        raise UnsupportedError(
            "E-QUANT-TYPE", None, f"blocks of type {dtype.name} cannot be decoded", hint=f"Types that can: {known}"
        )
    return codec


def block_type(name: str) -> BlockType:
    """The block type of that name."""
    dtype = STORAGE_TYPES[name]
    assert isinstance(dtype, BlockType), f"{name} is not a block type"
    return dtype


@dataclass
class _Tally:
    """Count of the elements that this process has decoded."""

    elements: int = 0

    def compiled_pays(self, count: int) -> bool:
        """Whether decoding `count` more elements is worth loading the compiled decoder."""
        self.elements += count
        return self.elements >= COMPILED_FROM or "numba" in sys.modules


_TALLY = _Tally()


def decoded(codec: Codec, data: bytes | memoryview) -> np.ndarray:
    """Decode whole blocks to a flat float32 array; NaN and infinite scales follow IEEE arithmetic."""
    import numpy

    size, length = codec.dtype.block_nbytes, codec.dtype.block
    if len(data) % size:
        why = f"{counted(len(data), 'byte', verb='is')} not whole blocks of {codec.dtype.name}"
        raise FormatError("E-QUANT-PARTIAL", None, why, expected=f"a multiple of {size}", hint="Cut between blocks")
    blocks = numpy.frombuffer(data, dtype=numpy.uint8).reshape(-1, size)
    values = numpy.empty((len(blocks), length), dtype=numpy.float32)
    if (
        codec.decoder is not None
        and values.size >= SLICE
        and (codec.decoder.kernel.is_cached or _TALLY.compiled_pays(values.size))
    ):
        codec.decoder(blocks.reshape(-1), values.reshape(-1))
        return values.reshape(-1)
    step = max(1, SLICE // length)
    with numpy.errstate(all="ignore"):
        for first in range(0, len(blocks), step):
            values[first : first + step] = codec.decode(blocks[first : first + step])
    return values.reshape(-1)


def decoded_storage(storage: Storage, codec: Codec, shape: tuple[int, ...]) -> Derived:
    """Lazily decoded blocks: f32 bytes, of which only the requested rows are decoded."""
    size, run = codec.dtype.block_nbytes, codec.dtype.block * F32.block_nbytes
    total = nbytes(F32, shape)
    assert total is not None

    def read(start: int, stop: int) -> memoryview:
        values = decoded(codec, storage.read(start // run * size, stop // run * size))
        return values.view("u1").data if values.size else memoryview(b"")

    step = math.lcm(size, storage.step) // size * run
    return Derived(total, step, read, sequential=storage.sequential)


def encoded(codec: Codec, rows: np.ndarray, importance: np.ndarray | None = None) -> np.ndarray:
    """The blocks of float32 ``[n, columns]`` as uint8 ``[n, bytes of a row]``; `importance` is one weight for each
    column.

    Raises UnsupportedError for a type that cannot be encoded, or not without importance, and FormatError for shapes
    that do not fit and for numbers that are not finite.
    """
    import numpy

    name = codec.dtype.name
    if codec.encoder is None:
        raise UnsupportedError(
            "E-QUANT-ENCODE", None, f"type {name} can be decoded, but not encoded", hint="See candle-convert types"
        )
    if importance is None and codec.needs_importance:
        raise UnsupportedError(
            "E-QUANT-IMPORTANCE", None, f"{name} needs an importance matrix", hint="Give one, or choose a wider type"
        )
    rows = numpy.ascontiguousarray(rows, dtype=numpy.float32)
    weights = numpy.ascontiguousarray(() if importance is None else importance, dtype=numpy.float32)
    size = codec.dtype.nbytes(rows.shape[-1])
    if rows.ndim != 2 or size is None:
        why = f"an array of shape {list(rows.shape)} is not rows of whole blocks of {name}"
        raise FormatError("E-QUANT-SHAPE", None, why, expected=f"[rows, a multiple of {codec.dtype.block}]")
    if importance is not None and weights.shape != rows.shape[1:]:
        why = "importance does not fit the rows"
        raise FormatError("E-QUANT-IMPORTANCE", None, why, expected=rows.shape[1], found=list(weights.shape))
    if not (numpy.isfinite(rows).all() and numpy.isfinite(weights).all()):
        raise FormatError("E-NAN", None, "NaN and infinity cannot be quantized", hint="Clean the weights first")
    out = numpy.empty((len(rows), size), dtype=numpy.uint8)
    codec.encoder(rows, weights, out, 0, len(rows))
    return out
