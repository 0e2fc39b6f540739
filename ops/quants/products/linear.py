"""Codes times a scale, plus the smallest number where a type has one: Q4_0 to Q8_1, Q8_K, Q1_0 and Q2_0. Layouts: ops/quants/q*.py."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ....runtime.vector import F32, Vector
from . import Block, Codes, Run, eight

UNSIGNED, SIGNED = range(16), range(-8, 8)


def q4_0(block: Block) -> Iterator[Vector]:
    """``(q - 8) * d``."""
    scale, packed = block.half(0), block.bytes(2)
    for codes in (packed, packed >> 4):
        yield block.code.table(codes, SIGNED) * scale


def q4_1(block: Block) -> Iterator[Vector]:
    """``q * d + m``."""
    scale, least, packed = block.half(0), block.half(2), block.bytes(4)
    for codes in (packed, packed >> 4):
        yield block.code.table(codes, UNSIGNED) * scale + least


def _five_bits(block: Block, bits: int, packed: int, start: int) -> Iterator[Vector]:
    codes = block.bytes(packed)
    for half in range(2):
        low, mask = codes >> 4 * half, block.bits(bits + 2 * half)
        yield block.code.select(mask, block.code.table(low, range(start + 16, start + 32)), block.code.table(low, range(start, start + 16)))


def q5_0(block: Block) -> Iterator[Vector]:
    """``(q - 16) * d``."""
    scale = block.half(0)
    for code in _five_bits(block, 2, 6, -16):
        yield code * scale


def q5_1(block: Block) -> Iterator[Vector]:
    """``q * d + m``."""
    scale, least = block.half(0), block.half(2)
    for code in _five_bits(block, 4, 8, 0):
        yield code * scale + least


def _bytes(block: Block, scale: Vector, at: int, count: int) -> Iterator[Vector]:
    for index in range(at, at + count, 16):
        yield block.bytes(index, signed=True).as_float() * scale


def q8_0(block: Block) -> Iterator[Vector]:
    """``q * d``."""
    yield from _bytes(block, block.half(0), 2, 32)


def q8_1(block: Block) -> Iterator[Vector]:
    """``q * d``."""
    yield from _bytes(block, block.half(0), 4, 32)


def q8_k(block: Block) -> Iterator[Vector]:
    """``q * d``, d in single precision."""
    yield from _bytes(block, block.code.splat(block.code.load(block.address, F32)), 4, 256)


def q1_0(block: Block) -> Iterator[Vector]:
    """``d`` where a bit is set, else ``-d``."""
    scale = block.half(0)
    for at in range(2, 18, 2):
        yield block.code.select(block.bits(at), scale, scale * -1)


def q2_0(block: Block) -> Iterator[Vector]:
    """``(q - 1) * d``, four neighbours in a byte."""
    scale = block.half(0)
    shifts = block.code.ints_of([0, 2, 4, 6] * 4)
    for at in range(2, 18, 4):
        codes = block.some_bytes(at, 4).lanes([lane // 4 for lane in range(16)]) >> shifts
        yield block.code.table(codes, [-1, 0, 1, 2] * 4) * scale


ROWS = {"q4_0": q4_0, "q4_1": q4_1, "q5_0": q5_0, "q5_1": q5_1, "q8_0": q8_0, "q8_1": q8_1, "q8_k": q8_k, "q1_0": q1_0, "q2_0": q2_0}


def _four(at: int) -> Callable[[Block], Iterator[Run]]:
    """Four bits from a byte on."""

    def runs(block: Block) -> Iterator[Run]:
        yield Run(block.nibbles(at), eight(block.half(0)))

    return runs


def _five(bits: int, at: int) -> Callable[[Block], Iterator[Run]]:
    """Fifth bits, and four bits from a byte on."""

    def runs(block: Block) -> Iterator[Run]:
        codes = block.nibbles(at)
        sixteen = (codes ^ codes) | 16
        yield Run(codes | sixteen.where(block.integer(bits, 32)), eight(block.half(0)))

    return runs


def _q8_0(block: Block) -> Iterator[Run]:
    yield Run(block.packed(2) ^ 128, eight(block.half(0)))


def _minimum(block: Block) -> Vector:
    return block.half(2) * -1


CODES = {
    "q4_0": Codes(_four(2), 8), "q4_1": Codes(_four(4), 0, _minimum), "q5_0": Codes(_five(2, 6), 16), "q5_1": Codes(_five(4, 8), 0, _minimum),
    "q8_0": Codes(_q8_0, 128),
}  # fmt: skip
