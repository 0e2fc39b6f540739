"""Block types of GGML files before GGUF. Layouts: ops/quants/legacy.py."""

from __future__ import annotations

from collections.abc import Iterator

from ....runtime.vector import F32, Vector
from . import Block, Codes, Group, Rows
from .linear import SIGNED, UNSIGNED

HALVES = [lane // 2 for lane in range(16)]


def _single(block: Block, at: int) -> Vector:
    return block.code.splat(block.code.load(block.address, F32, at))


def _pairs(block: Block, at: int, count: int) -> Iterator[Vector]:
    """Codes of `count` bytes: low half, high half, next byte."""
    for start in range(at, at + count, 8):
        yield block.some_bytes(start, 8).lanes(HALVES) >> block.code.ints_of([0, 4] * 8)


def _four_bits(scale: int, least: int | None, packed: int, count: int, wide: bool, paired: bool) -> Rows:
    """Bytes where scale and smallest number are, in single precision where `wide`; where the codes are, and how many bytes of them."""

    def rows(block: Block) -> Iterator[Group]:
        number = _single if wide else Block.half
        factor = number(block, scale)
        if paired:
            codes = list(_pairs(block, packed, count))
        else:
            held = block.bytes(packed)
            codes = [held, held >> 4]
        values = [block.code.table(code, SIGNED if least is None else UNSIGNED) for code in codes]
        yield Group(values, factor, None if least is None else number(block, least) * -1)

    return rows


def _five_bits(least: int | None, bits: int, packed: int) -> Rows:
    def rows(block: Block) -> Iterator[Group]:
        values, start = [], -16 if least is None else 0
        for half, code in enumerate(_pairs(block, packed, 16)):
            high, low = (block.code.table(code, range(first, first + 16)) for first in (start + 16, start))
            values.append(block.code.select(block.bits(bits + 2 * half), high, low))
        yield Group(values, block.half(0), None if least is None else block.half(least) * -1)

    return rows


def q8_0_v1(block: Block) -> Iterator[Group]:
    """``q * d``, d in single precision."""
    yield Group([block.bytes(at, signed=True).as_float() for at in (4, 20)], _single(block, 0))


ROWS: dict[str, Rows] = {
    "q4_0_v1": _four_bits(0, None, 4, 16, True, True),
    "q4_1_v1": _four_bits(0, 4, 8, 16, True, True),
    "q4_2": _four_bits(0, None, 2, 8, False, True),
    "q4_3": _four_bits(0, 2, 4, 8, False, True),
    "q5_0_v1": _five_bits(None, 2, 6),
    "q5_1_v1": _five_bits(2, 4, 8),
    "q8_0_v1": q8_0_v1,
    "q4_0_v2": _four_bits(0, None, 4, 16, True, False),
    "q4_1_v2": _four_bits(0, 4, 8, 16, True, False),
}
CODES: dict[str, Codes] = {}
