"""Panels of codes multiplied by registers of tiles: 16 rows of activations and 16 of the weight at a time, all elements of a scale at once.

Two tiles of activations meet two of the weight, so that each is loaded for two products. Their sums of whole numbers go through memory, where
the run's scales and steps meet them: with a scale for each 32 neighbours that is most of the work.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir

from ...runtime.dots import INTS
from ...runtime.tiles import LINE, ROWS, Shape, Tiles
from ...runtime.vector import F32, I32, LANES, Code, Vector
from .dot_panel_kernel import COLUMNS, QUAD, Panel, Tile
from .rows_kernel import Stored
from .whole_kernel import RUN

HALVES = COLUMNS // LANES
TOTALS = 4
"""Tiles 0 to 3 hold sums, row by row of tiles; then come two of activations and two of the weight."""


class TiledPanel(Panel):
    """As `Panel`, for tiles of activations of 32 rows, of which the first 16 or all are multiplied."""

    def __init__(self, tiles: Callable[[Code, Sequence[Shape]], Tiles], code: Code, tile: Tile, stored: Stored, scratch: Any) -> None:
        super().__init__(code, tile, stored, scratch)
        self.depth = RUN // tile.parts
        shapes = [Shape(ROWS, LINE)] * TOTALS + [Shape(ROWS, self.depth)] * 2 + [Shape(self.depth // QUAD, LINE)] * HALVES
        self.tiles = tiles(code, shapes)
        self.tiles.configure()

    def end(self) -> None:
        """No products follow."""
        self.tiles.release()

    def multiply(self, x: Any, runs: Any, sums: Any, rows: int) -> None:
        """Add the products with the first rows of a tile to its sums."""
        code, build, tile = self.code, self.code.builder, self.tile
        with code.loop(code.word(0), runs) as run:
            at = build.add(x, build.mul(run, code.word(tile.nbytes)))
            for part in range(tile.parts):
                self._multiply_part(at, run, part, rows)
                with code.loop(code.word(0), code.word(rows)) as row:
                    self._add(at, run, part, row, sums)

    def _multiply_part(self, at: Any, run: Any, part: int, rows: int) -> None:
        """The whole numbers of a part of a run, [rows, COLUMNS]."""
        build, code, tiles = self.code.builder, self.code, self.tiles
        line = build.add(self.codes, build.mul(run, code.word(COLUMNS * RUN)))
        places = [build.add(line, code.word(COLUMNS * self.depth * part + LINE * half)) for half in range(HALVES)]
        for half, place in enumerate(places):
            tiles.load(TOTALS + 2 + half, place, COLUMNS * QUAD)
        for index in range(rows // ROWS):
            tiles.load(TOTALS + index, build.add(at, code.word(RUN * ROWS * index + self.depth * part)), RUN)
            for half in range(HALVES):
                total = HALVES * index + half
                tiles.zero(total)
                tiles.dot(total, TOTALS + index, TOTALS + 2 + half)
                tiles.store(total, build.add(self.wholes, code.word(4 * COLUMNS * ROWS * index + LINE * half)), 4 * COLUMNS)

    def _add(self, at: Any, run: Any, part: int, row: Any, sums: Any) -> None:
        """The numbers of a row with their scales and step to its sums, and its share of the minima."""
        code, build, tile = self.code, self.code.builder, self.tile
        offset = build.mul(row, code.word(4 * COLUMNS))
        place, wholes = build.add(sums, offset), build.add(self.wholes, offset)
        own = build.add(at, build.shl(row, code.word(2)))
        step = code.splat(code.load(own, F32, tile.steps))
        start = code.splat(code.load(own, I32, tile.starts + 4 * tile.rows * part)).value if tile.kind.zero else ir.Constant(INTS, None)
        scales = self._columns(self.scales, run, tile.parts, part)
        minima = self._columns(self.minima, run, tile.minima, part) if part < tile.minima else []
        for half in range(HALVES):
            whole = Vector(code, build.add(code.load(wholes, INTS, LINE * half), start)).as_float()
            total = code.fma(whole * scales[half], step, code.floats(place, LINE * half))
            if minima:
                total = code.fma(minima[half], code.splat(code.load(own, F32, tile.sums + 4 * tile.rows * part)), total)
            code.store(total.value, place, LINE * half)
