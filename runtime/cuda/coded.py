"""Quantized weights on the device: buffers of codes as they are stored, each element decoded by the kernel that loads it."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Sequence
from dataclasses import field, replace
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from ..blocks import Blocks
from ..dtype import DTYPES, BlockType
from ..launch import Buffer, Room
from ..record import dataclass
from .element import stored
from .packed import PackedBuffer

if TYPE_CHECKING:
    from .operand import Writer

F32 = np.dtype(np.float32)
BYTES = np.dtype(np.uint8)
UNITS: dict[int, np.dtype[Any]] = {1: BYTES, 2: np.dtype(np.uint16), 4: np.dtype(np.int32)}


class Runs(Protocol):
    """How kernels read runs of neighbours that share a scale: numbers are ``scale * code - least``, codes signed bytes.

    Attributes:
        length: elements of a run, 16 or 32.
        unit: bytes of the words that runs are read from.
        least: whether anything is subtracted.
    """

    @property
    def length(self) -> int: ...
    @property
    def unit(self) -> int: ...
    @property
    def least(self) -> bool: ...

    def head(self, writer: Writer, name: str) -> None:
        """What the texts below call, and further parameters, for the parameter `name`."""

    def find(self, index: str) -> list[str]:
        """Lines that find the run of element `index`, a multiple of 16, and, as ``four_at``, how many fours of the run come before it."""

    def four(self, name: str, four: str) -> str:
        """Text of the codes of a four of the run that was found, packed in 32 bits."""

    def sixteen(self, name: str) -> list[str]:
        """Lines that read the fours from ``four_at`` on as ``c0`` to ``c3``."""

    def scale(self, name: str) -> str:
        """Text of the scale of the run."""

    def subtracted(self, name: str) -> str:
        """Text of what is subtracted."""


class Form(Protocol):
    """How numbers are coded.

    Attributes:
        name: for titles of kernels.
        whole: elements that cannot be cut: rows begin at multiples of them.
    """

    @property
    def name(self) -> str: ...
    @property
    def whole(self) -> int: ...

    @property
    def run(self) -> Runs | None:
        """How runs are read, None where there are none."""

    def nbytes(self, count: int) -> int:
        """Bytes of so many elements."""

    def loaded(self, writer: Writer, array: str, place: str) -> str:
        """Text of the number at a place of the parameter `array`."""


@dataclass(frozen=True, eq=False)
class Coded(Buffer):
    """An array of codes; its dtype is that of the numbers that they stand for, its shape counts elements.

    Attributes:
        unit: what kernels see the bytes as.
    """

    form: Form = field(kw_only=True)
    unit: np.dtype[Any] = field(default=BYTES, kw_only=True)

    @property
    def nbytes(self) -> int:
        """Bytes of the codes."""
        return self.form.nbytes(self.count)

    def view(self, shape: Sequence[int], start: int = 0, dtype: np.dtype[Any] | None = None) -> Coded:
        """The same codes from element `start` on, which begins a block."""
        assert start % self.form.whole == 0, "blocks are not cut"
        return Coded(self.dtype, tuple(shape), self.room, self.offset + self.form.nbytes(start), form=self.form, unit=self.unit)

    @property
    def run(self) -> Runs | None:
        """How runs that share a scale are read, None for forms that have none."""
        return self.form.run

    def seen_by_runs(self) -> Coded:
        """The same codes as the words that runs are read from."""
        assert self.run is not None
        return replace(self, unit=UNITS[self.run.unit])


@dataclass(frozen=True)
class BlockForm:
    """Blocks of a type, which hold their scales."""

    kind: BlockType

    @property
    def name(self) -> str:
        """The type's."""
        return self.kind.name

    @property
    def whole(self) -> int:
        """A block."""
        return self.kind.block

    @property
    def run(self) -> BlockRuns | None:
        """By ``ops/quants/device/runs.py``."""
        found = _runs().get(self.kind.name)
        return None if found is None else BlockRuns(self.kind, found)

    def nbytes(self, count: int) -> int:
        """Of the blocks."""
        return count // self.kind.block * self.kind.block_nbytes

    def loaded(self, writer: Writer, array: str, place: str) -> str:
        """Decoded by a function of the type, from the table that codes point to."""
        function, table = f"{array}_element", f"{array}_table"
        if table not in writer.names:
            constant = _device().table_of(self.kind.name)
            writer.head.append(f"{function} = decoder({self.kind.name!r}, {_device().digest()!r})")
            writer.parameter(table, Buffer(constant.dtype, constant.shape, Room(constant.nbytes, constant=constant)))
        length, size = self.kind.block, self.kind.block_nbytes
        return f"{function}({array}, ({place}) // {length} * {size}, ({place}) % {length}, {table})"


@dataclass(frozen=True)
class BlockRuns:
    """`Runs` of blocks by what their type says of them."""

    kind: BlockType
    rule: Any

    @property
    def length(self) -> int:
        """Elements of a run."""
        found: int = self.rule.length
        return found

    @property
    def unit(self) -> int:
        """Bytes of a word."""
        found: int = self.rule.unit
        return found

    @property
    def least(self) -> bool:
        """Whether the type has minima."""
        return self.rule.least is not None

    def head(self, writer: Writer, name: str) -> None:
        """The functions of the type."""
        writer.head += [
            f"{name}_run = run_of({self.kind.name!r}, {_device().digest()!r})", f"{name}_codes, {name}_scale = {name}_run.codes, {name}_run.scale",
            f"{name}_least, {name}_sixteen = {name}_run.least, {name}_run.sixteen",
        ]

    def find(self, index: str) -> list[str]:
        """The word where the block starts, the run's number in it."""
        return [
            f"block = ({index}) // {self.kind.block} * {self.kind.block_nbytes // self.unit}", f"within = ({index}) % {self.kind.block}",
            f"part, four_at = within // {self.length}, within % {self.length} // 4",
        ]

    def four(self, name: str, four: str) -> str:
        """By the function of the type."""
        return f"{name}_codes({name}, block, part, {four})"

    def sixteen(self, name: str) -> list[str]:
        """In one load where the type has one."""
        if self.rule.sixteen is not None:
            return [f"c0, c1, c2, c3 = {name}_sixteen({name}, block, part, four_at // 4)"]
        return [f"c{four} = {self.four(name, f'four_at + {four}')}" for four in range(4)]

    def scale(self, name: str) -> str:
        """By the function of the type."""
        return f"{name}_scale({name}, block, part)"

    def subtracted(self, name: str) -> str:
        """By the function of the type."""
        return f"{name}_least({name}, block, part)"


def coded(blocks: Blocks) -> Coded | None:
    """A constant of blocks, None for types that kernels cannot decode."""
    if blocks.dtype.name not in _device().elements():
        return None
    return Coded(F32, blocks.shape, Room(blocks.nbytes, constant=blocks.data), form=BlockForm(blocks.dtype))


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
