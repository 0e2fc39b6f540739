"""Codes of four bits into sixteen values: IQ4_NL, IQ4_XS, MXFP4, NVFP4. Layouts: ops/quants/iq4.py, ops/quants/fp4.py."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from llvmlite import ir

from ....runtime.vector import F32, I32, I64, Vector, vector_type
from ..fp4 import VALUES as FP4
from ..fp4 import ue4m3_half
from ..iq4 import VALUES as IQ4
from . import NIBBLES, Block, Codes, Group, Numbers, first_of, halves, nibbles


def iq4_nl(block: Block) -> Iterator[Group]:
    """``d * VALUES[q]``."""
    packed = block.bytes(2)
    yield Group([block.code.table(codes, IQ4) for codes in (packed, packed >> 4)], block.half(0))


def _iq4_xs_scales(block: Block) -> Vector:
    """``d * (scale - 32)`` of eight groups, twice."""
    code = block.code
    groups = [lane % 8 for lane in range(16)]
    low = (block.some_bytes(4, 4).lanes([group // 2 for group in groups]) >> code.ints_of([4 * (group % 2) for group in groups])) & 15
    high = (code.splat(block.integer(2, 16)) >> code.ints_of([2 * group for group in groups])) & 3
    return block.half(0) * ((low | (high << 4)).as_float() - 32)


def iq4_xs(block: Block) -> Iterator[Group]:
    """``d * (scale - 32) * VALUES[q]``."""
    code, scales = block.code, _iq4_xs_scales(block)
    for group in range(8):
        packed = block.bytes(8 + 16 * group)
        yield Group([code.table(codes, IQ4) for codes in (packed, packed >> 4)], scales.lane(group))


def _mxfp4_scale(block: Block) -> Any:
    """``2 ** (e - 128)``."""
    build = block.code.builder
    exponent = block.integer(0, 8)
    tiny = build.icmp_unsigned("<", exponent, ir.Constant(I32, 2))
    normal = build.shl(build.sub(exponent, ir.Constant(I32, 1)), ir.Constant(I32, 23))
    bits = build.select(tiny, build.shl(ir.Constant(I32, 0x200000), build.and_(exponent, ir.Constant(I32, 1))), normal)
    return build.bitcast(bits, F32)


def mxfp4(block: Block) -> Iterator[Group]:
    """``VALUES[q] * 2 ** (e - 128)``, whose two lowest exponents are below the normal numbers."""
    packed = block.bytes(1)
    yield Group([block.code.table(codes, FP4) for codes in (packed, packed >> 4)], block.code.splat(_mxfp4_scale(block)))


def nvfp4(block: Block) -> Iterator[Group]:
    """``VALUES[q] * scale / 2``, a scale for each sixteen."""
    code = block.code
    halves = code.constant([float(value) for value in ue4m3_half()], F32)
    for group in range(4):
        place = code.builder.add(halves, code.builder.shl(code.builder.zext(block.integer(group, 8), I64), code.word(2)))
        scale = code.splat(code.load(place, F32))
        yield Group([code.table(block.some_bytes(4 + 8 * group, 8) >> code.ints_of([0] * 8 + [4] * 8), FP4)], scale)


ROWS = {"iq4_nl": iq4_nl, "iq4_xs": iq4_xs, "mxfp4": mxfp4, "nvfp4": nvfp4}


def _iq4_nl(blocks: list[Block]) -> Numbers:
    table = [value + 128 for value in IQ4]
    return Numbers([[codes.table(table) for codes in nibbles(blocks, 2)]], halves(blocks))


def _iq4_xs(blocks: list[Block]) -> Numbers:
    (block,) = blocks
    table, packed = [value + 128 for value in IQ4], [block.packed(at) for at in (8, 72)]
    return Numbers([[codes.table(table) for codes in (held & 15, held >> 4)] for held in packed], first_of(_iq4_xs_scales(block), 8))


def _mxfp4(blocks: list[Block]) -> Numbers:
    scales = ir.Constant(vector_type(F32, 4), ir.Undefined)
    code = blocks[0].code
    for index, block in enumerate(blocks):
        scales = code.builder.insert_element(scales, _mxfp4_scale(block), ir.Constant(I32, index))
    return Numbers([[codes.table([value + 12 for value in FP4]) for codes in nibbles(blocks, 1)]], scales)


PAIRS = tuple(tuple(tuple(range(start, start + 128, 32)) for start in (first, first + 16)) for first in (0, 128))
CODES = {
    "iq4_nl": Codes(_iq4_nl, NIBBLES, 241, 128, blocks=4), "iq4_xs": Codes(_iq4_xs, PAIRS, 241, 128),
    "mxfp4": Codes(_mxfp4, NIBBLES, 24, 12, blocks=4),
}  # fmt: skip
