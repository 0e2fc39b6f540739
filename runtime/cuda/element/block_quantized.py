"""Block-quantized buffers on the device: blocks as stored, dequantized by the kernel that loads them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from typing import Any, NamedTuple, Protocol

import numpy as np

from ...base.dataclass import dataclass
from ...base.process_cache import process_cache
from ...plan.kernel_api import Allocation, Buffer
from ...plugin.discovery import DEVICE_DECODERS
from ...tensor.dtype import STORAGE_TYPES, BlockType
from ...tensor.weight_array import Blocks
from .element import storage_of
from .kernel_text import KernelText
from .sub_byte import PackedBuffer

F32 = np.dtype(np.float32)
BYTES = np.dtype(np.uint8)
UNITS: dict[int, np.dtype[Any]] = {1: BYTES, 2: np.dtype(np.uint16), 4: np.dtype(np.int32)}


class Runs(Protocol):
    """Access to runs of elements that share a scale: elements are ``scale * code - minimum``, codes are signed bytes.

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

    def head(self, writer: KernelText, name: str) -> None:
        """Definitions and parameters that the code below uses, for the parameter `name`."""

    def find(self, index: str) -> list[str]:
        """Code that finds the run of element `index`, a multiple of 16, and sets ``four_at``, the number of dot4
        groups before it in the run."""

    def four(self, name: str, four: str) -> str:
        """Code of one dot4 group of the run, packed in 32 bits."""

    def sixteen(self, name: str) -> list[str]:
        """Code that loads the dot4 groups from ``four_at`` on as ``c0`` to ``c3``."""

    def scale(self, name: str) -> str:
        """Code of the scale of the run."""

    def subtracted(self, name: str) -> str:
        """Code of the minimum of the run."""


class Form(Protocol):
    """A quantized encoding.

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
        """Access to runs, None if elements do not form runs."""

    def nbytes(self, count: int) -> int:
        """Bytes of `count` elements."""

    def loaded(self, writer: KernelText, array: str, place: str) -> str:
        """Code that dequantizes an element of the parameter `array`."""


@dataclass(frozen=True, eq=False)
class QuantizedBuffer(Buffer):
    """A quantized buffer; dtype and shape are those of the dequantized elements.

    Attributes:
        unit: what kernels see the bytes as.
    """

    form: Form = field(kw_only=True)
    unit: np.dtype[Any] = field(default=BYTES, kw_only=True)

    @property
    def nbytes(self) -> int:
        """Bytes of the codes."""
        return self.form.nbytes(self.count)

    def view(self, shape: Sequence[int], start: int = 0, dtype: np.dtype[Any] | None = None) -> QuantizedBuffer:
        """The same codes from element `start` on, which begins a block."""
        assert start % self.form.whole == 0, "blocks are not cut"
        return QuantizedBuffer(
            self.dtype,
            tuple(shape),
            self.allocation,
            self.offset + self.form.nbytes(start),
            form=self.form,
            unit=self.unit,
        )

    @property
    def run(self) -> Runs | None:
        """Access to runs that share a scale, None for encodings without runs."""
        return self.form.run

    def seen_by_runs(self) -> QuantizedBuffer:
        """The same codes as the integers that runs are read from."""
        assert self.run is not None
        return replace(self, unit=UNITS[self.run.unit])


@dataclass(frozen=True)
class BlockForm:
    """Blocks of a ggml type, which contain their scales."""

    kind: BlockType

    @property
    def name(self) -> str:
        """The block type's name."""
        return self.kind.name

    @property
    def whole(self) -> int:
        """Elements of a block."""
        return self.kind.block

    @property
    def run(self) -> BlockRuns | None:
        """Runs of the block type, from ``ops/quants/cuda/dot4_runs.py``."""
        found = _device().runs.get(self.kind.name)
        return None if found is None else BlockRuns(self.kind, found)

    def nbytes(self, count: int) -> int:
        """Bytes of the blocks."""
        return count // self.kind.block * self.kind.block_nbytes

    def loaded(self, writer: KernelText, array: str, place: str) -> str:
        """Code that calls the block type's decoder, with the lookup table of its codes."""
        function, table = f"{array}_element", f"{array}_table"
        if table not in writer.names:
            constant = _device().table_of(self.kind.name)
            writer.head.append(f"{function} = decoder({self.kind.name!r}, {_device().digest()!r})")
            writer.parameter(
                table, Buffer(constant.dtype, constant.shape, Allocation(constant.nbytes, constant=constant))
            )
        length, size = self.kind.block, self.kind.block_nbytes
        return f"{function}({array}, ({place}) // {length} * {size}, ({place}) % {length}, {table})"


