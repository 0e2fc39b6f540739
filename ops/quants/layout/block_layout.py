"""Block layouts as data: bit positions of the codes, scales and minima of a block. All regular decoders derive from
them.

    value = scale * (code - zero) - minimum, or scale * table[code] - minimum
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

from ....runtime.base.dataclass import dataclass


@dataclass(frozen=True)
class Bits:
    """`width` bits of each of several integers.

    Attributes:
        at: bit of the block where those of integer 0 begin.
        strides: (count, bits) of nested runs, innermost first: integers that are neighbours in a run are so many bits
            apart. The bits of an integer share a byte.
    """

    width: int
    at: int
    strides: tuple[tuple[int, int], ...]

    @property
    def count(self) -> int:
        """Number of integers."""
        return math.prod(count for count, _ in self.strides)

    def position(self, index: int) -> int:
        """The bit of the block where those of an integer begin."""
        found = self.at
        for count, stride in self.strides:
            index, digit = divmod(index, count)
            found += digit * stride
        return found

    def axes(self) -> Iterator[tuple[int, int, int]]:
        """(count, bytes, bits) of nested runs, innermost first, where bits do not carry into bytes."""
        for count, stride in self.strides:
            per_byte = 8 // stride if stride and 8 % stride == 0 else count
            if 1 < per_byte < count:
                yield from ((per_byte, 0, stride), (count // per_byte, 1, 0))
            else:
                yield count, stride // 8, stride % 8


@dataclass(frozen=True)
class Codes:
    """Integers of a block.

    Attributes:
        parts: their bits, lowest first.
        zero: subtracted from each.
        signed: whether the 8 bits are a signed integer.
        table: the values that codes stand for, 16 or fewer; empty where codes are values.
    """

    parts: tuple[Bits, ...]
    zero: int = 0
    signed: bool = False
    table: tuple[int, ...] = ()

    @property
    def count(self) -> int:
        """Number of integers."""
        return self.parts[0].count

    @property
    def width(self) -> int:
        """Bits of an integer."""
        return sum(part.width for part in self.parts)

    def values(self) -> tuple[int, ...]:
        """The value of every code."""
        if self.signed:
            return tuple((code ^ 128) - 128 for code in range(256))
        return self.table or tuple(code - self.zero for code in range(1 << self.width))


@dataclass(frozen=True)
class Scale:
    """Factors of the groups of a block: ``sign * number * code``.

    Attributes:
        form: of the number: "f16", one for the block; "f32", `count` for the block; "e8m0" and "ue4m3" are halved, one
            for each group.
        at: byte of the first number.
        codes: an integer for each group, None for 1.
        count: scales of a block without codes.
    """

    form: str
    at: int
    codes: Codes | None = None
    count: int = 1
    sign: int = 1

    @property
    def groups(self) -> int:
        """Groups of a block that have a scale of their own."""
        return self.count if self.codes is None else self.codes.count


@dataclass(frozen=True)
class Layout:
    """Layout of the blocks of a type.

    Attributes:
        codes: one for each element.
        scale: of groups of neighbours; minimum: subtracted, None for 0.
        products: whether matrix products use the codes as integers.
    """

    codes: Codes
    scale: Scale
    minimum: Scale | None = None
    products: bool = True

    @property
    def length(self) -> int:
        """Elements of a block."""
        return self.codes.count

    @property
    def group(self) -> int:
        """Neighbours that share a scale."""
        return self.length // self.scale.groups


def nibbles(at: int, count: int = 16, repeat: int = 1) -> Bits:
    """4 bits each: the low halves of `count` bytes, then their high halves, `repeat` times."""
    return Bits(4, 8 * at, _run((count, 8), (2, 4), (repeat, 8 * count)))


def planes(width: int, at: int, count: int = 32, repeat: int = 2) -> Bits:
    """The lowest bits of `count` bytes, then the next ones, `repeat` times."""
    return Bits(width, 8 * at, _run((count, 8), (8 // width, width), (repeat, 8 * count)))


def packed(width: int, at: int, count: int) -> Bits:
    """Neighbours in the same byte, lowest bits first."""
    return Bits(width, 8 * at, ((count, width),))


def bits(width: int, at: int, *strides: tuple[int, int]) -> Bits:
    """Fields of `width` bits from bit `at` on, repeated by `strides`."""
    return Bits(width, at, strides)


def codes(*parts: Bits, zero: int = 0, table: tuple[int, ...] = ()) -> Codes:
    """Unsigned integers."""
    return Codes(parts, zero, table=table)


def signed_bytes(at: int, count: int) -> Codes:
    """Signed integers of 8 bits."""
    return Codes((packed(8, at, count),), signed=True)


def f16(at: int, codes: Codes | None = None, sign: int = 1) -> Scale:
    """A half-precision number."""
    return Scale("f16", at, codes, sign=sign)


def f32(at: int, sign: int = 1) -> Scale:
    """A single-precision number."""
    return Scale("f32", at, sign=sign)


def _run(*strides: tuple[int, int]) -> tuple[tuple[int, int], ...]:
    return tuple(itertools.filterfalse(lambda stride: stride[0] == 1, strides))


SIX_BIT_SCALES = codes(bits(4, 32, (4, 8), (2, 64)), bits(2, 36, (4, 8), (2, 2)))
SIX_BIT_MINIMA = codes(bits(4, 64, (4, 8), (2, 36)), bits(2, 68, (4, 8), (2, 2)))
"""Of the eight groups of Q4_K and Q5_K, in 12 bytes from byte 4 on. Those of the last four groups are in pieces: four
bits in the last four bytes, two in the upper bits of the first eight bytes."""
