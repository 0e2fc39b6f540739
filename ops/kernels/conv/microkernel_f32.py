"""Convolution microkernel: a tile of outputs in registers, accumulated over window elements that are read in place.

Rows are positions of the output, columns are output channels; kernels come in panels of these, as for other products.
"""

# mypy: disable-error-code="misc, untyped-decorator"
from __future__ import annotations

from typing import Any

from llvmlite import ir

from ....runtime.jit.numba_lazy import intrinsic, types
from ....runtime.jit.range_kernel import inner
from ..gemm.microkernel_f32 import (
    EIGHT,
    FOUR,
    INT,
    NARROW,
    PANEL,
    ROWS,
    SIXTEEN,
    TILE_VECTORS,
    VECTOR,
    accumulate,
    load,
    load_vectors,
    rows_of_tile,
    store_rows,
)

LINE = 64
"""Bytes of a line of memory, which holds a block of sixteen channels."""
CHUNK = 48
"""Rows that are computed at a time, while the input of the next ones is asked for."""


def _vectors(builder: Any, args: Any, rows: int, vectors: range, blocked: bool, even: bool) -> None:
    """Some vectors of each row of a tile."""
    a, offsets, taps, count, depth, a_step, b, c, c_row, vector_step, columns, low, high, ahead = args
    known = 1 if even else rows
    lines = [
        builder.add(a, load(builder, builder.add(offsets, ir.Constant(INT, 8 * row)), INT)) for row in range(known)
    ]
    lines += [builder.add(lines[0], ir.Constant(INT, row * (LINE if blocked else 4))) for row in range(known, rows)]
    starts, zero, before = load_vectors(builder, columns, vectors) * rows, ir.Constant(INT, 0), builder.block
    loop, after = builder.append_basic_block("taps"), builder.append_basic_block("all")
    builder.branch(loop)
    builder.position_at_end(loop)
    tap, at = builder.phi(INT), builder.phi(INT)
    sums = [builder.phi(VECTOR) for _ in starts]
    for phi, start in zip((tap, at, *sums), (zero, b, *starts), strict=True):
        phi.add_incoming(start, before)
    shift = load(builder, builder.add(taps, builder.mul(tap, ir.Constant(INT, 8))), INT)
    row_ahead, pace = (LINE * ROWS, LINE // 4) if blocked else (4 * CHUNK, 1)
    found = accumulate(builder, depth, a_step, at, sums, lines, vectors, ahead, shift, row_ahead, pace)
    following, end = builder.add(tap, ir.Constant(INT, 1)), builder.block
    further = builder.add(at, builder.mul(depth, ir.Constant(INT, 4 * PANEL)))
    for phi, value in zip((tap, at, *sums), (following, further, *found), strict=True):
        phi.add_incoming(value, end)
    builder.cbranch(builder.icmp_signed("<", following, count), loop, after)
    builder.position_at_end(after)
    store_rows(builder, found, vectors, c, c_row, low, high, vector_step)


def _tile(rows: int, halves: int, blocked: bool, even: bool) -> Any:
    """A tile of `rows` rows and 16 or 32 columns."""

    @intrinsic
    def tile(
        typing: Any,
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
        columns: Any,
        low: Any,
        high: Any,
        ahead: Any,
    ) -> Any:
        def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            for first in range(0, halves, TILE_VECTORS):
                _vectors(builder, args, rows, range(first, min(halves, first + TILE_VECTORS)), blocked, even)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 11, types.float32, types.float32, types.int64), lower

    return tile


def microkernel_column(blocked: bool, even: bool) -> Any:
    """The function that computes rows of a panel of outputs; `blocked`: the input is NCHW16c; `even`: windows are
    single consecutive elements."""
    main, eight, four, two, one = (_tile(rows, 2, blocked, even) for rows in (ROWS, EIGHT, FOUR, 2, 1))
    narrow, narrow_four, narrow_one = (_tile(rows, 1, blocked, even) for rows in (SIXTEEN, 4, 1))

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
    ) -> None:
        """Rows of a panel of outputs.

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
        """
        row = 0
        while row < rows:
            left = rows - row
            at, to, ahead = offsets + 8 * row, c + row * c_row, distance if row == 0 else 0
            if width == NARROW:
                done = SIXTEEN if left >= SIXTEEN else 4 if left >= 4 else 1
                if done == SIXTEEN:
                    narrow(a, at, taps, count, depth, a_step, b, to, c_row, vector_step, columns, low, high, ahead)
                elif done == 4:
                    narrow_four(a, at, taps, count, depth, a_step, b, to, c_row, vector_step, columns, low, high, ahead)
                else:
                    narrow_one(a, at, taps, count, depth, a_step, b, to, c_row, vector_step, columns, low, high, ahead)
            else:
                done = rows_of_tile(left)
                if done == ROWS:
                    main(a, at, taps, count, depth, a_step, b, to, c_row, vector_step, columns, low, high, ahead)
                elif done == EIGHT:
                    eight(a, at, taps, count, depth, a_step, b, to, c_row, vector_step, columns, low, high, ahead)
                elif done == FOUR:
                    four(a, at, taps, count, depth, a_step, b, to, c_row, vector_step, columns, low, high, ahead)
                elif done == 2:
                    two(a, at, taps, count, depth, a_step, b, to, c_row, vector_step, columns, low, high, ahead)
                else:
                    one(a, at, taps, count, depth, a_step, b, to, c_row, vector_step, columns, low, high, ahead)
            row += done

    return column_of_windows
