"""Patch grid: the row and column of each patch where pictures of several sizes lie one after another.

The patches of a frame are in the order of squares of `merge` x `merge` patches, each of which becomes one token; with 1
they are in rows. All is computed in the graph from ``grid_thw`` i64 [pictures, 3]: frames, rows and columns.
"""

from __future__ import annotations

from ....runtime.ir.graph import Value
from ..net import Net

FRAME, WINDOW_ROW = 1 << 40, 1 << 20
"""Factors of the numbers of a frame and of a row of windows in the number of a window."""


class PatchGrid:
    """Positions of patches.

    Args:
        sizes: i64 [pictures, 3].
        count: the number of patches, i64 [1].
        merge: see above.

    Attributes:
        rows, columns: of each patch in its frame, i64 [patches].
        heights, widths: of the frame of each patch, in patches, i64 [patches].
        frames: a number for each frame, of each patch, i64 [patches].
        raster: the index of the same patch where frames are in rows, i64 [patches].
    """

    def __init__(self, net: Net, sizes: Value, count: Value, merge: int) -> None:
        self.net = net
        zero, one = net.Constant(value_int=0), net.Constant(value_int=1)
        counts = net.ReduceProd(sizes, [1], keepdims=0)
        ends = net.CumSum(counts, zero)
        order = net.Range(zero, net.Squeeze(count), one)
        passed = net.LessOrEqual(net.Unsqueeze(ends, [0]), net.Unsqueeze(order, [1]))
        picture = net.ReduceSum(net.Cast(passed, to=7), [1], keepdims=0)
        starts = net.Gather(net.Sub(ends, counts), picture)
        own = net.Gather(sizes, picture)
        self.heights, self.widths = (net.Squeeze(net.Slice(own, [i], [i + 1], [1]), [1]) for i in (1, 2))
        area = net.Mul(self.heights, self.widths)
        frame, inside = _divided(net, net.Sub(order, starts), area)
        square, corner = _divided(net, inside, [merge * merge])
        square_row, square_column = _divided(net, square, net.Div(self.widths, [merge]))
        inner_row, inner_column = _divided(net, corner, [merge])
        self.rows = net.Add(net.Mul(square_row, [merge]), inner_row)
        self.columns = net.Add(net.Mul(square_column, [merge]), inner_column)
        self.frames = net.Add(starts, frame)
        first = net.Add(starts, net.Mul(frame, area))
        self.raster = net.Add(first, net.Add(net.Mul(self.rows, self.widths), self.columns))

    def same_frame(self) -> Value:
        """Whether patches are in one frame and see each other, bool [1, 1, patches, patches]."""
        value: Value = self.net.once("same_frame", lambda: self._equal(self.frames))
        return value

    def same_window(self, size: int) -> Value:
        """Whether patches are in one window of `size` x `size` patches and see each other, bool [1, 1, patches,
        patches]."""
        net = self.net
        row, column = net.Div(self.rows, [size]), net.Div(self.columns, [size])
        number = net.Add(net.Mul(self.frames, [FRAME]), net.Add(net.Mul(row, [WINDOW_ROW]), column))
        value: Value = net.once(("same_window", size), lambda: self._equal(number))
        return value

    def _equal(self, number: Value) -> Value:
        net = self.net
        value: Value = net.Unsqueeze(net.Equal(net.Unsqueeze(number, [1]), net.Unsqueeze(number, [0])), [0, 1])
        return value

    def interpolated(self, table: Value, side: int, *, align_corners: bool) -> Value:
        """Embeddings [patches, width] at the position of each patch, by linear interpolation of a square table [side x
        side, width]."""
        net = self.net
        axes = [
            self._neighbors(place, length, side, align_corners)
            for place, length in ((self.rows, self.heights), (self.columns, self.widths))
        ]
        terms = [
            net.Mul(
                net.Gather(table, net.Add(net.Mul(row, [side]), column)),
                net.Unsqueeze(net.Mul(row_share, column_share), [1]),
            )
            for row, row_share in axes[0]
            for column, column_share in axes[1]
        ]
        total: Value = net.Sum(*terms)
        return total

    def _neighbors(self, place: Value, length: Value, side: int, align_corners: bool) -> list[tuple[Value, Value]]:
        """The two entries of a table nearest to a position on an axis, and their shares."""
        net = self.net
        x = net.Cast(place, to=1)
        if align_corners:
            x = net.Div(net.Mul(x, float(side - 1)), net.Cast(net.Max(net.Sub(length, [1]), [1]), to=1))
        else:
            x = net.Sub(net.Div(net.Mul(net.Add(x, 0.5), float(side)), net.Cast(length, to=1)), 0.5)
        below = net.Floor(x)
        share = net.Sub(x, below)
        first = net.Cast(below, to=7)

        def kept(index: Value) -> Value:
            value: Value = net.Min(net.Max(index, [0]), [side - 1])
            return value

        return [(kept(first), net.Sub(1.0, share)), (kept(net.Add(first, [1])), share)]


def _divided(net: Net, x: Value, by: Value | list[int]) -> tuple[Value, Value]:
    """Quotient and remainder of integers."""
    quotient = net.Div(x, by)
    return quotient, net.Sub(x, net.Mul(quotient, by))
