"""A tile of a convolution's output, kept in registers while it runs along the elements of its windows, which are read where they lie.

Rows are positions of the output, columns are output channels; kernels come in panels of these, as for other products.
"""

# mypy: disable-error-code="misc, untyped-decorator"
from __future__ import annotations

from typing import Any

from llvmlite import ir

from ...runtime.compiler import intrinsic, types
from ...runtime.kernel import inner
from ..math.tile_kernel import ABREAST, EIGHT, FOUR, INT, NARROW, PANEL, ROWS, SIXTEEN, VECTOR, along, line, loaded, rows_of_tile, written

LINE = 64
"""Bytes of a line of memory, which holds a block of sixteen channels."""
CHUNK = 48
"""Rows that are computed at a time, while the input of the next ones is asked for."""


def _vectors(builder: Any, args: Any, rows: int, taken: range, blocked: bool, even: bool) -> None:
    """Some vectors of each row of a tile."""
    a, places, taps, count, depth, a_step, b, c, c_row, apart, columns, low, high, ahead = args
    known = 1 if even else rows
    lines = [builder.add(a, loaded(builder, builder.add(places, ir.Constant(INT, 8 * row)), INT)) for row in range(known)]
    lines += [builder.add(lines[0], ir.Constant(INT, row * (LINE if blocked else 4))) for row in range(known, rows)]
    starts, zero, before = line(builder, columns, taken) * rows, ir.Constant(INT, 0), builder.block
    loop, after = builder.append_basic_block("taps"), builder.append_basic_block("all")
    builder.branch(loop)
    builder.position_at_end(loop)
    tap, at = builder.phi(INT), builder.phi(INT)
    sums = [builder.phi(VECTOR) for _ in starts]
    for phi, start in zip((tap, at, *sums), (zero, b, *starts), strict=True):
        phi.add_incoming(start, before)
    shift = loaded(builder, builder.add(taps, builder.mul(tap, ir.Constant(INT, 8))), INT)
    beside, pace = (LINE * ROWS, LINE // 4) if blocked else (4 * CHUNK, 1)
    found = along(builder, depth, a_step, at, sums, lines, taken, ahead, shift, beside, pace)
    following, end = builder.add(tap, ir.Constant(INT, 1)), builder.block
    further = builder.add(at, builder.mul(depth, ir.Constant(INT, 4 * PANEL)))
    for phi, value in zip((tap, at, *sums), (following, further, *found), strict=True):
        phi.add_incoming(value, end)
    builder.cbranch(builder.icmp_signed("<", following, count), loop, after)
    builder.position_at_end(after)
    written(builder, found, taken, c, c_row, low, high, apart)


def _tile(rows: int, halves: int, blocked: bool, even: bool) -> Any:
    """A tile of `rows` rows and 16 or 32 columns."""

    @intrinsic
    def tile(
        typing: Any, a: Any, places: Any, taps: Any, count: Any, depth: Any, a_step: Any, b: Any, c: Any, c_row: Any, apart: Any, columns: Any,
        low: Any, high: Any, ahead: Any,
    ) -> Any:
        def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            for first in range(0, halves, ABREAST):
                _vectors(builder, args, rows, range(first, min(halves, first + ABREAST)), blocked, even)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 11, types.float32, types.float32, types.int64), lower

    return tile


def columns_of_windows(blocked: bool, even: bool) -> Any:
    """What computes rows of a panel of outputs, of an input whose channels are blocked or not, and whose windows are elements one behind the other or
    anywhere."""
    main, eight, four, two, one = (_tile(rows, 2, blocked, even) for rows in (ROWS, EIGHT, FOUR, 2, 1))
    narrow, narrow_four, narrow_one = (_tile(rows, 1, blocked, even) for rows in (SIXTEEN, 4, 1))

    @inner
    def column_of_windows(
        a: Any, places: Any, taps: Any, count: Any, depth: Any, a_step: Any, b: Any, c: Any, c_row: Any, apart: Any, rows: Any, width: Any,
        columns: Any, low: Any, high: Any, distance: Any,
    ) -> None:
        """Rows of a panel of outputs.

        Args:
            a: address of the input.
            places: bytes from there to the window of each row, i64.
            taps: bytes from the begin of a window to each of its `count` stretches, i64.
            depth, a_step: elements of a stretch, and bytes from one to the next.
            b: the panel [count, depth, PANEL].
            c_row, apart: bytes from one row of the result at `c` to the next, and from one vector of sixteen outputs to the next.
            width: 16 or 32 columns.
            columns: address of what they start from.
            distance: as `column_of_tiles` has it.
        """
        row = 0
        while row < rows:
            left = rows - row
            at, to, ahead = places + 8 * row, c + row * c_row, distance if row == 0 else 0
            if width == NARROW:
                done = SIXTEEN if left >= SIXTEEN else 4 if left >= 4 else 1
                if done == SIXTEEN:
                    narrow(a, at, taps, count, depth, a_step, b, to, c_row, apart, columns, low, high, ahead)
                elif done == 4:
                    narrow_four(a, at, taps, count, depth, a_step, b, to, c_row, apart, columns, low, high, ahead)
                else:
                    narrow_one(a, at, taps, count, depth, a_step, b, to, c_row, apart, columns, low, high, ahead)
            else:
                done = rows_of_tile(left)
                if done == ROWS:
                    main(a, at, taps, count, depth, a_step, b, to, c_row, apart, columns, low, high, ahead)
                elif done == EIGHT:
                    eight(a, at, taps, count, depth, a_step, b, to, c_row, apart, columns, low, high, ahead)
                elif done == FOUR:
                    four(a, at, taps, count, depth, a_step, b, to, c_row, apart, columns, low, high, ahead)
                elif done == 2:
                    two(a, at, taps, count, depth, a_step, b, to, c_row, apart, columns, low, high, ahead)
                else:
                    one(a, at, taps, count, depth, a_step, b, to, c_row, apart, columns, low, high, ahead)
            row += done

    return column_of_windows