@dataclass(frozen=True)
class BlockRuns:
    """`Runs` of a block type."""

    kind: BlockType
    rule: Any

    @property
    def length(self) -> int:
        """Elements of a run."""
        found: int = self.rule.length
        return found

    @property
    def unit(self) -> int:
        """Bytes of an integer."""
        found: int = self.rule.unit
        return found

    @property
    def least(self) -> bool:
        """Whether the type has minima."""
        return self.rule.least is not None

    def head(self, writer: KernelText, name: str) -> None:
        """Definitions of the block type's functions."""
        writer.head += [
            f"{name}_run = run_of({self.kind.name!r}, {_device().digest()!r})",
            f"{name}_codes, {name}_scale = {name}_run.codes, {name}_run.scale",
            f"{name}_least, {name}_sixteen = {name}_run.least, {name}_run.sixteen",
        ]

    def find(self, index: str) -> list[str]:
        """The integer where the block starts, and the run's index in it."""
        return [
            f"block = ({index}) // {self.kind.block} * {self.kind.block_nbytes // self.unit}",
            f"within = ({index}) % {self.kind.block}",
            f"part, four_at = within // {self.length}, within % {self.length} // 4",
        ]

    def four(self, name: str, four: str) -> str:
        """Calls the block type's function."""
        return f"{name}_codes({name}, block, part, {four})"

    def sixteen(self, name: str) -> list[str]:
        """A single load, if the block type has one."""
        if self.rule.sixteen is not None:
            return [f"c0, c1, c2, c3 = {name}_sixteen({name}, block, part, four_at // 4)"]
        return [f"c{four} = {self.four(name, f'four_at + {four}')}" for four in range(4)]

    def scale(self, name: str) -> str:
        """Calls the block type's function."""
        return f"{name}_scale({name}, block, part)"

    def subtracted(self, name: str) -> str:
        """Calls the block type's function."""
        return f"{name}_least({name}, block, part)"


def quantized_buffer(blocks: Blocks) -> QuantizedBuffer | None:
    """A constant of blocks as a buffer, None for types without a device decoder."""
    if blocks.dtype.name not in _device().elements():
        return None
    return QuantizedBuffer(
        F32, blocks.shape, Allocation(blocks.nbytes, constant=blocks.data), form=BlockForm(blocks.dtype)
    )


def decoder(name: str, digest: str) -> Callable[..., Any]:
    """The device function that decodes elements of a block type; generated modules name its source digest."""
    assert STORAGE_TYPES[name].kind == "block"
    assert digest == _device().digest()
    function: Callable[..., Any] = _device().elements()[name].function
    return function


def run_of(name: str, digest: str) -> Any:
    """Access to runs of a block type; generated modules name its source digest."""
    assert digest == _device().digest()
    return _device().runs[name]


def kernel_view(buffer: Buffer) -> tuple[np.dtype[Any], int]:
    """The dtype and length of the flat array that kernels see for a buffer."""
    if isinstance(buffer, QuantizedBuffer):
        return buffer.unit, buffer.nbytes // buffer.unit.itemsize
    if isinstance(buffer, PackedBuffer):
        return BYTES, buffer.nbytes
    return storage_of(buffer.dtype).storage, buffer.count


class Decoders(NamedTuple):
    """Device decoders by block type; the module that defines them declares DEVICE_DECODERS.

    Attributes:
        elements: functions of single elements.
        table_of: the table of a type that codes point to, int8, the same array for all who ask.
        digest: of the sources of all that.
        runs: what reads runs of neighbours that share a scale, for types that have them.
    """

    elements: Callable[[], Mapping[str, Any]]
    table_of: Callable[[str], np.ndarray]
    digest: Callable[[], str]
    runs: Mapping[str, Any]


@process_cache
def _device() -> Decoders:
    found: Decoders = DEVICE_DECODERS.only()
    return found
