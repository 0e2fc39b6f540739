"""bf16 panels multiplied by AMX tiles: 16 rows of activations by 16 rows of the weight.

Weights of f16 are two numbers of bfloat16, whose sum they are, activations that meet them two with 16 bits together;
three of the four products are added up, as the fourth one is below the 2^-16th of the first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ....runtime.simd.amx import LINE, ROWS, Shape, Tiles
from ....runtime.simd.llvm_vector import Code
from .gemv import WeightRows
from .gemv_int8 import RUN
from .panel_16bit import CHUNK, Bf16Pairs, PairTile
from .panel_int8_amx import TOTALS, VECTORS
from .panel_int8_vnni import COLUMNS

PRODUCTS = {1: ((0, 0),), 2: ((0, 0), (0, 1), (1, 0))}
"""Parts of activations and of weights that are multiplied, by the number of parts."""


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

    def multiply(self, x: Any, runs: Any, sums: Any, rows: int) -> None:
        """Add the products with the first rows of a tile to its sums."""
        code, build, tiles = self.code, self.code.builder, self.tiles
        totals = {(index, half): VECTORS * index + half for index in range(rows // ROWS) for half in range(VECTORS)}
        places = {key: build.add(sums, code.word(4 * COLUMNS * ROWS * key[0] + LINE * key[1])) for key in totals}
        for key, total in totals.items():
            tiles.load(total, places[key], 4 * COLUMNS)
        with code.loop(code.word(0), runs) as run:
            at = build.add(x, build.mul(run, code.word(self.tile.nbytes)))
            line = build.add(self.numbers, build.mul(run, code.word(2 * COLUMNS * RUN)))
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
