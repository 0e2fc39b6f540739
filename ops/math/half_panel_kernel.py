"""Panels for processors whose vectors have 32 bytes: one vector of columns at a time, as two halves, in 16 registers.

With AVX-VNNI an instruction adds four products of bytes or two of 16 bits. Without it two products of bytes are a number of 16 bits, as many of which
are added up as stay below 2^15; codes of 8 bits are multiplied as numbers of 16. All are exact.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from ...runtime.dots import PAIR_LIMIT, added_pairs, fours_of_halves, pairs, twos_and_sums, twos_of_halves
from ...runtime.vector import I16, I32, Code, vector_type
from ..quants.products import Block, codes, runs
from .dot_panel_kernel import QUAD, Panel, Tile
from .pair_panel_kernel import WholePairs
from .rows_kernel import Stored
from .whole_kernel import RUN

ROWS = 4
"""Rows of activations of a tile."""


class HalfPanel(Panel):
    """As `Panel`, by AVX-VNNI."""

    abreast = 1
    dot = staticmethod(fours_of_halves)


class PairedPanel(Panel):
    """As `Panel`, by products of bytes of 16 bits."""

    abreast = 1

    def __init__(self, code: Code, tile: Tile, stored: Stored, scratch: Any) -> None:
        super().__init__(code, tile, stored, scratch)
        self.together = min(RUN // QUAD // tile.parts, pairs_together(stored.name))

    def _add_quads(self, at: Any, line: Any, quads: range, places: list[tuple[int, int]], found: list[Any]) -> None:
        code = self.code
        sums: list[Any] = [None] * len(places)
        for quad in quads:
            columns, elements = self._quad(at, line, quad, places)
            for index, (row, half) in enumerate(places):
                made = pairs(code, columns[half], elements[row])
                sums[index] = made if sums[index] is None else code.builder.add(sums[index], made)
        for index, made in enumerate(sums):
            found[index] = added_pairs(code, found[index], made)


def pairs_together(name: str) -> int:
    """How many sums of two products of a code and 127 stay below 2^15; none of codes of 8 bits."""
    return PAIR_LIMIT // (2 * 127 * codes()[name].top)


class HalfPairs(WholePairs):
    """As `WholePairs`, by AVX-VNNI."""

    abreast = 1
    dot = staticmethod(twos_of_halves)


class SummedPairs(WholePairs):
    """As `WholePairs`, by AVX2."""

    abreast = 1
    dot = staticmethod(twos_and_sums)


class CodePairs(SummedPairs):
    """Codes as numbers of 16 bits."""

    def _read_row(self, part: int, address: Any, depth: Any, line: Any, row: Any) -> None:
        code, build, kind = self.code, self.code.builder, codes()[self.stored.name]

        def each(block: Any, element: Any) -> None:
            first = build.sdiv(element, code.word(RUN))
            for index, run in enumerate(runs(kind, Block(code, block))):
                wide = build.zext(run.codes.value, vector_type(I16, RUN))
                numbers = build.sub(wide, ir.Constant(wide.type, [kind.zero] * RUN))
                code.store(numbers, build.add(line, build.shl(element, code.word(1))), 2 * RUN * index)
                self._keep(build.extract_element(run.scales, ir.Constant(I32, run.first)), build.add(first, code.word(index)), row)

        self.stored.blocks(code, address, build.sdiv(depth, code.word(self.stored.length)), each)
