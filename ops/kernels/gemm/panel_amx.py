"""int8 and bf16 panels multiplied by AMX tiles: 16 rows of activations by 16 rows of the weight.

Two tiles of activations meet two of the weight, so that each is loaded for two products. Integer sums go through
memory, where the run's scales and steps meet them: with a scale for each 32 neighbours that is most of the work.

Weights of f16 are two numbers of bfloat16, whose sum they are, activations that meet them two with 16 bits together;
three of the four products are added up, as the fourth one is below the 2^-16th of the first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir

from ....runtime.simd.amx import LINE, ROWS, Shape, Tiles
from ....runtime.simd.dot_product import INTS
from ....runtime.simd.llvm_vector import F32, I32, Code, Vector
from .gemv import WeightRows
from .gemv_int8 import RUN
from .panel import COLUMNS, VECTORS
from .panel_16bit import CHUNK, Bf16Pairs, PairTile
from .panel_int8 import QUAD, Int8Panel, Int8Tile

TOTALS = 4
"""Tiles 0 to 3 hold sums, row by row of tiles; then come two of activations and two of the weight."""
PRODUCTS = {1: ((0, 0),), 2: ((0, 0), (0, 1), (1, 0))}
"""Parts of activations and of weights that are multiplied, by the number of parts."""


class AmxInt8Panel(Int8Panel):
    """As `Int8Panel`, for tiles of activations of 32 rows, of which the first 16 or all are multiplied."""

    def __init__(
        self,
        tiles: Callable[[Code, Sequence[Shape]], Tiles],
        code: Code,
        tile: Int8Tile,
        stored: WeightRows,
        scratch: Any,
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

    def multiply(self, x: Any, depth: Any, sums: Any, rows: int, vectors: int = VECTORS) -> None:
        """Add the products with the first rows of a tile to its sums."""
        code, build, tile = self.code, self.code.builder, self.tile
        with code.loop(code.word(0), build.sdiv(depth, code.word(RUN))) as run:
            at = build.add(x, build.mul(run, code.word(tile.nbytes)))
            for part in range(tile.parts):
                self._multiply_part(at, run, part, rows)
                with code.loop(code.word(0), code.word(rows)) as row:
                    self._add(at, run, part, row, sums)

    def _multiply_part(self, at: Any, run: Any, part: int, rows: int) -> None:
        """The integers of a part of a run, [rows, COLUMNS]."""
        build, code, tiles = self.code.builder, self.code, self.tiles
        line = build.add(self.elements, build.mul(run, code.word(COLUMNS * RUN)))
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
        scales = self.columns(self.scales, run, tile.parts, part)
        minima = self.columns(self.minima, run, tile.minima, part) if part < tile.minima else []
        for half in range(VECTORS):
            whole = Vector(code, build.add(code.load(integer_sums, INTS, LINE * half), start)).as_float()
            total = code.fma(whole * scales[half], step, code.floats(place, LINE * half))
            if minima:
                total = code.fma(minima[half], code.splat(code.load(own, F32, tile.sums + 4 * tile.rows * part)), total)
            code.store(total.value, place, LINE * half)


class AmxBf16Panel(Bf16Pairs):
    """As `Bf16Pairs`, for tiles of activations of 32 rows, of which the first 16 or all are multiplied."""

    def __init__(
        self,
        tiles: Callable[[Code, Sequence[Shape]], Tiles],
        code: Code,
        tile: PairTile,
        stored: WeightRows,
        scratch: Any,
    ) -> None:
        super().__init__(code, tile, stored, scratch)
        self.tiles = tiles(code, [Shape(ROWS, LINE)] * (TOTALS + 2 + VECTORS))
        self.tiles.configure()

    def release(self) -> None:
        """No products follow."""
        self.tiles.release()

    def multiply(self, x: Any, depth: Any, sums: Any, rows: int, vectors: int = VECTORS) -> None:
        """Add the products with the first rows of a tile to its sums."""
        code, build, tiles = self.code, self.code.builder, self.tiles
        totals = {(index, half): VECTORS * index + half for index in range(rows // ROWS) for half in range(VECTORS)}
        places = {key: build.add(sums, code.word(4 * COLUMNS * ROWS * key[0] + LINE * key[1])) for key in totals}
        for key, total in totals.items():
            tiles.load(total, places[key], 4 * COLUMNS)
        with code.loop(code.word(0), build.sdiv(depth, code.word(RUN))) as run:
            at = build.add(x, build.mul(run, code.word(self.tile.nbytes)))
            line = build.add(self.elements, build.mul(run, code.word(2 * COLUMNS * RUN)))
            for left, right in PRODUCTS[self.tile.parts]:
                for half in range(VECTORS):
                    tiles.load(
                        TOTALS + 2 + half,
                        build.add(line, code.word(2 * COLUMNS * CHUNK * right + LINE * half)),
                        4 * COLUMNS,
                    )
                for index in range(rows // ROWS):
                    tiles.load(
                        TOTALS + index,
                        build.add(at, code.word(2 * RUN * (self.tile.rows * left + ROWS * index))),
                        2 * RUN,
                    )
                    for half in range(VECTORS):
                        tiles.dot_bf16(totals[index, half], TOTALS + index, TOTALS + 2 + half)
        for key, total in totals.items():
            tiles.store(total, places[key], 4 * COLUMNS)
