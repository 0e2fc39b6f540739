"""Codes times a scale, plus the smallest number where a type has one: Q4_0 to Q8_1, Q8_K, Q1_0 and Q2_0. Layouts: ops/quants/q*.py."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from llvmlite import ir

from ....runtime.vector import F32, I16, I32, Code, Vector
from . import NIBBLES, Block, Codes, Group, Numbers, halves, joined, nibbles

UNSIGNED, SIGNED = range(16), range(-8, 8)


def q4_0(block: Block) -> Iterator[Group]:
    """``(q - 8) * d``."""
    packed = block.bytes(2)
    yield Group([block.code.table(codes, SIGNED) for codes in (packed, packed >> 4)], block.half(0))


def q4_1(block: Block) -> Iterator[Group]:
    """``q * d + m``."""
    packed = block.bytes(4)
    yield Group([block.code.table(codes, UNSIGNED) for codes in (packed, packed >> 4)], block.half(0), block.half(2) * -1)


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
    yield Group(list(_five_bits(block, 4, 8, 0)), block.half(0), block.half(2) * -1)


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


def _minima(blocks: list[Block]) -> Any:
    made = halves(blocks, 2)
    return blocks[0].code.builder.fneg(made)


def _four(at: int) -> Callable[[list[Block]], Numbers]:
    """Four bits from a byte on."""

    def numbers(blocks: list[Block]) -> Numbers:
        return Numbers([nibbles(blocks, at)], halves(blocks))

    return numbers


def _five(bits: int, at: int) -> Callable[[list[Block]], Numbers]:
    """Fifth bits, and four bits from a byte on."""

    def numbers(blocks: list[Block]) -> Numbers:
        fifth = [block.integer(bits, 32) for block in blocks]
        made = [
            low | ((low ^ low) | 16).where(_gathered(blocks[0].code, [piece(blocks[0].code, each, half) for each in fifth]))
            for half, low in enumerate(nibbles(blocks, at))
        ]
        return Numbers([made], halves(blocks))

    def piece(code: Code, word: Any, half: int) -> Any:
        return code.builder.trunc(code.builder.lshr(word, ir.Constant(I32, 16 * half)), I16)

    return numbers


def _gathered(code: Code, words: list[Any]) -> Any:
    """Numbers of 16 bits as one."""
    build, kind = code.builder, ir.IntType(16 * len(words))
    made = ir.Constant(kind, 0)
    for index, word in enumerate(words):
        made = build.or_(made, build.shl(build.zext(word, kind), ir.Constant(kind, 16 * index)))
    return made


def _q8_0(blocks: list[Block]) -> Numbers:
    held = [block.packed(2, 32) for block in blocks]
    return Numbers([[joined(*held[start : start + 2]) ^ 128] for start in range(0, len(blocks), 2)], halves(blocks))


CODES = {
    "q4_0": Codes(_four(2), NIBBLES, 15, 8, blocks=4), "q4_1": Codes(_four(4), NIBBLES, 15, 0, _minima, blocks=4),
    "q5_0": Codes(_five(2, 6), NIBBLES, 31, 16, blocks=4), "q5_1": Codes(_five(4, 8), NIBBLES, 31, 0, _minima, blocks=4),
    "q8_0": Codes(_q8_0, (((0, 32),), ((64, 96),)), 255, 128, blocks=4),
}  # fmt: skip
