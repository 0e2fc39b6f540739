"""Tensors: a dtype, a shape and storage. Nothing is read until bytes are asked for, and then only those rows."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from .dtype import BlockType, DType, dtype_named, of_numpy
from .errors import FormatError, UsageError
from .storage import Held, Storage

if TYPE_CHECKING:
    import numpy as np
    import torch

    from .indexing import Index

CHUNK = 2 * 2**20
"""Bytes of a tensor that are handled at a time: small enough to stay in the cache through a cast."""


class Tensor:
    """An array whose values may still lie in a file.

    Attributes:
        dtype: element or block type.
        shape: lengths, slowest dimension first; ``()`` is a scalar. The last dimension of a block type counts elements.
        storage: the bytes: little-endian, row-major, packed.
    """

    __slots__ = ("dtype", "shape", "storage")

    def __init__(self, dtype: DType, shape: tuple[int, ...], storage: Storage) -> None:
        self.dtype = dtype
        self.shape = shape
        self.storage = storage
        assert storage.nbytes == nbytes(dtype, shape), f"{dtype} {shape} does not fit {storage.nbytes} bytes"

    @staticmethod
    def of(array: np.ndarray) -> Tensor:
        """A tensor that holds a numpy array of any layout and byte order."""
        import numpy

        dtype = of_numpy(array.dtype)
        plain = numpy.ascontiguousarray(array, dtype=dtype.as_numpy().newbyteorder("<")).reshape(array.shape)
        return Tensor(dtype, array.shape, Held(pack(plain, dtype)))

    @property
    def nbytes(self) -> int:
        """Bytes of the values as they are stored."""
        return self.storage.nbytes

    @property
    def count(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def size(self) -> int:
        """Number of elements, as NumPy calls it."""
        return self.count

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    @property
    def qtype(self) -> BlockType | None:
        """The block type of a quantized tensor, None for plain elements."""
        return self.dtype if isinstance(self.dtype, BlockType) else None

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("a scalar tensor has no length")
        return self.shape[0]

    def __repr__(self) -> str:
        return f"Tensor({self.dtype.name}, {list(self.shape)})"

    def __getitem__(self, index: Index) -> Tensor:
        """A part by integers, slices of any step and ``...``, still unread; see `indexing.part`."""
        from .indexing import part

        return part(self, index)

    def __iter__(self) -> Iterator[Tensor]:
        """The rows of the first dimension, unread."""
        return (self.rows(number, number + 1, keep=False) for number in range(len(self)))

    def rows(self, start: int, stop: int, *, keep: bool = True) -> Tensor:
        """Rows `start` to `stop` of the first dimension, still unread; a single row without that dimension where `keep` is False."""
        row = exact_nbytes(self.dtype, self.shape[1:]) if self.shape[0] else 0
        if row is None:
            raise UsageError("E-SLICE", None, f"{self!r} cannot be cut between rows: its blocks cross them", hint="Use dequantize() or numpy() first")
        from .indexing import window

        shape = (stop - start, *self.shape[1:]) if keep else self.shape[1:]
        return Tensor(self.dtype, shape, window(self, start * row, (stop - start) * row))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        """For ``np.asarray(tensor)``; blocks are dequantized to f32."""
        import numpy

        if copy is False:
            raise ValueError("the values of a tensor are read from its file, which takes a copy")
        array = self.numpy() if self.qtype is None else self.dequantize("f32").numpy()
        return array if dtype is None else array.astype(numpy.dtype(dtype), copy=False)

    def item(self) -> Any:
        """The only element as a Python number. UsageError where there is not exactly one."""
        if self.count != 1:
            raise UsageError("E-SLICE", None, f"{self!r} has {self.count:,} elements, not one", hint="Index it, or use tolist()")
        return self.__array__().reshape(-1)[0].item()

    def tolist(self) -> Any:
        """The values as nested lists of Python numbers."""
        return self.__array__().tolist()

    def __float__(self) -> float:
        return float(self.item())

    def __int__(self) -> int:
        return int(self.item())

    @property
    def unit(self) -> int:
        """The bytes between two places where the storage may be cut."""
        return math.lcm(self.storage.step, self.dtype.block_nbytes)

    def chunks(self, size: int = CHUNK, start: int = 0, stop: int | None = None) -> Iterator[bytes | memoryview]:
        """The bytes `start` to `stop` in order, about `size` at a time, cut at multiples of `unit`."""
        step = max(self.unit, size // self.unit * self.unit)
        end = self.nbytes if stop is None else stop
        for first in range(start, end, step):
            last = min(end, first + step)
            data = self.storage.read(first, last)
            if len(data) != last - first:
                raise FormatError("E-DATA-SHORT", None, f"storage gave {len(data):,} bytes", expected=last - first)
            yield data

    def raw(self) -> bytes | memoryview:
        """All bytes as they are stored: little-endian, row-major, packed."""
        return self.storage.read(0, self.nbytes)

    def numpy(self) -> np.ndarray:
        """The values as an array of the dtype's numpy type; sub-byte types come unpacked, one element a byte."""
        return unpack(self.raw(), self.dtype, self.count).reshape(self.shape)

    def torch(self) -> torch.Tensor:
        """The values as a torch tensor; needs torch, and a dtype that torch has."""
        from .interop import to_torch

        return to_torch(self)

    def astype(self, dtype: Any) -> Tensor:
        """The values in another dtype, blocks dequantized; ours, NumPy's and torch's names and dtypes are taken."""
        return self.dequantize(dtype)

    def cast(self, dtype: DType | str) -> Tensor:
        """The values rounded to another dtype when they are read."""
        from .cast import cast

        return cast(self, dtype_named(dtype))

    def dequantize(self, dtype: DType | str = "f32") -> Tensor:
        """The values of blocks as plain numbers, decoded when they are read, and only those asked for; plain values as `cast`."""
        if self.qtype is None:
            return self.cast(dtype)
        from .blocks import codec_of
        from .quant import dequantized

        return dequantized(self, codec_of(self.qtype), dtype_named(dtype))


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
