"""Strided operands of generated kernels: index computation from strides and index tables.

A box may be split in two groups of axes, outer ones (``k``) and reduced ones (``r``). Adjacent axes that are
contiguous in every operand are merged. The source depends on which strides are 0 or 1; other strides and all lengths
are parameters.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field

from ...base.dataclass import dataclass
from ...plan.elementwise_fusion import broadcast_strides, merged
from ...plan.kernel_api import Argument, Buffer
from ..element.block_quantized import QuantizedBuffer
from ..element.element import storage_of
from ..element.sub_byte import element


@dataclass(frozen=True)
class Lookup:
    """An operand axis indexed through a table.

    Attributes:
        table: integers.
        strides: elements of the table along each axis of the box.
        stride, length: elements of the operand from one index to the next, and how many indices there are.
        wraps: whether negative indices count from the end; otherwise an index outside of the axis stands for the
            operand's `fill`.
        flag: set to 1 where a wrapping index is outside; the nearest one is taken, so that memory is never left.
    """

    table: Buffer
    strides: tuple[int, ...]
    stride: int
    length: int
    wraps: bool = True
    flag: Buffer | None = None


@dataclass(frozen=True)
class Operand:
    """A buffer over a box.

    Attributes:
        strides: elements along each axis of the box, 0 where it repeats.
        offset: elements before the first one.
        fill: what stands for elements outside of it.
    """

    buffer: Buffer
    strides: tuple[int, ...]
    offset: int = 0
    lookups: tuple[Lookup, ...] = ()
    fill: float = 0.0


def over(buffer: Buffer, lengths: Sequence[int]) -> Operand:
    """A buffer broadcast to a box."""
    return Operand(buffer, broadcast_strides(buffer.shape, lengths))


@dataclass
class Writer:
    """Source of a kernel under construction: header, lines and parameters."""

    head: list[str] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    values: list[Argument] = field(default_factory=list)

    def parameter(self, name: str, value: Argument) -> str:
        """Add a parameter; return its name."""
        self.names.append(name)
        self.values.append(value)
        return name

    def add(self, depth: int, *lines: str) -> None:
        """Add lines at an indentation depth."""
        self.lines += ["    " * depth + line for line in lines]

    def loaded(self, buffer: Buffer, array: str, place: str) -> str:
        """Code that loads an element of a buffer; blocks are dequantized."""
        return (
            buffer.form.loaded(self, array, place)
            if isinstance(buffer, QuantizedBuffer)
            else element(buffer, array, place)
        )

    def text(self) -> str:
        """The source of the function and its header."""
        return "\n".join([*self.head, f"def compute({', '.join(self.names)}):", *self.lines, ""])


class Box:
    """Operands over a box whose first `kept` axes are outer ones; writes the index computation of each."""

    def __init__(
        self, writer: Writer, lengths: Sequence[int], operands: Sequence[Operand], kept: int | None = None
    ) -> None:
        kept = len(lengths) if kept is None else kept
        self.writer = writer
        self.operands = operands
        self.columns = [
            column
            for operand in operands
            for column in (operand.strides, *(lookup.strides for lookup in operand.lookups))
        ]
        self.groups: dict[str, tuple[list[str], list[list[int]]]] = {}
        for group, start, stop in (("k", 0, kept), ("r", kept, len(lengths))):
            found, columns = merged(lengths[start:stop], [column[start:stop] for column in self.columns])
            names = [writer.parameter(f"{group}n{axis}", length) for axis, length in enumerate(found)][: len(found)]
            self.groups[group] = (names, columns)
        self._arrays()

    def _arrays(self) -> None:
        self.arrays: list[str] = []
        self.tables: list[list[tuple[str, str]]] = []
        for place, operand in enumerate(self.operands):
            self.arrays.append(self.writer.parameter(f"x{place}", operand.buffer))
            if operand.offset:
                self.writer.parameter(f"x{place}_at", operand.offset)
            tables = []
            for number, lookup in enumerate(operand.lookups):
                name = f"x{place}_t{number}"
                self.writer.parameter(name, lookup.table)
                self.writer.parameter(f"{name}_length", lookup.length)
                self.writer.parameter(f"{name}_step", lookup.stride)
                flag = "" if lookup.flag is None else self.writer.parameter(f"{name}_flag", lookup.flag)
                tables.append((name, flag))
            self.tables.append(tables)

    def decode(self, depth: int, group: str, index: str) -> None:
        """Write the indices of an axis group from a flat index."""
        lengths, _ = self.groups[group]
        rest = index
        for axis in range(len(lengths) - 1, 0, -1):
            self.writer.add(
                depth, f"{group}{axis} = {rest} % {lengths[axis]}", f"{group}_rest = {rest} // {lengths[axis]}"
            )
            rest = f"{group}_rest"
        if lengths:
            self.writer.add(depth, f"{group}0 = {rest}")

    def _terms(self, group: str, column: int, stem: str) -> list[str]:
        lengths, columns = self.groups[group]
        terms = []
        for axis in range(len(lengths)):
            stride = columns[column][axis]
            if stride == 1:
                terms.append(f"{group}{axis}")
            elif stride:
                name = f"{stem}_{group}{axis}"
                if name not in self.writer.names:
                    self.writer.parameter(name, stride)
                terms.append(f"{group}{axis} * {name}")
        return terms

    def place(self, depth: int, group: str, operands: Sequence[int] | None = None) -> None:
        """Write the contribution of a group's indices to the offset of each operand and its tables, as ``o0_k``."""
        column = 0
        for number, operand in enumerate(self.operands):
            start = [f"x{number}_at"] if operand.offset and group == "k" else []
            if operands is None or number in operands:
                self.writer.add(
                    depth,
                    f"o{number}_{group} = {' + '.join([*start, *self._terms(group, column, f'x{number}')]) or '0'}",
                )
                for table in range(len(operand.lookups)):
                    stem = f"x{number}_t{table}"
                    self.writer.add(
                        depth, f"{stem}_{group} = {' + '.join(self._terms(group, column + 1 + table, stem)) or '0'}"
                    )
            column += 1 + len(operand.lookups)

    def find(self, depth: int, number: int, groups: str) -> str:
        """Write the offset of an operand's element to ``p0`` (and ``ok0``, whether it exists); return the offset's
        name."""
        operand = self.operands[number]
        self.writer.add(depth, f"p{number} = {' + '.join(f'o{number}_{group}' for group in groups)}")
        fills = any(not lookup.wraps for lookup in operand.lookups)
        if fills:
            self.writer.add(depth, f"ok{number} = True")
        for (name, flag), lookup in zip(self.tables[number], operand.lookups, strict=True):
            place = " + ".join(f"{name}_{group}" for group in groups)
            self.writer.add(depth, f"{name}_i = to_int64({name}[{place}])")
            if lookup.wraps:
                self.writer.add(
                    depth,
                    f"if {name}_i < 0:",
                    f"    {name}_i += {name}_length",
                    f"if {name}_i < 0 or {name}_i >= {name}_length:",
                )
                if flag:
                    self.writer.add(depth + 1, f"{flag}[0] = 1")
                self.writer.add(depth + 1, f"{name}_i = 0")
            else:
                self.writer.add(
                    depth,
                    f"if {name}_i < 0 or {name}_i >= {name}_length:",
                    f"    {name}_i = 0",
                    f"    ok{number} = False",
                )
            self.writer.add(depth, f"p{number} += {name}_i * {name}_step")
        return f"p{number}"

    def load(self, depth: int, number: int, groups: str, name: str) -> None:
        """Write the load of an operand's element into `name`."""
        operand = self.operands[number]
        place = self.find(depth, number, groups)
        self.writer.add(depth, f"{name} = {self.writer.loaded(operand.buffer, f'x{number}', place)}")
        if any(not lookup.wraps for lookup in operand.lookups):
            fill = f"x{number}_fill"
            if fill not in self.writer.names:
                self.writer.parameter(fill, float(operand.fill))
            computed = storage_of(operand.buffer.dtype).compute
            rounded = f"{fill} != 0" if computed.kind == "b" else f"to_{computed.name}({fill})"
            self.writer.add(depth, f"if not ok{number}:", f"    {name} = {rounded}")

    def store(self, depth: int, number: int, groups: str, text: str) -> None:
        """Write the rounding and store of an operand's element."""
        operand = self.operands[number]
        place = self.find(depth, number, groups)
        rounded = storage_of(operand.buffer.dtype).store.format(text)
        skips = any(not lookup.wraps for lookup in operand.lookups)
        self.writer.add(depth, f"{f'if ok{number}: ' if skips else ''}x{number}[{place}] = {rounded}")
