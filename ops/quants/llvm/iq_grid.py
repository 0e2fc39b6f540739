"""LLVM decoders of grid types: IQ1, IQ2 and IQ3. Layouts: ops/quants/iq1.py, iq2.py, iq3.py."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from llvmlite import ir

from ....runtime.simd.llvm_vector import F32, I8, I16, I32, I64, Vector, vector_type
from ..layout import iq_grids
from . import Block, Group


def _points(block: Block, grid: iq_grids.Grid, codes: Sequence[Any]) -> Vector:
    """Sixteen coordinates, of two points or of four, as f32; codes are i32."""
    code, build = block.code, block.code.builder
    kind = ir.IntType(8 * grid.dims)
    packed = [int(number) for number in np.ascontiguousarray(grid.points).view(f"<u{grid.dims}").reshape(-1)]
    table = code.constant(packed, kind)
    found = ir.Constant(vector_type(kind, len(codes)), ir.Undefined)
    for index, number in enumerate(codes):
        place = build.add(table, build.mul(build.zext(number, I64), code.word(grid.dims)))
        found = build.insert_element(found, code.load(place, kind), ir.Constant(I32, index))
    return code.widened(build.bitcast(found, vector_type(I8)), signed=True).as_float()


def _bits(block: Block, value: Any, shift: int, count: int) -> Any:
    """Some bits of an i32."""
    build = block.code.builder
    moved = build.lshr(value, ir.Constant(I32, shift)) if shift else value
    return build.and_(moved, ir.Constant(I32, (1 << count) - 1))


def _even(block: Block, codes: Sequence[Any]) -> Vector:
    """A mask of two sign codes of seven bits; the eighth sign makes their number even."""
    code, build = block.code, block.code.builder
    table = code.constant([number | (number.bit_count() & 1) << 7 for number in range(128)], I8)
    low, high = (build.zext(code.load(build.add(table, build.zext(each, I64)), I8), I16) for each in codes)
    return code.mask(build.or_(low, build.shl(high, ir.Constant(I16, 8))))


def _signed(block: Block, values: Vector, negative: Vector) -> Vector:
    return block.code.select(negative, values * -1, values)


def _scaled(block: Block, d: Vector, code: Any, factor: float) -> Vector:
    """``d * (code + 1/2) * factor``."""
    number = block.code.builder.fadd(block.code.builder.uitofp(code, F32), ir.Constant(F32, 0.5))
    return d * block.code.splat(number) * factor


def _odd(block: Block, d: Vector, code: Any) -> Vector:
    """``d * (2 code + 1)``."""
    build = block.code.builder
    number = build.uitofp(build.or_(build.shl(code, ir.Constant(I32, 1)), ir.Constant(I32, 1)), F32)
    return d * block.code.splat(number)


def iq2_xxs(block: Block) -> Iterator[Group]:
    """Four points, then four sign codes and a scale."""
    d = block.half(0)
    for at in range(2, 66, 8):
        tail = block.integer(at + 4, 32)
        scale = _scaled(block, d, _bits(block, tail, 28, 4), 0.25)
        for pair in range(2):
            points = _points(block, iq_grids.IQ2_XXS, [block.integer(at + 2 * pair + side, 8) for side in range(2)])
            yield Group(
                [
                    _signed(
                        block, points, _even(block, [_bits(block, tail, 14 * pair + 7 * side, 7) for side in range(2)])
                    )
                ],
                scale,
            )


def iq2_xs(block: Block) -> Iterator[Group]:
    """Points of nine bits with their sign codes; scales of four bits for sixteen elements."""
    d = block.half(0)
    for group in range(16):
        codes = [block.integer(2 + 4 * group + 2 * side, 16) for side in range(2)]
        scale = _scaled(block, d, _bits(block, block.integer(66 + group // 2, 8), 4 * (group & 1), 4), 0.25)
        points = _points(block, iq_grids.IQ2_XS, [_bits(block, each, 0, 9) for each in codes])
        yield Group([_signed(block, points, _even(block, [_bits(block, each, 9, 7) for each in codes]))], scale)


def iq2_s(block: Block) -> Iterator[Group]:
    """Points of ten bits, signs apart; scales of four bits for sixteen elements."""
    d, build = block.half(0), block.code.builder
    for group in range(16):
        scale = _scaled(block, d, _bits(block, block.integer(74 + group // 2, 8), 4 * (group & 1), 4), 0.25)
        codes = []
        for index in (2 * group, 2 * group + 1):
            high = _bits(block, block.integer(66 + index // 4, 8), 2 * (index % 4), 2)
            codes.append(build.or_(block.integer(2 + index, 8), build.shl(high, ir.Constant(I32, 8))))
        yield Group([_signed(block, _points(block, iq_grids.IQ2_S, codes), block.bits(34 + 2 * group))], scale)


def iq3_xxs(block: Block) -> Iterator[Group]:
    """Points of four, then four sign codes and a scale for each 32 elements."""
    d = block.half(0)
    for group in range(8):
        tail = block.integer(66 + 4 * group, 32)
        scale = _scaled(block, d, _bits(block, tail, 28, 4), 0.5)
        for pair in range(2):
            points = _points(
                block, iq_grids.IQ3_XXS, [block.integer(2 + 8 * group + 4 * pair + side, 8) for side in range(4)]
            )
            yield Group(
                [
                    _signed(
                        block, points, _even(block, [_bits(block, tail, 14 * pair + 7 * side, 7) for side in range(2)])
                    )
                ],
                scale,
            )


def iq3_s(block: Block) -> Iterator[Group]:
    """Points of nine bits, signs apart; scales of four bits for 32 elements."""
    d, build = block.half(0), block.code.builder
    for half in range(16):
        group = half // 2
        scale = _odd(block, d, _bits(block, block.integer(106 + group // 2, 8), 4 * (group & 1), 4))
        codes = []
        for index in range(4 * half, 4 * half + 4):
            high = _bits(block, block.integer(66 + index // 8, 8), index % 8, 1)
            codes.append(build.or_(block.integer(2 + index, 8), build.shl(high, ir.Constant(I32, 8))))
        yield Group([_signed(block, _points(block, iq_grids.IQ3_S, codes), block.bits(74 + 2 * half))], scale)


def _shift(block: Block, negative: Any) -> Vector:
    """An eighth, down where `negative`, which is an i32 of 0 or 1."""
    build = block.code.builder
    down = build.icmp_unsigned("!=", negative, ir.Constant(I32, 0))
    return block.code.splat(build.select(down, ir.Constant(F32, -0.125), ir.Constant(F32, 0.125)))


def iq1_s(block: Block) -> Iterator[Group]:
    """Points of eleven bits; scale and shift for 32 elements."""
    d, build = block.half(0), block.code.builder
    for group in range(8):
        tail = block.integer(34 + 2 * group, 16)
        scale, shift = _odd(block, d, _bits(block, tail, 12, 3)), _shift(block, _bits(block, tail, 15, 1))
        for pair in range(2):
            codes = []
            for side in range(2):
                high = _bits(block, tail, 3 * (2 * pair + side), 3)
                codes.append(
                    build.or_(block.integer(2 + 4 * group + 2 * pair + side, 8), build.shl(high, ir.Constant(I32, 8)))
                )
            yield Group([_points(block, iq_grids.IQ1, codes) + shift], scale)


def iq1_m(block: Block) -> Iterator[Group]:
    """Points of eleven bits, each with its shift; scales of three bits for sixteen elements, the common one in pieces
    between them."""
    code, build = block.code, block.code.builder
    tails = [block.integer(48 + 2 * index, 16) for index in range(4)]
    whole = ir.Constant(I32, 0)
    for index, tail in enumerate(tails):
        whole = build.or_(whole, build.shl(_bits(block, tail, 12, 4), ir.Constant(I32, 4 * index)))
    d = code.splat(code.from_half(build.trunc(whole, I16)))
    first = code.mask(ir.Constant(I16, 0x00FF))
    for group in range(16):
        scale = _odd(block, d, _bits(block, tails[group // 4], 3 * (group % 4), 3))
        highs = block.integer(32 + group, 8)
        codes = []
        for side in range(2):
            high = _bits(block, highs, 4 * side, 3)
            codes.append(build.or_(block.integer(2 * group + side, 8), build.shl(high, ir.Constant(I32, 8))))
        shifts = [_shift(block, _bits(block, highs, 4 * side + 3, 1)) for side in range(2)]
        yield Group([_points(block, iq_grids.IQ1, codes) + code.select(first, shifts[0], shifts[1])], scale)


ROWS = {
    "iq1_s": iq1_s,
    "iq1_m": iq1_m,
    "iq2_xxs": iq2_xxs,
    "iq2_xs": iq2_xs,
    "iq2_s": iq2_s,
    "iq3_xxs": iq3_xxs,
    "iq3_s": iq3_s,
}
