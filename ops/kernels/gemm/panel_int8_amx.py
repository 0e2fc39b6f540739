"""int8 panels multiplied by AMX tiles: 16 rows of activations by 16 rows of the weight.

Two tiles of activations meet two of the weight, so that each is loaded for two products. Their sums of integers go
through memory, where the run's scales and steps meet them: with a scale for each 32 neighbours that is most of the
work.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir

from ....runtime.simd.amx import LINE, ROWS, Shape, Tiles
from ....runtime.simd.dot_product import INTS
from ....runtime.simd.llvm_vector import F32, I32, LANES, Code, Vector
from .gemv import WeightRows
from .gemv_int8 import RUN
from .panel_int8_vnni import COLUMNS, QUAD, Panel, Tile

VECTORS = COLUMNS // LANES
TOTALS = 4
"""Tiles 0 to 3 hold sums, row by row of tiles; then come two of activations and two of the weight."""


class AmxInt8Panel(Panel):
    """As `Panel`, for tiles of activations of 32 rows, of which the first 16 or all are multiplied."""

    def __init__(
        self, tiles: Callable[[Code, Sequence[Shape]], Tiles], code: Code, tile: Tile, stored: WeightRows, scratch: Any
    ) -> None:
        super().__init__(code, tile, stored, scratch)
        self.depth = RUN // tile.parts
        shapes = (
            [Shape(ROWS, LINE)] * TOTALS + [Shape(ROWS, self.depth)] * 2 + [Shape(self.depth // QUAD, LINE)] * VECTORS
        )
        self.tiles = tiles(code, shapes)
        self.tiles.configure()

    def release(self) -> None:
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
        """The integers of a part of a run, [rows, COLUMNS]."""
        build, code, tiles = self.code.builder, self.code, self.tiles
        line = build.add(self.codes, build.mul(run, code.word(COLUMNS * RUN)))
        places = [build.add(line, code.word(COLUMNS * self.depth * part + LINE * half)) for half in range(VECTORS)]
        for half, place in enumerate(places):
            tiles.load(TOTALS + 2 + half, place, COLUMNS * QUAD)
        for index in range(rows // ROWS):
            tiles.load(TOTALS + index, build.add(at, code.word(RUN * ROWS * index + self.depth * part)), RUN)
            for half in range(VECTORS):
                total = VECTORS * index + half
                tiles.zero(total)
                tiles.dot(total, TOTALS + index, TOTALS + 2 + half)
                tiles.store(
                    total,
                    build.add(self.integer_sums, code.word(4 * COLUMNS * ROWS * index + LINE * half)),
                    4 * COLUMNS,
                )

    def _add(self, at: Any, run: Any, part: int, row: Any, sums: Any) -> None:
        """The numbers of a row with their scales and step to its sums, and its share of the minima."""
        code, build, tile = self.code, self.code.builder, self.tile
        offset = build.mul(row, code.word(4 * COLUMNS))
        place, integer_sums = build.add(sums, offset), build.add(self.integer_sums, offset)
        own = build.add(at, build.shl(row, code.word(2)))
        step = code.splat(code.load(own, F32, tile.steps))
        start = (
            code.splat(code.load(own, I32, tile.starts + 4 * tile.rows * part)).value
            if tile.kind.zero
            else ir.Constant(INTS, None)
        )
        scales = self._columns(self.scales, run, tile.parts, part)
        minima = self._columns(self.minima, run, tile.minima, part) if part < tile.minima else []
        for half in range(VECTORS):
            whole = Vector(code, build.add(code.load(integer_sums, INTS, LINE * half), start)).as_float()
            total = code.fma(whole * scales[half], step, code.floats(place, LINE * half))
            if minima:
                total = code.fma(minima[half], code.splat(code.load(own, F32, tile.sums + 4 * tile.rows * part)), total)
            code.store(total.value, place, LINE * half)
