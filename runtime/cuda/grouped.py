"""Packed codes in groups, whose scales and zero points stand in arrays of their own, as onnxruntime's operators of quantized weights have them."""

# mypy: disable-error-code="misc, untyped-decorator"
from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..launch import Buffer
from ..record import dataclass
from .bits import inlined
from .coded import F32, Coded
from .element import stored

if TYPE_CHECKING:
    from .operand import Writer

SIXTEEN = 16


@dataclass(frozen=True, eq=False)
class GroupForm:
    """``(code - zero point) * scale``, codes from the lowest bits of bytes on, groups of whole bytes.

    Attributes:
        size: codes of a group; groups: in a row, the last one filled up.
        scales: a number for each group of each row.
        zeros: the same, or, in bytes, packed as the codes are, rows of whole bytes; None for the middle of the codes.
        order: for each code of a row the group whose scale and zero point it has; None for its own.
    """

    bits: int
    size: int
    groups: int
    scales: Buffer
    zeros: Buffer | None = None
    order: Buffer | None = None

    @property
    def name(self) -> str:
        """How many bits."""
        return f"{self.bits} bits in groups"

    @property
    def whole(self) -> int:
        """A group."""
        return self.size

    @property
    def run(self) -> GroupRuns | None:
        """Where sixteen codes of a group lie in whole words."""
        return GroupRuns(self) if self.bits in FOURS and self.size % SIXTEEN == 0 and self.order is None else None

    def nbytes(self, count: int) -> int:
        """Of the codes."""
        return count // self.size * self.group_nbytes

    @property
    def group_nbytes(self) -> int:
        """Bytes of a group."""
        return -(-self.size * self.bits // 8)

    def parameters(self, writer: Writer, array: str) -> list[str]:
        """What kernels get beside the codes, as parameters; their names."""
        names = [f"{array}_groups", f"{array}_scales"]
        if names[0] not in writer.names:
            writer.parameter(names[0], self.groups)
            writer.parameter(names[1], self.scales)
        for name, buffer in (("zeros", self.zeros), ("order", self.order)):
            if buffer is not None:
                names.append(f"{array}_{name}")
                if names[-1] not in writer.names:
                    writer.parameter(names[-1], buffer)
        return names

    def scale_of(self, scales: str, group: str) -> str:
        """Text of a group's scale."""
        return f"np.float32({stored(self.scales.dtype).load.format(f'{scales}[{group}]')})"

    def zero_of(self, zeros: str, groups: str, group: str) -> str:
        """Text of a group's zero point."""
        if self.zeros is None:
            return f"np.float32({1 << (self.bits - 1)})"
        found = stored(self.zeros.dtype).load.format(f"{zeros}[{group}]")
        if self.zeros.dtype == np.uint8:
            found = f"field({zeros}, {group} // {groups} * (({groups} * {self.bits} + 7) // 8), {group} % {groups}, {self.bits})"
        return f"np.float32({found})"

    def loaded(self, writer: Writer, array: str, place: str) -> str:
        """Decoded by a function of this form."""
        function = f"{array}_element"
        names = self.parameters(writer, array)
        first = f"def {function}({array}, place, {', '.join(names)}):"
        if first not in writer.head:
            groups, scales, *_ = names
            writer.head += [
                f"from {__package__}.bits import inlined", "@inlined", first,
                f"    group, within = place // {self.size}, place % {self.size}",
                f"    code = np.float32(field({array}, group * {self.group_nbytes}, within, {self.bits}))",
            ]
            if self.order is not None:
                writer.head.append(f"    group = group - group % {groups} + np.int64({array}_order[place % ({groups} * {self.size})])")
            writer.head.append(f"    return (code - {self.zero_of(f'{array}_zeros', groups, 'group')}) * {self.scale_of(scales, 'group')}")
        return f"{function}({array}, {place}, {', '.join(names)})"


@dataclass(frozen=True, eq=False)
class GroupRuns:
    """`Runs` of packed codes: of groups of 16, or of half a group of 32 and more at a time."""

    form: GroupForm

    @property
    def length(self) -> int:
        """A group of 16, or 32 of a larger one."""
        return 32 if self.form.size % 32 == 0 else SIXTEEN

    @property
    def unit(self) -> int:
        """Words of 32 bits."""
        return 4

    @property
    def least(self) -> bool:
        """Codes count from the middle where there are no zero points."""
        return self.form.zeros is not None

    def head(self, writer: Writer, name: str) -> None:
        """Codes by how many bits they have."""
        self.form.parameters(writer, name)
        writer.head.append(f"from {__package__}.grouped import {FOURS[self.form.bits].__name__} as {name}_codes")
        writer.head.append(f"from {__package__}.bits import less, opposed")

    def find(self, index: str) -> list[str]:
        """The group, and how many fours come before the run."""
        return [
            f"group, four_at = ({index}) // {self.form.size}, ({index}) % {self.length} // 4", f"before = ({index}) // 4 - four_at",
        ]

    def four(self, name: str, four: str) -> str:
        """From the middle on where there are no zero points, or where bytes are needed to their last bit."""
        found = f"{name}_codes({name}, before + {four})"
        if self.form.bits == 8:
            return f"opposed({found})"
        return f"np.int32({found})" if self.least else f"less({found}, {1 << (self.form.bits - 1)})"

    def sixteen(self, name: str) -> list[str]:
        """One by one."""
        return [f"c{four} = {self.four(name, f'four_at + {four}')}" for four in range(4)]

    def scale(self, name: str) -> str:
        """Of the group."""
        return self.form.scale_of(f"{name}_scales", "group")

    def subtracted(self, name: str) -> str:
        """The zero point, from where codes count, times the scale."""
        zero = self.form.zero_of(f"{name}_zeros", f"{name}_groups", "group")
        return f"({zero} - np.float32({128 if self.form.bits == 8 else 0})) * {self.scale(name)}"


@inlined
def four_of_8(words: Any, four: int) -> Any:
    """Four codes of 8 bits."""
    return np.int64(words[four]) & np.int64(0xFFFFFFFF)


@inlined
def four_of_4(words: Any, four: int) -> Any:
    """Four codes of 4 bits, each in a byte."""
    half = (np.int64(words[four >> 1]) >> np.int64(16 * (four & 1))) & np.int64(0xFFFF)
    pairs = (half | (half << np.int64(8))) & np.int64(0x00FF00FF)
    return (pairs | (pairs << np.int64(4))) & np.int64(0x0F0F0F0F)


@inlined
def four_of_2(words: Any, four: int) -> Any:
    """Four codes of 2 bits, each in a byte."""
    byte = (np.int64(words[four >> 2]) >> np.int64(8 * (four & 3))) & np.int64(0xFF)
    pairs = (byte | (byte << np.int64(12))) & np.int64(0x000F000F)
    return (pairs | (pairs << np.int64(6))) & np.int64(0x03030303)


FOURS = {2: four_of_2, 4: four_of_4, 8: four_of_8}


def grouped(codes: Buffer, rows: int, form: GroupForm) -> Coded:
    """Codes as f32 [rows, groups x size]."""
    return Coded(F32, (rows, form.groups * form.size), codes.room, codes.offset, form=form)
