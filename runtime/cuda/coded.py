"""Quantized weights on the device: buffers whose blocks stay as they are stored, each element decoded by the kernel that loads it."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Sequence
from dataclasses import field, replace
from typing import Any

import numpy as np

from ..blocks import Blocks
from ..dtype import DTYPES, BlockType
from ..launch import Buffer, Room
from ..record import dataclass
from .element import stored
from .packed import PackedBuffer

F32 = np.dtype(np.float32)
BYTES = np.dtype(np.uint8)
UNITS: dict[int, np.dtype[Any]] = {1: BYTES, 2: np.dtype(np.uint16), 4: np.dtype(np.int32)}


@dataclass(frozen=True, eq=False)
class Coded(Buffer):
    """An array of blocks; its dtype is that of the numbers that they stand for, its shape counts elements.

    Attributes:
        kind: the block type.
        unit: what kernels see the bytes as.
    """

    kind: BlockType = field(kw_only=True)
    unit: np.dtype[Any] = field(default=BYTES, kw_only=True)

    @property
    def nbytes(self) -> int:
        """Bytes of the blocks."""
        return self.count // self.kind.block * self.kind.block_nbytes

    def view(self, shape: Sequence[int], start: int = 0, dtype: np.dtype[Any] | None = None) -> Coded:
        """The same blocks from element `start` on, which begins one."""
        assert start % self.kind.block == 0, "blocks are not cut"
        at = self.offset + start // self.kind.block * self.kind.block_nbytes
        return Coded(self.dtype, tuple(shape), self.room, at, kind=self.kind, unit=self.unit)

    def element(self, name: str, array: str, place: str, table: str) -> str:
        """Text of the number at a place, decoded by the function `name`."""
        length, size = self.kind.block, self.kind.block_nbytes
        return f"{name}({array}, ({place}) // {length} * {size}, ({place}) % {length}, {table})"

    @property
    def head(self) -> str:
        """Text of the function that decodes elements."""
        return f"decoder({self.kind.name!r}, {_device().digest()!r})"

    @property
    def run(self) -> Any:
        """How runs that share a scale are read (`ops/quants/device/runs.py`), None for types that have none."""
        return _runs().get(self.kind.name)

    @property
    def run_head(self) -> str:
        """Text of what reads runs."""
        return f"run_of({self.kind.name!r}, {_device().digest()!r})"

    def seen_by_runs(self) -> Coded:
        """The same blocks as the words that runs are read from."""
        return replace(self, unit=UNITS[self.run.unit])

    @property
    def table(self) -> Buffer:
        """The constant that codes point to."""
        array = _device().table_of(self.kind.name)
        return Buffer(array.dtype, array.shape, Room(array.nbytes, constant=array))


def coded(blocks: Blocks) -> Coded | None:
    """A constant of blocks, None for types that kernels cannot decode."""
    if blocks.dtype.name not in _device().elements():
        return None
    return Coded(F32, blocks.shape, Room(blocks.nbytes, constant=blocks.data), kind=blocks.dtype)


def decoder(name: str, digest: str) -> Callable[..., Any]:
    """The device function for elements of a block type; generated modules name the sources that it comes from."""
    assert DTYPES[name].kind == "block"
    assert digest == _device().digest()
    function: Callable[..., Any] = _device().elements()[name].function
    return function


def run_of(name: str, digest: str) -> Any:
    """What reads runs of a block type; generated modules name the sources that it comes from."""
    assert digest == _device().digest()
    return _runs()[name]


def seen_as(buffer: Buffer) -> tuple[np.dtype[Any], int]:
    """What kernels see a buffer as: the dtype of a flat array and its length."""
    if isinstance(buffer, Coded):
        return buffer.unit, buffer.nbytes // buffer.unit.itemsize
    if isinstance(buffer, PackedBuffer):
        return BYTES, buffer.nbytes
    return stored(buffer.dtype).storage, buffer.count


@functools.cache
def _device() -> Any:
    return importlib.import_module("...ops.quants.device", __package__)


@functools.cache
def _runs() -> dict[str, Any]:
    found: dict[str, Any] = importlib.import_module("...ops.quants.device.runs", __package__).RUNS
    return found
