"""Group-quantized weights: packed codes with separate scale and zero-point arrays, as in onnxruntime's operators."""

# mypy: disable-error-code="misc, untyped-decorator"
from __future__ import annotations

from typing import Any

import numpy as np

from ...base.dataclass import dataclass
from ...plan.kernel_api import Buffer
from .bits import inlined
from .block_quantized import F32, QuantizedBuffer
from .element import storage_of
from .kernel_text import PACKAGE, KernelText

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
        """The name, from the number of bits."""
        return f"{self.bits} bits in groups"

    @property
    def whole(self) -> int:
        """Elements of a group."""
        return self.size

    @property
    def run(self) -> GroupRuns | None:
        """Access to runs, if sixteen codes of a group fill integers."""
        return (
            GroupRuns(self) if self.bits in DOT4_BY_BITS and self.size % SIXTEEN == 0 and self.order is None else None
        )

    def nbytes(self, count: int) -> int:
        """Bytes of the codes."""
        return count // self.size * self.group_nbytes

    @property
    def group_nbytes(self) -> int:
        """Bytes of a group."""
        return -(-self.size * self.bits // 8)

    def parameters(self, writer: KernelText, array: str) -> list[str]:
        """Add the kernel parameters besides the codes; return their names."""
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
        """Code of a group's scale."""
        return f"np.float32({storage_of(self.scales.dtype).load.format(f'{scales}[{group}]')})"

    def zero_of(self, zeros: str, groups: str, group: str) -> str:
        """Code of a group's zero point."""
        if self.zeros is None:
            return f"np.float32({1 << (self.bits - 1)})"
        found = storage_of(self.zeros.dtype).load.format(f"{zeros}[{group}]")
        if self.zeros.dtype == np.uint8:
            found = (
                f"field({zeros}, {group} // {groups} * (({groups} * {self.bits} + 7) // 8), {group} % {groups}, "
                f"{self.bits})"
            )
        return f"np.float32({found})"

    def loaded(self, writer: KernelText, array: str, place: str) -> str:
        """Code that calls the decoder of this encoding."""
        function = f"{array}_element"
        names = self.parameters(writer, array)
        first = f"def {function}({array}, place, {', '.join(names)}):"
        if first not in writer.head:
            groups, scales, *_ = names
            writer.head += [
                f"from {PACKAGE}.element.bits import inlined",
                "@inlined",
                first,
                f"    group, within = place // {self.size}, place % {self.size}",
                f"    code = np.float32(field({array}, group * {self.group_nbytes}, within, {self.bits}))",
            ]
            if self.order is not None:
                writer.head.append(
                    f"    group = group - group % {groups} + np.int64({array}_order[place % ({groups} * {self.size})])"
                )
            writer.head.append(
                f"    return (code - {self.zero_of(f'{array}_zeros', groups, 'group')}) * "
                f"{self.scale_of(scales, 'group')}"
            )
        return f"{function}({array}, {place}, {', '.join(names)})"


@dataclass(frozen=True, eq=False)
class GroupRuns:
    """`Runs` of packed codes: groups of 16, or 32 elements of a larger group at a time."""

    form: GroupForm

    @property
    def length(self) -> int:
        """16 for groups of 16, else 32."""
        return 32 if self.form.size % 32 == 0 else SIXTEEN

    @property
    def unit(self) -> int:
        """32-bit integers."""
        return 4

    @property
    def least(self) -> bool:
        """Whether zero points are stored; without them, codes are relative to the middle code."""
        return self.form.zeros is not None

    def head(self, writer: KernelText, name: str) -> None:
        """The decoder for this number of bits."""
        self.form.parameters(writer, name)
        writer.head.append(
            f"from {PACKAGE}.element.group_quantized import {DOT4_BY_BITS[self.form.bits].__name__} as {name}_codes"
        )
        writer.head.append(f"from {PACKAGE}.element.bits import less, opposed")

    def find(self, index: str) -> list[str]:
        """The group, and the number of dot4 groups before the run."""
        return [
            f"group, four_at = ({index}) // {self.form.size}, ({index}) % {self.length} // 4",
            f"before = ({index}) // 4 - four_at",
        ]

    def four(self, name: str, four: str) -> str:
        """Codes relative to the middle code without zero points, or if all 8 bits are needed."""
        found = f"{name}_codes({name}, before + {four})"
        if self.form.bits == 8:
            return f"opposed({found})"
        return f"np.int32({found})" if self.least else f"less({found}, {1 << (self.form.bits - 1)})"

    def sixteen(self, name: str) -> list[str]:
        """One dot4 group at a time."""
        return [f"c{four} = {self.four(name, f'four_at + {four}')}" for four in range(4)]

    def scale(self, name: str) -> str:
        """The scale of the group."""
        return self.form.scale_of(f"{name}_scales", "group")

    def subtracted(self, name: str) -> str:
        """The zero point, relative to the origin of the codes, times the scale."""
        zero = self.form.zero_of(f"{name}_zeros", f"{name}_groups", "group")
        return f"({zero} - np.float32({128 if self.form.bits == 8 else 0})) * {self.scale(name)}"


@inlined
def dot4_of_8(words: Any, four: int) -> Any:
    """Four 8-bit codes."""
    return np.int64(words[four]) & np.int64(0xFFFFFFFF)


@inlined
def dot4_of_4(words: Any, four: int) -> Any:
    """Four 4-bit codes, each in a byte."""
    half = (np.int64(words[four >> 1]) >> np.int64(16 * (four & 1))) & np.int64(0xFFFF)
    pairs = (half | (half << np.int64(8))) & np.int64(0x00FF00FF)
    return (pairs | (pairs << np.int64(4))) & np.int64(0x0F0F0F0F)


@inlined
def dot4_of_2(words: Any, four: int) -> Any:
    """Four 2-bit codes, each in a byte."""
    byte = (np.int64(words[four >> 2]) >> np.int64(8 * (four & 3))) & np.int64(0xFF)
    pairs = (byte | (byte << np.int64(12))) & np.int64(0x000F000F)
    return (pairs | (pairs << np.int64(6))) & np.int64(0x03030303)


DOT4_BY_BITS = {2: dot4_of_2, 4: dot4_of_4, 8: dot4_of_8}


def grouped(codes: Buffer, rows: int, form: GroupForm) -> QuantizedBuffer:
    """Codes dequantized to f32 [rows, groups x size]."""
    return QuantizedBuffer(F32, (rows, form.groups * form.size), codes.allocation, codes.offset, form=form)
