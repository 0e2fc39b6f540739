"""Panels of bfloat16 multiplied by registers of tiles: 16 rows of activations and 16 of the weight at a time, whose sums stay in registers.

Weights of f16 are two numbers of bfloat16, whose sum they are, activations that meet them two with 16 bits together; three of the four products
are added up, as the fourth one is below the 2^-16th of the first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...runtime.tiles import LINE, ROWS, Shape, Tiles
from ...runtime.vector import Code
from .dot_panel_kernel import COLUMNS
from .dot_tiles_kernel import HALVES, TOTALS
from .pair_panel_kernel import CHUNK, BrainPairs, PairTile
from .rows_kernel import Stored
from .whole_kernel import RUN

PRODUCTS = {1: ((0, 0),), 2: ((0, 0), (0, 1), (1, 0))}
"""Parts of activations and of weights that are multiplied, by the number of parts."""


class TiledBrains(BrainPairs):
    """As `BrainPairs`, for tiles of activations of 32 rows, of which the first 16 or all are multiplied."""

    def __init__(self, tiles: Callable[[Code, Sequence[Shape]], Tiles], code: Code, tile: PairTile, stored: Stored, scratch: Any) -> None:
        super().__init__(code, tile, stored, scratch)
        self.tiles = tiles(code, [Shape(ROWS, LINE)] * (TOTALS + 2 + HALVES))
        self.tiles.configure()

    def end(self) -> None:
        """No products follow."""
        self.tiles.release()

    def multiply(self, x: Any, runs: Any, sums: Any, rows: int) -> None:
        """Add the products with the first rows of a tile to its sums."""
        code, build, tiles = self.code, self.code.builder, self.tiles
        totals = {(index, half): HALVES * index + half for index in range(rows // ROWS) for half in range(HALVES)}
        places = {key: build.add(sums, code.word(4 * COLUMNS * ROWS * key[0] + LINE * key[1])) for key in totals}
        for key, total in totals.items():
            tiles.load(total, places[key], 4 * COLUMNS)
        with code.loop(code.word(0), runs) as run:
            at = build.add(x, build.mul(run, code.word(self.tile.nbytes)))
            line = build.add(self.numbers, build.mul(run, code.word(2 * COLUMNS * RUN)))
            for left, right in PRODUCTS[self.tile.parts]:
                for half in range(HALVES):
                    tiles.load(TOTALS + 2 + half, build.add(line, code.word(2 * COLUMNS * CHUNK * right + LINE * half)), 4 * COLUMNS)
                for index in range(rows // ROWS):
                    tiles.load(TOTALS + index, build.add(at, code.word(2 * RUN * (self.tile.rows * left + ROWS * index))), 2 * RUN)
                    for half in range(HALVES):
                        tiles.dot_brains(totals[index, half], TOTALS + index, TOTALS + 2 + half)
        for key, total in totals.items():
            tiles.store(total, places[key], 4 * COLUMNS)
