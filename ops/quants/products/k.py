"""Groups with scales of a few bits under one of half precision: Q2_K to Q6_K. Layouts: ops/quants/q*_k.py."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from llvmlite import ir

from ....runtime.vector import I8, I16, I32, Vector, vector_type
from . import Block, Codes, Group, Numbers, build_mask, first_of, joined

FOUR = [0, 1, 2, 3] * 4
LOW, HIGH = range(16), range(16, 32)


def _any(block: Block, values: Vector, bit: int) -> Vector:
    """Where a bit is set."""
    zero = ir.Constant(vector_type(I32), [0] * 16)
    return Vector(block.code, block.code.builder.icmp_unsigned("!=", (values & (1 << bit)).value, zero))


def _six_bits(block: Block) -> Vector:
    """``d * scale`` of Q4_K and Q5_K in the first eight lanes, ``dmin * min`` in the others."""
    code, build = block.code, block.code.builder
    words = vector_type(I32, 4)

    def chosen(order: list[int], shifts: list[int], kept: list[int]) -> Any:
        moved = build.lshr(build.shuffle_vector(held, held, build_mask(order)), ir.Constant(words, shifts))
        return build.and_(moved, ir.Constant(words, [0x01010101 * bits for bits in kept]))

    held = code.load(block.address, words)  # d and dmin; scales' low bits, minima's low bits, then four bits of each of the last four
    packed = build.or_(chosen([1, 3, 2, 3], [0, 0, 0, 4], [63, 15, 63, 15]), chosen([1, 1, 2, 2], [2] * 4, [0, 48, 0, 48]))
    codes = code.widened(build.bitcast(packed, vector_type(I8)))
    both = code.from_half(build.bitcast(build.shuffle_vector(held, held, build_mask([0, 0])), vector_type(I16, 4)))
    factors = Vector(code, build.shuffle_vector(both, both, build_mask([0] * 8 + [1] * 8)))
    return codes.as_float() * factors


def q4_k(block: Block) -> Iterator[Group]:
    """``d * scale * q - dmin * min``."""
    scales = _six_bits(block)
    for pair in range(4):
        packed = [block.bytes(16 + 32 * pair + 16 * half) for half in range(2)]
        for group in range(2):
            scale, least = scales.lane(2 * pair + group), scales.lane(8 + 2 * pair + group)
            yield Group([block.code.table(codes >> 4 if group else codes, LOW) for codes in packed], scale, least)


def q5_k(block: Block) -> Iterator[Group]:
    """``d * scale * q - dmin * min``."""
    scales = _six_bits(block)
    fifth = [block.bytes(16 + 16 * half) for half in range(2)]
    for pair in range(4):
        packed = [block.bytes(48 + 32 * pair + 16 * half) for half in range(2)]
        for group in range(2):
            scale, least = scales.lane(2 * pair + group), scales.lane(8 + 2 * pair + group)
            lows = [codes >> 4 if group else codes for codes in packed]
            above = [_any(block, bits, 2 * pair + group) for bits in fifth]
            tables = [(block.code.table(low, HIGH), block.code.table(low, LOW)) for low in lows]
            yield Group([block.code.select(mask, *both) for mask, both in zip(above, tables, strict=True)], scale, least)


def q6_k(block: Block) -> Iterator[Group]:
    """``d * scale * (q - 32)``."""
    scales = block.half(208) * block.bytes(192, signed=True).as_float()
    for half in range(2):
        low = [block.bytes(64 * half + 16 * index) for index in range(4)]
        high = [block.bytes(128 + 32 * half + 16 * index) for index in range(2)]
        for quarter in range(4):
            for side in range(2):
                packed = low[2 * (quarter & 1) + side]
                upper = high[side] << 4 if quarter == 0 else high[side] << 2 if quarter == 1 else high[side] >> 2 * quarter - 4
                codes = ((packed >> 4 if quarter > 1 else packed & 15) | (upper & 48)).as_float() - 32
                yield Group([codes], scales.lane(8 * half + 2 * quarter + side))


def q2_k(block: Block) -> Iterator[Group]:
    """``d * scale * q - dmin * min``."""
    packed = block.bytes(0)
    scales, minima = block.half(80) * (packed & 15).as_float(), block.half(82) * (packed >> 4).as_float()
    for half in range(2):
        bytes_of = [block.bytes(16 + 32 * half + 16 * side) for side in range(2)]
        for plane in range(4):
            for side in range(2):
                group = 8 * half + 2 * plane + side
                yield Group([block.code.table(bytes_of[side] >> 2 * plane, FOUR)], scales.lane(group), minima.lane(group))


def _q3_k_scales(block: Block) -> Vector:
    """``d * (scale - 32)`` of sixteen groups."""
    code = block.code
    tail = block.bytes(94)  # two bytes before the twelve of the scales, so that nothing behind the block is read
    low = (tail.lanes([*range(2, 10)] * 2) >> code.ints_of([0] * 8 + [4] * 8)) & 15
    high = (tail.lanes([*range(10, 14)] * 4) >> code.ints_of([0] * 4 + [2] * 4 + [4] * 4 + [6] * 4)) & 3
    return block.half(108) * ((low | (high << 4)).as_float() - 32)


def q3_k(block: Block) -> Iterator[Group]:
    """``d * (scale - 32) * (q - 4)``."""
    code, scales = block.code, _q3_k_scales(block)
    upper = [block.bytes(16 * side) for side in range(2)]
    for half in range(2):
        bytes_of = [block.bytes(32 + 32 * half + 16 * side) for side in range(2)]
        for plane in range(4):
            for side in range(2):
                codes = bytes_of[side] >> 2 * plane
                above = _any(block, upper[side], 4 * half + plane)
                numbers = code.select(above, code.table(codes, FOUR), code.table(codes, [-4, -3, -2, -1] * 4))
                yield Group([numbers], scales.lane(8 * half + 2 * plane + side))


ROWS = {"q2_k": q2_k, "q3_k": q3_k, "q4_k": q4_k, "q5_k": q5_k, "q6_k": q6_k}


def _minima_of(block: Block) -> Any:
    return first_of(_six_bits(block), 8, 8)


def _q4_k(blocks: list[Block]) -> Numbers:
    (block,) = blocks
    codes = [[half] for at in (16, 80) for packed in [block.packed(at)] for half in (packed & 15, packed >> 4)]
    return Numbers(codes, first_of(_six_bits(block), 8))


def _q5_k(blocks: list[Block]) -> Numbers:
    (block,) = blocks
    held = block.packed(16, 32)
    fifth, codes = joined(held, held), []
    for index, at in enumerate((48, 112)):
        packed = block.packed(at)
        for group, low in enumerate((packed & 15, packed >> 4)):
            first = 4 * index + group - 4
            codes.append([low | (fifth.moved([first, first + 2]) & 16)])
    return Numbers(codes, first_of(_six_bits(block), 8))


def _q6_k(blocks: list[Block]) -> Numbers:
    (block,) = blocks
    low = [joined(block.packed(32 * index, 32), block.packed(64 + 32 * index, 32)) for index in range(2)]
    high, codes = block.packed(128), []
    for quarter in range(4):
        lower = low[quarter & 1] >> 4 if quarter > 1 else low[quarter & 1] & 15
        codes.append([lower | (high.moved([2 * quarter - 4]) & 48)])
    return Numbers(codes, (block.half(208) * block.bytes(192, signed=True).as_float()).value)


def _q2_k(blocks: list[Block]) -> Numbers:
    (block,) = blocks
    packed = block.packed(16)
    return Numbers([[packed.moved([2 * plane]) & 3] for plane in range(4)], (block.half(80) * (block.bytes(0) & 15).as_float()).value)


def _q2_k_minima(blocks: list[Block]) -> Any:
    return (blocks[0].half(82) * (blocks[0].bytes(0) >> 4).as_float()).value


def _q3_k(blocks: list[Block]) -> Numbers:
    (block,) = blocks
    held, packed = block.packed(0, 32), block.packed(32)
    upper = joined(held, held).moved([0, 4])
    codes = [[(packed.moved([2 * plane]) & 3) | (upper.moved([plane - 2]) & 4)] for plane in range(4)]
    return Numbers(codes, _q3_k_scales(block).value)


HALVES = tuple(((start, start + 128),) for start in range(0, 128, 32))
QUARTERS = tuple(((start, start + 64),) for start in (0, 32, 128, 160))
CODES = {
    "q2_k": Codes(_q2_k, HALVES, 3, 0, _q2_k_minima, 16), "q3_k": Codes(_q3_k, HALVES, 7, 4, group=16),
    "q4_k": Codes(_q4_k, QUARTERS, 15, 0, lambda blocks: _minima_of(blocks[0])),
    "q5_k": Codes(_q5_k, QUARTERS, 31, 0, lambda blocks: _minima_of(blocks[0])), "q6_k": Codes(_q6_k, HALVES, 63, 32, group=16),
}  # fmt: skip
