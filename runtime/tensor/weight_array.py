"""Weights during a run: plain arrays, quantized blocks decoded on demand, packed elements, unread file data."""

from __future__ import annotations

import math
import mmap
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..base.dataclass import dataclass
from ..base.huge_pages import MIN_POOLED_NBYTES, HugePages
from .block_codec import codec_of, decoded
from .dtype import BlockType, DType
from .element_packing import unpack
from .storage import Held, Region
from .stored_tensor import StoredTensor


@dataclass(frozen=True, eq=False)
class StoredArray:
    """An array in its stored form.

    Attributes:
        shape: lengths in elements.
        data: uint8.
    """

    dtype: DType
    shape: tuple[int, ...]
    data: np.ndarray

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes as they are stored."""
        return int(self.data.nbytes)


@dataclass(frozen=True, eq=False)
class Blocks(StoredArray):
    """A quantized array: blocks lie along the last dimension, `data` is ``[*shape[:-1], bytes of a row]``."""

    dtype: BlockType

    def __getitem__(self, rows: slice) -> Blocks:
        """Entries of the first dimension."""
        part = self.data[rows]
        return Blocks(self.dtype, (len(part), *self.shape[1:]), part)

    def take(self, indices: np.ndarray) -> np.ndarray:
        """Entries of the first dimension by index, decoded: float32 ``[*indices.shape, *shape[1:]]``."""
        return _dequantized(self.dtype, self.data[indices], (*indices.shape, *self.shape[1:]))

    def numpy(self) -> np.ndarray:
        """All values, float32."""
        return _dequantized(self.dtype, self.data, self.shape)


@dataclass(frozen=True, eq=False)
class Packed(StoredArray):
    """Elements narrower than 8 bits in row order without padding; the first element is in the lowest bits."""

    def numpy(self) -> np.ndarray:
        """The elements unpacked, one per byte."""
        return unpack(self.data.data, self.dtype, self.size).reshape(self.shape)


def packed(tensor: StoredTensor) -> Packed | None:
    """A tensor of 1, 2 or 4-bit elements as stored; None for other dtypes and blocks."""
    if tensor.dtype.bits not in (1, 2, 4) or tensor.qtype is not None:
        return None
    return Packed(tensor.dtype, tensor.shape, _bytes(tensor, None))


_LOCK = threading.Lock()


class LazyWeight:
    """A plain weight that is read on demand. Its values are cached only for kernels that use them unpacked."""

    def __init__(self, tensor: StoredTensor, reserve: HugePages) -> None:
        self.dtype = tensor.dtype.as_numpy()
        self.shape = tensor.shape
        self.ndim = len(tensor.shape)
        self.size = tensor.count
        self.nbytes = tensor.nbytes
        self._tensor = tensor
        self._reserve = reserve
        self._array: np.ndarray | None = None

    def numpy(self) -> np.ndarray:
        """The values, cached from now on."""
        if self._array is None:
            array = np.ascontiguousarray(load_weight(self._tensor, self._reserve))
            with _LOCK:
                self._array = array if self._array is None else self._array
        return self._array

    def without_caching(self) -> np.ndarray:
        """The values, read without caching them."""
        return load_weight(self._tensor) if self._array is None else self._array  # type: ignore[return-value]

    def reshape(self, *shape: int) -> np.ndarray:
        """The values in another shape."""
        return self.numpy().reshape(*shape)


def weight(tensor: StoredTensor, reserve: HugePages) -> np.ndarray | Blocks | LazyWeight:
    """A weight for a program: like `load_weight`, but large plain weights are read on demand."""
    storage = tensor.storage
    plain = tensor.qtype is None and tensor.dtype.bits >= 8 and tensor.nbytes >= MIN_POOLED_NBYTES
    read_again = not storage.sequential and not isinstance(storage, Held)
    return LazyWeight(tensor, reserve) if plain and read_again else load_weight(tensor, reserve)


def _dequantized(dtype: BlockType, data: np.ndarray, shape: Sequence[int]) -> np.ndarray:
    return decoded(codec_of(dtype), np.ascontiguousarray(data).reshape(-1).data).reshape(shape)


def load_weight(tensor: StoredTensor, reserve: HugePages | None = None) -> np.ndarray | Blocks:
    """One copy of a weight in its stored dtype, allocated from `reserve` if given."""
    at_once = isinstance(tensor.storage, Held) or tensor.storage.sequential or tensor.nbytes < MIN_POOLED_NBYTES
    if tensor.qtype is None and at_once:
        return tensor.numpy()
    data = _bytes(tensor, reserve)
    if tensor.qtype is None:
        return unpack(data.data, tensor.dtype, tensor.count).reshape(tensor.shape)
    row = tensor.qtype.nbytes(tensor.shape[-1])
    assert row is not None, "rows of a tensor fill whole blocks"
    return Blocks(tensor.qtype, tensor.shape, data.reshape(*tensor.shape[:-1], row))


def _bytes(tensor: StoredTensor, reserve: HugePages | None) -> np.ndarray:
    storage = tensor.storage
    if isinstance(storage, Held):
        return np.frombuffer(storage.data, np.uint8)
    data = np.empty(storage.nbytes, np.uint8) if reserve is None else reserve.take(storage.nbytes)
    if isinstance(storage, Region):
        storage.source.read_into(storage.offset, data.data)
        return data
    at = 0
    for part in tensor.chunks():
        data[at : at + len(part)] = np.frombuffer(part, np.uint8)
        at += len(part)
    return data


def loaded(value: Any) -> Any:
    """The array of a lazy or packed weight; blocks and other values unchanged."""
    return value.numpy() if isinstance(value, LazyWeight | Packed) else value


def as_array(value: Any) -> Any:
    """The array of blocks (dequantized to f32), packed or lazy weights; other values unchanged."""
    return value.numpy() if isinstance(value, Blocks | Packed | LazyWeight) else value


def release_pages(array: np.ndarray) -> None:
    """Give back the memory of an array that lies in a mapped file; the system fills it again when it is looked at.
    Other arrays are left alone."""
    base: Any = array
    while isinstance(base, np.ndarray):
        base = base.base
    whole = base.obj if isinstance(base, memoryview) else base
    if not isinstance(whole, mmap.mmap) or not array.flags.c_contiguous or not hasattr(mmap, "MADV_DONTNEED"):
        return
    begin = array.ctypes.data - np.frombuffer(whole, np.uint8).ctypes.data
    first, last = -(-begin // mmap.PAGESIZE), (begin + array.nbytes) // mmap.PAGESIZE
    if first < last:
        whole.madvise(mmap.MADV_DONTNEED, first * mmap.PAGESIZE, (last - first) * mmap.PAGESIZE)
