"""Weights as a run holds them: arrays, for quantized types the blocks as they are stored, decoded a few rows at a time, and what is not read yet."""

from __future__ import annotations

import importlib
import math
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .dtype import BlockType, DType
from .quant import Codec, decoded
from .record import dataclass
from .reserve import LEAST, Reserve
from .storage import Held, Region
from .tensor import Tensor, unpack

if TYPE_CHECKING:
    from .op import Op


@dataclass(frozen=True, eq=False)
class StoredArray:
    """An array as files have it.

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
        return _numbers(self.dtype, self.data[indices], (*indices.shape, *self.shape[1:]))

    def numpy(self) -> np.ndarray:
        """All values, float32."""
        return _numbers(self.dtype, self.data, self.shape)


@dataclass(frozen=True, eq=False)
class Packed(StoredArray):
    """An array whose elements have fewer than 8 bits: the first one in the lowest bits of a byte, rows one behind another."""

    def numpy(self) -> np.ndarray:
        """The elements, each in a byte of its own."""
        return unpack(self.data.data, self.dtype, self.size).reshape(self.shape)


def packed(tensor: Tensor) -> Packed | None:
    """A tensor of elements of fewer than 8 bits as it is stored, None for others and where elements cross bytes."""
    if tensor.dtype.bits not in (1, 2, 4) or tensor.qtype is not None:
        return None
    return Packed(tensor.dtype, tensor.shape, _bytes(tensor, None))


_reading = threading.Lock()


class Unread:
    """A plain weight of a file, or one that is computed: its values are only held where kernels take them as they are, not where they take another
    layout of them.
    """

    def __init__(self, tensor: Tensor, reserve: Reserve) -> None:
        self.dtype = tensor.dtype.as_numpy()
        self.shape = tensor.shape
        self.ndim = len(tensor.shape)
        self.size = tensor.count
        self.nbytes = tensor.nbytes
        self._tensor = tensor
        self._reserve = reserve
        self._array: np.ndarray | None = None

    def numpy(self) -> np.ndarray:
        """The values, which are held from now on."""
        if self._array is None:
            array = np.ascontiguousarray(held(self._tensor, self._reserve))
            with _reading:
                self._array = array if self._array is None else self._array
        return self._array

    def briefly(self) -> np.ndarray:
        """The values, which are not held for it."""
        return held(self._tensor) if self._array is None else self._array  # type: ignore[return-value]

    def reshape(self, *shape: int) -> np.ndarray:
        """The values in another shape."""
        return self.numpy().reshape(*shape)


def weight(tensor: Tensor, reserve: Reserve) -> np.ndarray | Blocks | Unread:
    """What a program knows of a weight: as `held`, but large plain ones are not read yet."""
    storage = tensor.storage
    plain = tensor.qtype is None and tensor.dtype.bits >= 8 and tensor.nbytes >= LEAST and storage.step == 1
    return Unread(tensor, reserve) if plain and not isinstance(storage, Held) else held(tensor, reserve)


def codec_of(dtype: BlockType) -> Codec:
    """What decodes blocks of a type; UnsupportedError where nothing does."""
    found: Codec = importlib.import_module("..ops.quants", __package__).codec_of(dtype)
    return found


def _numbers(dtype: BlockType, data: np.ndarray, shape: Sequence[int]) -> np.ndarray:
    return decoded(codec_of(dtype), np.ascontiguousarray(data).reshape(-1).data).reshape(shape)


def held(tensor: Tensor, reserve: Reserve | None = None) -> np.ndarray | Blocks:
    """What a run holds of a weight: one copy of its bytes, from `reserve` where that is given, in the dtype that they are stored in."""
    at_once = isinstance(tensor.storage, Held) or tensor.storage.sequential or tensor.nbytes < LEAST
    if tensor.qtype is None and at_once:
        return tensor.numpy()
    data = _bytes(tensor, reserve)
    if tensor.qtype is None:
        return unpack(data.data, tensor.dtype, tensor.count).reshape(tensor.shape)
    row = tensor.qtype.nbytes(tensor.shape[-1])
    assert row is not None, "rows of a tensor fill whole blocks"
    return Blocks(tensor.qtype, tensor.shape, data.reshape(*tensor.shape[:-1], row))


def _bytes(tensor: Tensor, reserve: Reserve | None) -> np.ndarray:
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


def stored(value: Any) -> Any:
    """What is not read yet, read, and what is packed, unpacked; blocks and anything else as they are."""
    return value.numpy() if isinstance(value, Unread | Packed) else value


def taken(op: Op) -> Callable[[Any], Any]:
    """How the reference of an operator takes its inputs: as they are stored, or as numbers."""
    return stored if op.stored else numbers


def numbers(value: Any) -> Any:
    """The values of blocks, decoded, of what is packed and of what is not read yet; anything else as it is."""
    return value.numpy() if isinstance(value, Blocks | Packed | Unread) else value
