"""Convolution microkernel: a tile of outputs in registers, accumulated over window elements that are read in place.

Rows are positions of the output, columns are output channels; kernels come in panels of these, as for other products.
"""

# mypy: disable-error-code="misc, untyped-decorator"
from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ....runtime.jit.range_kernel import inner
from ....runtime.simd.llvm_vector import I64, Code
from ..gemm.microkernel_f32 import HEIGHTS, LAST_ROWS, NARROW, NARROW_HEIGHTS, ROWS, WIDE, vector_groups
from ..gemm.register_tile import FLOATS, PANEL, VECTOR, Columns, Lines, accumulate, limit_and_store, tiles_by_rows

LINE = 64
"""Bytes of a line of memory, which holds a block of sixteen channels."""
PIECE_DEPTH, WHOLE_DEPTH = 128, 1024 if WIDE else 128
"""Elements of the common dimension whose panel stays in the first cache while all rows are computed, and those up to
which it is not cut: registers of AVX-512 hold twice as many sums for each element of a panel."""
CHUNK = 48
"""Rows that are computed at a time, while the input of the next ones is asked for."""


class WindowTile(NamedTuple):
    """A tile of windows, as `microkernel_column` says.

    Attributes:
        start, start_row, start_step: address of the initial sums, bytes from one row of them to the next (0 where all
            rows have the same), and from one vector to the next.
    """

    a: Any
    offsets: Any
    taps: Any
    count: Any
    depth: Any
    a_step: Any
    b: Any
    c: Any
    c_row: Any
    vector_step: Any
    start: Any
    start_row: Any
    start_step: Any
    ahead: Any
    low: float
    high: float


def _tiles(vectors: int, heights: tuple[int, ...], blocked: bool, apart: int) -> Any:
    """Tiles of 16 or 32 columns."""
    row_ahead, pace = (LINE * ROWS * max(1, apart), LINE // 4) if blocked else (4 * CHUNK, 1)
    row_ahead = row_ahead if WIDE else 0

    def write(code: Code, rows: int, tile: WindowTile) -> None:
        build, known = code.builder, 1 if apart else rows
        lines = [build.add(tile.a, code.load(tile.offsets, I64, 8 * row)) for row in range(known)]
        lines += [build.add(lines[0], code.word(row * apart * (LINE if blocked else 4))) for row in range(known, rows)]
        for group in vector_groups(vectors):

            def tap(index: Any, held: list[Any], group: range = group) -> list[Any]:
                at, *sums = held
                shift = code.load(build.add(tile.taps, build.mul(index, code.word(8))), I64)
                windows = Lines(lines, tile.a_step, shift, row_ahead, pace, unrolled=blocked and not WIDE)
                found = accumulate(code, tile.depth, sums, windows, Columns(at, group, tile.ahead if WIDE else None))
                return [build.add(at, build.mul(tile.depth, code.word(4 * PANEL))), *found]

            found = code.repeat(tile.count, [tile.b, *_starts(code, tile, rows, group)], tap)[1:]
            limit_and_store(code, found, group, (tile.c, tile.c_row, tile.vector_step), tile.low, tile.high)

    return tiles_by_rows(heights, WindowTile, write, LAST_ROWS if apart == 1 and vectors > 1 else ())


def _starts(code: Code, tile: WindowTile, rows: int, group: range) -> list[Any]:
    """Initial values of the sums of some vectors of each row; those of all rows are loaded once where they are the
    same."""
    build, ends = code.builder, []

    def loaded(row: int) -> list[Any]:
        place = build.add(tile.start, build.mul(tile.start_row, code.word(row)))
        return [code.load(build.add(place, build.mul(tile.start_step, code.word(half))), FLOATS) for half in group]

    with build.if_else(build.icmp_signed("==", tile.start_row, code.word(0))) as (same, different):
        with same:
            ends.append((loaded(0) * rows, build.block))
        with different:
            ends.append(([value for row in range(rows) for value in loaded(row)], build.block))
    values = [build.phi(FLOATS) for _ in range(rows * len(group))]
    for found, block in ends:
        for value, each in zip(values, found, strict=True):
            value.add_incoming(each, block)
    return values


def microkernel_column(blocked: bool, apart: int) -> Any:
    """The function that computes rows of a panel of outputs; `blocked`: the input is NCHW16c; `apart`: elements from
    each window to the next, 0 if that varies."""
    wide, narrow = _tiles(2, HEIGHTS, blocked, apart), _tiles(1, NARROW_HEIGHTS, blocked, apart)

    @inner
    def column_of_windows(
        a: Any,
        offsets: Any,
        taps: Any,
        count: Any,
        depth: Any,
        a_step: Any,
        b: Any,
        c: Any,
        c_row: Any,
        vector_step: Any,
        rows: Any,
        width: Any,
        columns: Any,
        low: Any,
        high: Any,
        distance: Any,
        following: Any,
    ) -> None:
        """Rows of a panel of outputs; a deep panel is cut into pieces, each of which all rows go through.

        Args:
            a: address of the input.
            offsets: byte offset of the window of each row, i64.
            taps: byte offsets in a window of its `count` segments, i64.
            depth, a_step: elements of a segment, and bytes between them.
            b: the panel [count, depth, PANEL].
            c_row, vector_step: bytes from one row of the result at `c` to the next, and from one vector of sixteen
                outputs to the next.
            width: 16 or 32 columns.
            columns: address of the initial values (biases).
            distance: prefetch distance, as in `column_of_tiles`.
            following: bytes to the panel that is needed next, which the second tile asks for; 0 for none.
        """
        piece = max(1, count if count * depth <= WHOLE_DEPTH else PIECE_DEPTH // depth)
        for first in range(0, max(1, count), piece):
            some, end = min(piece, count - first), first + piece >= count
            least, most = (low, high) if end else (np.float32(-np.inf), np.float32(np.inf))
            part, panel = taps + 8 * first, b + 4 * PANEL * depth * first
            row = 0
            while row < rows:
                left, at, to = rows - row, offsets + 8 * row, c + row * c_row
                ahead = distance if row == 0 else following if row == ROWS else 0
                start, start_row, start_step = (columns, 0, VECTOR) if first == 0 else (to, c_row, vector_step)
                if width == NARROW:
                    row += narrow(
                        left, a, at, part, some, depth, a_step, panel, to, c_row, vector_step,
                        start, start_row, start_step, ahead, least, most,
                    )  # fmt: skip
                else:
                    row += wide(
                        left, a, at, part, some, depth, a_step, panel, to, c_row, vector_step,
                        start, start_row, start_step, ahead, least, most,
                    )  # fmt: skip

    return column_of_windows
