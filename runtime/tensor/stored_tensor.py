"""Tensor: dtype, shape and lazy storage; only the rows asked for are read."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from ..base.errors import FormatError, UsageError
from ..base.units import counted
from .dtype import F32, BlockType, DType, dtype_named, of_numpy
from .element_packing import exact_nbytes, nbytes, pack, unpack
from .storage import Held, Storage, window

if TYPE_CHECKING:
    import numpy as np
    import torch

    from .basic_indexing import Index
    from .cast import Observer

CHUNK = 2 * 2**20
"""Bytes of a tensor that are handled at a time: small enough to stay in the cache through a cast."""


class StoredTensor:
    """An array whose values may still be in a file.

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
        assert storage.nbytes == nbytes(dtype, shape), f"{dtype} {shape} does not fit {counted(storage.nbytes, 'byte')}"

    @staticmethod
    def of(array: np.ndarray) -> StoredTensor:
        """A tensor that holds a numpy array of any layout and byte order."""
        import numpy

        dtype = of_numpy(array.dtype)
        plain = numpy.ascontiguousarray(array, dtype=dtype.as_numpy().newbyteorder("<")).reshape(array.shape)
        return StoredTensor(dtype, array.shape, Held(pack(plain, dtype)))

    @staticmethod
    def of_torch(value: torch.Tensor) -> StoredTensor:
        """A tensor that holds a copy of a torch tensor's values."""
        from .torch_interop import from_torch

        dtype, shape, data = from_torch(value)
        return StoredTensor(dtype, shape, Held(data))

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
        return f"StoredTensor({self.dtype.name}, {list(self.shape)})"

    def __getitem__(self, index: Index) -> StoredTensor:
        """A part by integers, slices of any step and ``...``, still unread; see `basic_indexing.part`."""
        from .basic_indexing import part

        found = part(self, index)
        return self if found is None else StoredTensor(self.dtype, *found)

    def __iter__(self) -> Iterator[StoredTensor]:
        """The rows of the first dimension, unread."""
        return (self.rows(number, number + 1, keep=False) for number in range(len(self)))

    def rows(self, start: int, stop: int, *, keep: bool = True) -> StoredTensor:
        """Rows `start` to `stop` of the first dimension, still unread; a single row without that dimension where `keep`
        is False."""
        row = exact_nbytes(self.dtype, self.shape[1:]) if self.shape[0] else 0
        if row is None:
            why = f"{self!r} cannot be cut between rows: its blocks cross them"
            raise UsageError("E-SLICE", None, why, hint="Use dequantize() or numpy() first")
        shape = (stop - start, *self.shape[1:]) if keep else self.shape[1:]
        return StoredTensor(self.dtype, shape, window(self.storage, start * row, (stop - start) * row))

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
            raise UsageError(
                "E-SLICE",
                None,
                f"{self!r} has {counted(self.count, 'element')}, not one",
                hint="Index it, or use tolist()",
            )
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
        """The bytes between two positions where the storage may be cut."""
        return math.lcm(self.storage.step, self.dtype.block_nbytes)

    def chunks(self, size: int = CHUNK, start: int = 0, stop: int | None = None) -> Iterator[bytes | memoryview]:
        """The bytes `start` to `stop` in order, about `size` at a time, cut at multiples of `unit`."""
        step = max(self.unit, size // self.unit * self.unit)
        end = self.nbytes if stop is None else stop
        for first in range(start, end, step):
            last = min(end, first + step)
            data = self.storage.read(first, last)
            if len(data) != last - first:
                raise FormatError(
                    "E-DATA-SHORT", None, f"storage gave {counted(len(data), 'byte')}", expected=last - first
                )
            yield data

    def raw(self) -> bytes | memoryview:
        """All bytes as they are stored: little-endian, row-major, packed."""
        return self.storage.read(0, self.nbytes)

    def numpy(self) -> np.ndarray:
        """The values as an array of the dtype's numpy type; sub-byte types come unpacked, one element a byte."""
        return unpack(self.raw(), self.dtype, self.count).reshape(self.shape)

    def torch(self) -> torch.Tensor:
        """The values as a torch tensor; needs torch, and a dtype that torch has."""
        from .torch_interop import to_torch

        return to_torch(self.dtype, self.shape, self.storage)

    def astype(self, dtype: Any) -> StoredTensor:
        """The values in another dtype, blocks dequantized; ours, NumPy's and torch's names and dtypes are taken."""
        return self.dequantize(dtype)

    def cast(self, dtype: DType | str, audit: Observer | None = None) -> StoredTensor:
        """The values rounded to another dtype when they are read, which is reported to `audit`."""
        from .cast import rounded

        wanted = dtype_named(dtype)
        return (
            self
            if wanted == self.dtype
            else StoredTensor(wanted, self.shape, rounded(self.storage, self.dtype, wanted, self.shape, audit))
        )

    def dequantize(self, dtype: DType | str = "f32") -> StoredTensor:
        """The values of blocks as plain numbers, decoded when they are read, and only those asked for; plain values as
        `cast`."""
        if self.qtype is None:
            return self.cast(dtype)
        from .block_codec import codec_of, decoded_storage

        return StoredTensor(F32, self.shape, decoded_storage(self.storage, codec_of(self.qtype), self.shape)).cast(
            dtype
        )


def equal_bytes(a: StoredTensor, b: StoredTensor, advance: Callable[[int], object] = lambda nbytes: None) -> bool:
    """Whether two tensors of one dtype and shape hold the same bytes; stops at the first difference.

    `advance` is called with the bytes of both sides once they are known to be equal.
    """
    if a.storage.key is not None and a.storage.key == b.storage.key:
        advance(2 * a.nbytes)
        return True
    step = math.lcm(a.unit, b.unit)
    step = max(step, CHUNK // step * step)
    for first in range(0, a.nbytes, step):
        last = min(a.nbytes, first + step)
        if a.storage.read(first, last) != b.storage.read(first, last):
            return False
        advance(2 * (last - first))
    return True
