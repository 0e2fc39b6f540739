"""Tensor-core GEMM skeleton: double-buffered tiles of both operands in shared memory, and one sub-tile of the output
per warp.

Tiles hold int32 words along the depth, so that a row of a tile is a row (or a column) of the operand. Rows are
padded by four words to avoid bank conflicts of ldmatrix. Source of the word order: PTX ISA, ``ldmatrix``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from ...base.dataclass import dataclass
from ..device.device import SIMULATED
from ..kernel.operand import Writer

LANES = 32


@dataclass(frozen=True)
class Tiling:
    """The division of a block's output tile among warps.

    Attributes:
        warps: along rows and columns.
        tiles: of 16 rows and of 8 columns that a warp has; an even number of columns' tiles.
        words: of 32 bits along the depth that are held at a time, a multiple of eight.
    """

    warps: tuple[int, int]
    tiles: tuple[int, int]
    words: int

    @property
    def rows(self) -> int:
        """Rows of the block's tile."""
        return 16 * self.warps[0] * self.tiles[0]

    @property
    def columns(self) -> int:
        """Columns of the block's tile."""
        return 8 * self.warps[1] * self.tiles[1]

    @property
    def pitch(self) -> int:
        """int32 words from one row in shared memory to the next."""
        return self.words + 4

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return LANES * self.warps[0] * self.warps[1]


TILINGS = (
    (Tiling((1, 1), (1, 2), 8),)
    if SIMULATED
    else (Tiling((1, 4), (1, 4), 16), Tiling((1, 4), (2, 4), 16), Tiling((2, 4), (4, 4), 16))
)
"""Tilings by increasing number of rows."""


def tiling_for(rows: int, among: Sequence[Tiling] = TILINGS) -> Tiling:
    """The smallest tiling with at least `rows` rows, or the largest."""
    return next((item for item in among if item.rows >= rows), among[-1])


def shared(name: str, count: int, dtype: str) -> str:
    """Code of a 16-byte aligned shared array."""
    return f"{name} = cuda.shared.array({count}, np.{dtype}{'' if SIMULATED else ', 16'})"


Fill = Callable[[Writer, str, str], None]
"""Writes code at depth 3 that loads one stage of a tile, from the operand's first depth index to the tile's first
word."""


def head(writer: Writer, tiling: Tiling) -> None:
    """Write the indices of thread, block tile and warp; `tiles_x` and `tiles_y` count tiles of columns and rows."""
    _, across = tiling.warps
    writer.add(
        1,
        shared("left", 2 * tiling.rows * tiling.pitch, "int32"),
        shared("right", 2 * tiling.columns * tiling.pitch, "int32"),
        "thread = np.int64(cuda.threadIdx.x)",
        f"lane, warp = thread % {LANES}, thread // {LANES}",
        "tile_x = np.int64(cuda.blockIdx.x) % tiles_x",
        "tile_y = np.int64(cuda.blockIdx.x) // tiles_x % tiles_y",
        "matrix = np.int64(cuda.blockIdx.x) // tiles_x // tiles_y",
        f"warp_row, warp_column = warp // {across} * {16 * tiling.tiles[0]}, warp % {across} * {8 * tiling.tiles[1]}",
        f"left_at = (warp_row + lane % 16) * {tiling.pitch} + lane // 16 * 4",
        f"right_at = (warp_column + lane % 8 + lane // 16 * 8) * {tiling.pitch} + lane // 8 % 2 * 4",
    )
    for name in sums(tiling):
        writer.add(1, f"{name} = np.float32(0)")


def sums(tiling: Tiling) -> list[str]:
    """Names of a thread's accumulators."""
    return [f"s{i}_{j}_{e}" for i in range(tiling.tiles[0]) for j in range(tiling.tiles[1]) for e in range(4)]


def stages(writer: Writer, tiling: Tiling, deep: int, fills: Sequence[Fill], compute: Callable[[], None]) -> None:
    """Write the loop over the depth, `deep` elements per stage: the next stage is loaded while the current one,
    `stage`, is multiplied at depth 3."""
    writer.add(
        1,
        "stage = np.int64(1)",
        f"for base in range(-{deep}, depth, {deep}):",
        f"    after = base + {deep}",
        "    if after < depth:",
    )
    writer.add(
        3,
        f"left_to, right_to = (1 - stage) * {tiling.rows * tiling.pitch}, (1 - stage) * "
        f"{tiling.columns * tiling.pitch}",
    )
    for fill, to in zip(fills, ("left_to", "right_to"), strict=True):
        fill(writer, "after", to)
    writer.add(2, "cp_async_commit()", "if base >= 0:", "    cp_async_wait(1)", "    cuda.syncthreads()")
    writer.add(
        3,
        f"left_from, right_from = stage * {tiling.rows * tiling.pitch} + left_at, stage * "
        f"{tiling.columns * tiling.pitch} + right_at",
    )
    compute()
    writer.add(3, "cuda.syncthreads()")
    writer.add(2, "stage = 1 - stage")


def loads(writer: Writer, tiling: Tiling, word: int, level: int = 3) -> None:
    """Write the loads of both operands' registers from word `word` of a tile: ``a0_0`` to ``a0_3``, ``b0_0``,
    ``b0_1``, ..."""
    for i in range(tiling.tiles[0]):
        registers = ", ".join(f"a{i}_{item}" for item in range(4))
        writer.add(level, f"{registers} = ldmatrix(left, left_from + {i * 16 * tiling.pitch + word})")
    for j in range(0, tiling.tiles[1], 2):
        registers = f"b{j}_0, b{j}_1, b{j + 1}_0, b{j + 1}_1"
        writer.add(level, f"{registers} = ldmatrix(right, right_from + {j * 8 * tiling.pitch + word})")


def multiply_stage(writer: Writer, tiling: Tiling, kind: str) -> None:
    """Write the products of a stage of 16-bit elements."""
    for word in range(0, tiling.words, 8):
        loads(writer, tiling, word)
        for i in range(tiling.tiles[0]):
            for j in range(tiling.tiles[1]):
                totals = ", ".join(f"s{i}_{j}_{e}" for e in range(4))
                operands = ", ".join([f"a{i}_{item}" for item in range(4)] + [f"b{j}_{item}" for item in range(2)])
                writer.add(3, f"{totals} = mma_{kind}({totals}, {operands})")


def grid(writer: Writer, tiling: Tiling, rows: int, columns: int, stack: int) -> int:
    """Add the grid's parameters; return the number of blocks."""
    tiles = (-(-columns // tiling.columns), -(-rows // tiling.rows), stack)
    writer.parameter("tiles_x", tiles[0])
    writer.parameter("tiles_y", tiles[1])
    return math.prod(tiles)


Line = Callable[[int, str], None]
"""Writes code at a depth for a variable."""


def stores(writer: Writer, tiling: Tiling, row: Line, column: Line, store: Line) -> None:
    """Write a loop over a thread's accumulators with row ``m`` and column ``n`` in bounds, with code per row, per
    column, and per store."""
    down, across = tiling.tiles
    for i in range(down):
        for side in range(2):
            writer.add(1, f"m = tile_y * {tiling.rows} + warp_row + {16 * i + 8 * side} + lane // 4", "if m < rows:")
            row(2, "m")
            for j in range(across):
                for item in range(2):
                    writer.add(
                        2,
                        f"n = tile_x * {tiling.columns} + warp_column + {8 * j + item} + lane % 4 * 2",
                        "if n < columns:",
                    )
                    column(3, "n")
                    store(3, f"s{i}_{j}_{2 * side + item}")
