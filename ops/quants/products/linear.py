"""Codes times a scale, plus the smallest number where a type has one: Q4_0 to Q8_1, Q8_K, Q1_0 and Q2_0. Layouts: ops/quants/q*.py."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ....runtime.vector import F32, Vector
from . import Block, Codes, Group, Run

UNSIGNED, SIGNED = range(16), range(-8, 8)


def q4_0(block: Block) -> Iterator[Group]:
    """``(q - 8) * d``."""
    packed = block.bytes(2)
    yield Group([block.code.table(codes, SIGNED) for codes in (packed, packed >> 4)], block.half(0))


def q4_1(block: Block) -> Iterator[Group]:
    """``q * d + m``."""
    packed = block.bytes(4)
    yield Group([block.code.table(codes, UNSIGNED) for codes in (packed, packed >> 4)], block.half(0), _minimum(block))


def _five_bits(block: Block, bits: int, packed: int, start: int) -> Iterator[Vector]:
    codes = block.bytes(packed)
    for half in range(2):
        low, mask = codes >> 4 * half, block.bits(bits + 2 * half)
        yield block.code.select(mask, block.code.table(low, range(start + 16, start + 32)), block.code.table(low, range(start, start + 16)))


def q5_0(block: Block) -> Iterator[Group]:
    """``(q - 16) * d``."""
    yield Group(list(_five_bits(block, 2, 6, -16)), block.half(0))


def q5_1(block: Block) -> Iterator[Group]:
    """``q * d + m``."""
    yield Group(list(_five_bits(block, 4, 8, 0)), block.half(0), _minimum(block))


def _bytes(block: Block, scale: Vector, at: int, count: int) -> Iterator[Group]:
    yield Group([block.bytes(index, signed=True).as_float() for index in range(at, at + count, 16)], scale)


def q8_0(block: Block) -> Iterator[Group]:
    """``q * d``."""
    yield from _bytes(block, block.half(0), 2, 32)


def q8_1(block: Block) -> Iterator[Group]:
    """``q * d``."""
    yield from _bytes(block, block.half(0), 4, 32)


def q8_k(block: Block) -> Iterator[Group]:
    """``q * d``, d in single precision."""
    yield from _bytes(block, block.code.splat(block.code.load(block.address, F32)), 4, 256)


def q1_0(block: Block) -> Iterator[Group]:
    """``d`` where a bit is set, else ``-d``."""
    one = block.code.floats_of([1] * 16)
    yield Group([block.code.select(block.bits(at), one, one * -1) for at in range(2, 18, 2)], block.half(0))


def q2_0(block: Block) -> Iterator[Group]:
    """``(q - 1) * d``, four neighbours in a byte."""
    shifts = block.code.ints_of([0, 2, 4, 6] * 4)
    codes = [block.some_bytes(at, 4).lanes([lane // 4 for lane in range(16)]) >> shifts for at in range(2, 18, 4)]
    yield Group([block.code.table(code, [-1, 0, 1, 2] * 4) for code in codes], block.half(0))


ROWS = {"q4_0": q4_0, "q4_1": q4_1, "q5_0": q5_0, "q5_1": q5_1, "q8_0": q8_0, "q8_1": q8_1, "q8_k": q8_k, "q1_0": q1_0, "q2_0": q2_0}


def _four(at: int) -> Callable[[Block], Iterator[Run]]:
    """Four bits from a byte on."""

    def runs(block: Block) -> Iterator[Run]:
        yield Run(block.nibbles(at), block.half(0))

    return runs


def _five(bits: int, at: int) -> Callable[[Block], Iterator[Run]]:
    """Fifth bits, and four bits from a byte on."""

    def runs(block: Block) -> Iterator[Run]:
        codes = block.nibbles(at)
        sixteen = (codes ^ codes) | 16
        yield Run(codes | sixteen.where(block.integer(bits, 32)), block.half(0))

    return runs


def _q8_0(block: Block) -> Iterator[Run]:
    yield Run(block.packed(2) ^ 128, block.half(0))


def _minimum(block: Block) -> Vector:
    return block.half(2) * -1


CODES = {
    "q4_0": Codes(_four(2), 8), "q4_1": Codes(_four(4), 0, _minimum), "q5_0": Codes(_five(2, 6), 16), "q5_1": Codes(_five(4, 8), 0, _minimum),
    "q8_0": Codes(_q8_0, 128),
}  # fmt: skip
