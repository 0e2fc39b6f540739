"""Groups with scales of a few bits under one of half precision: Q2_K to Q6_K. Layouts: ops/quants/q*_k.py."""

from __future__ import annotations

from collections.abc import Iterator

from llvmlite import ir

from ....runtime.vector import I32, Vector, vector_type
from . import Block, Codes, Group, Run

FOUR = [0, 1, 2, 3] * 4
LOW, HIGH = range(16), range(16, 32)


def _any(block: Block, values: Vector, bit: int) -> Vector:
    """Where a bit is set."""
    zero = ir.Constant(vector_type(I32), [0] * 16)
    return Vector(block.code, block.code.builder.icmp_unsigned("!=", (values & (1 << bit)).value, zero))


def _six_bits(block: Block) -> Vector:
    """``d * scale`` of Q4_K and Q5_K in the first eight lanes, ``dmin * min`` in the others."""
    code = block.code
    packed = block.bytes(4)  # scales' low bits, minima's low bits, then four bits of each of the last four
    first = packed.lanes([0, 1, 2, 3] * 2 + [4, 5, 6, 7] * 2)
    rest = packed.lanes([8, 9, 10, 11] * 4) >> code.ints_of([0] * 8 + [4] * 8)
    late = code.mask(ir.Constant(ir.IntType(16), 0xF0F0))
    codes = code.select(late, (rest & 15) | ((first >> 6) << 4), first & 63)
    return codes.as_float() * code.select(code.mask(ir.Constant(ir.IntType(16), 0x00FF)), block.half(0), block.half(2))


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


def _q4_k(block: Block) -> Iterator[Run]:
    scales = _six_bits(block)
    for pair in range(4):
        packed = block.packed(16 + 32 * pair)
        for group, codes in enumerate((packed & 15, packed >> 4)):
            yield Run(codes, scales, 2 * pair + group, 2 * pair + group)


def _q5_k(block: Block) -> Iterator[Run]:
    scales, fifth = _six_bits(block), block.packed(16)
    for pair in range(4):
        packed = block.packed(48 + 32 * pair)
        for group, codes in enumerate((packed & 15, packed >> 4)):
            bit = 2 * pair + group
            yield Run(codes | ((fifth << 4 - bit if bit < 4 else fifth >> bit - 4) & 16), scales, bit, bit)


def _minima(block: Block) -> Vector:
    return _six_bits(block).lanes([*range(8, 16), *range(8)])


def _q6_k(block: Block) -> Iterator[Run]:
    scales = block.half(208) * block.bytes(192, signed=True).as_float()
    for half in range(2):
        low, high = [block.packed(64 * half + 32 * index) for index in range(2)], block.packed(128 + 32 * half)
        for quarter in range(4):
            lower = low[quarter & 1] >> 4 if quarter > 1 else low[quarter & 1] & 15
            upper = high << 4 - 2 * quarter if quarter < 2 else high >> 2 * quarter - 4
            yield Run(lower | (upper & 48), scales, 8 * half + 2 * quarter, 8 * half + 2 * quarter + 1)


def _q2_k(block: Block) -> Iterator[Run]:
    scales = block.half(80) * (block.bytes(0) & 15).as_float()
    for half in range(2):
        packed = block.packed(16 + 32 * half)
        for plane in range(4):
            group = 8 * half + 2 * plane
            yield Run((packed >> 2 * plane if plane else packed) & 3, scales, group, group + 1)


def _q2_k_minima(block: Block) -> Vector:
    return block.half(82) * (block.bytes(0) >> 4).as_float()


def _q3_k(block: Block) -> Iterator[Run]:
    scales, upper = _q3_k_scales(block), block.packed(0)
    for half in range(2):
        packed = block.packed(32 + 32 * half)
        for plane in range(4):
            group, bit = 8 * half + 2 * plane, 4 * half + plane
            above = (upper << 2 - bit if bit < 2 else upper >> bit - 2) & 4
            yield Run(((packed >> 2 * plane if plane else packed) & 3) | above, scales, group, group + 1)


CODES = {
    "q2_k": Codes(_q2_k, 0, _q2_k_minima, 16, 16), "q3_k": Codes(_q3_k, 4, scaled=16), "q4_k": Codes(_q4_k, 0, _minima),
    "q5_k": Codes(_q5_k, 0, _minima), "q6_k": Codes(_q6_k, 32, scaled=16),
}  # fmt: skip
