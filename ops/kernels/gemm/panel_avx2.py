"""Panels for 32-byte vectors: AVX-VNNI dot4, or AVX2 products of byte pairs summed in 16 bits.

With AVX-VNNI an instruction adds four products of bytes or two of 16 bits. Without it two products of bytes are a
number of 16 bits, as many of which are added up as stay below 2^15; codes of 8 bits are multiplied as numbers of 16.
All are exact.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from ....runtime.simd.dot_product import (
    PAIR_LIMIT,
    add_pairs,
    dot2_i16_avx2,
    dot2_i16_avx_vnni,
    dot2_u8s8,
    dot4_avx_vnni,
)
from ....runtime.simd.llvm_vector import I16, I32, Code, vector_type
from ...quants.llvm import Block, codes, runs
from .gemv import WeightRows
from .gemv_int8 import RUN
from .panel_16bit import Int16Pairs
from .panel_int8_vnni import QUAD, Panel, Tile

ROWS = 4
"""Rows of activations of a tile."""


class AvxVnniPanel(Panel):
    """As `Panel`, by AVX-VNNI."""

    vectors_per_step = 1
    dot = staticmethod(dot4_avx_vnni)


class Avx2Panel(Panel):
    """As `Panel`, by products of bytes of 16 bits."""

    vectors_per_step = 1

    def __init__(self, code: Code, tile: Tile, stored: WeightRows, scratch: Any) -> None:
        super().__init__(code, tile, stored, scratch)
        self.quads_per_step = min(RUN // QUAD // tile.parts, max_pairs(stored.name))

    def _add_quads(self, at: Any, line: Any, quads: range, places: list[tuple[int, int]], found: list[Any]) -> None:
        code = self.code
        sums: list[Any] = [None] * len(places)
        for quad in quads:
            columns, elements = self._quad(at, line, quad, places)
            for index, (row, half) in enumerate(places):
                made = dot2_u8s8(code, columns[half], elements[row])
                sums[index] = made if sums[index] is None else code.builder.add(sums[index], made)
        for index, made in enumerate(sums):
            found[index] = add_pairs(code, found[index], made)


def max_pairs(name: str) -> int:
    """How many sums of two products of a code and 127 stay below 2^15; none of codes of 8 bits."""
    return PAIR_LIMIT // (2 * 127 * codes()[name].top)


class AvxVnniPairs(Int16Pairs):
    """As `Int16Pairs`, by AVX-VNNI."""

    vectors_per_step = 1
    dot = staticmethod(dot2_i16_avx_vnni)


class Avx2Pairs(Int16Pairs):
    """As `Int16Pairs`, by AVX2."""

    vectors_per_step = 1
    dot = staticmethod(dot2_i16_avx2)


class Avx2CodePairs(Avx2Pairs):
    """Codes as numbers of 16 bits."""

    def _read_row(self, part: int, address: Any, depth: Any, line: Any, row: Any) -> None:
        code, build, kind = self.code, self.code.builder, codes()[self.stored.name]

        def each(block: Any, element: Any) -> None:
            first = build.sdiv(element, code.word(RUN))
            for index, run in enumerate(runs(kind, Block(code, block))):
                wide = build.zext(run.codes.value, vector_type(I16, RUN))
                numbers = build.sub(wide, ir.Constant(wide.type, [kind.zero] * RUN))
                code.store(numbers, build.add(line, build.shl(element, code.word(1))), 2 * RUN * index)
                self._store_scale(
                    build.extract_element(run.scales, ir.Constant(I32, run.first)),
                    build.add(first, code.word(index)),
                    row,
                )

        self.stored.blocks(code, address, build.sdiv(depth, code.word(self.stored.length)), each)
