"""In-register transpose of 16 x 16 f32 tiles: gathered rows become vectors of lanes, and back."""

# mypy: disable-error-code="misc, untyped-decorator"
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir

from .....runtime.jit.numba_lazy import intrinsic, types
from .....runtime.simd.vector import LANES, kinds

_I32 = ir.IntType(32)


def _shuffled(builder: Any, a: Any, b: Any, lanes: list[int]) -> Any:
    return builder.shuffle_vector(a, b, ir.Constant(ir.VectorType(_I32, LANES), lanes))


def _transposed(builder: Any, rows: list[Any]) -> list[Any]:
    """The columns of sixteen vectors: four times, rows ``step`` apart exchange every other run of ``step`` lanes."""
    for step in (1, 2, 4, 8):
        low = [lane if not lane & step else lane - step + LANES for lane in range(LANES)]
        high = [lane + step if not lane & step else lane + LANES for lane in range(LANES)]
        exchanged = list(rows)
        for i in range(LANES):
            if not i & step:
                exchanged[i] = _shuffled(builder, rows[i], rows[i + step], low)
                exchanged[i + step] = _shuffled(builder, rows[i], rows[i + step], high)
        rows = exchanged
    return rows


def _pointer(context: Any, builder: Any, kind: Any, array: Any, index: Any, pointee: Any) -> Any:
    data = context.make_array(kind)(context, builder, array).data
    return builder.bitcast(builder.gep(data, [index]), pointee.as_pointer())


@intrinsic
def transpose_in(typing: Any, source: Any, starts: Any, at: Any, lanes: Any) -> Any:
    """Sixteen elements of sixteen float32 rows into a transposed array, from its element ``16 * at``.

    Row r is read from ``source[starts[r] + at]``; `starts` is int64 ``[16]``.
    """

    def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        vector = ir.VectorType(ir.FloatType(), LANES)
        offsets = context.make_array(sig.args[1])(context, builder, args[1]).data
        rows = []
        for row in range(LANES):
            start = builder.load(builder.gep(offsets, [ir.Constant(ir.IntType(64), row)]))
            rows.append(
                builder.load(
                    _pointer(context, builder, sig.args[0], args[0], builder.add(start, args[2]), vector), align=4
                )
            )
        first = builder.mul(args[2], ir.Constant(args[2].type, LANES))
        target = _pointer(context, builder, sig.args[3], args[3], first, vector)
        for column, value in enumerate(_transposed(builder, rows)):
            builder.store(value, builder.gep(target, [ir.Constant(_I32, column)]), align=4)
        return context.get_dummy_value()

    return types.void(source, starts, types.intp, lanes), lower


@intrinsic
def transpose_out(typing: Any, lanes: Any, at: Any, target: Any, first: Any, step: Any) -> Any:
    """Sixteen bytes of sixteen lanes, from element ``16 * at`` of a transposed uint8 array, into rows: row r at
    ``target[first + r * step]``."""

    def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        vector = ir.VectorType(ir.IntType(8), LANES)
        begin = builder.mul(args[1], ir.Constant(args[1].type, LANES))
        source = _pointer(context, builder, sig.args[0], args[0], begin, vector)
        columns = [builder.load(builder.gep(source, [ir.Constant(_I32, i)]), align=1) for i in range(LANES)]
        for row, value in enumerate(_transposed(builder, columns)):
            index = builder.add(args[3], builder.mul(args[4], ir.Constant(args[4].type, row)))
            builder.store(value, _pointer(context, builder, sig.args[2], args[2], index, vector), align=1)
        return context.get_dummy_value()

    return types.void(lanes, types.intp, target, types.intp, types.intp), lower


def _folded(builder: Any, rows: list[Any], keep: Callable[[Any, Any], Any]) -> Any:
    """A vector whose lane r is row r folded to one number: two rows at a time are folded by half into one vector, until
    there is one."""
    owners = [[row] * LANES for row in range(LANES)]
    step = LANES // 2
    while len(rows) > 1:
        chunk = max(4, 2 * step)  # no lane leaves its 128 bits where it need not
        low = [
            lane + row * LANES
            for at in range(0, LANES, chunk)
            for row in (0, 1)
            for lane in range(at, at + chunk)
            if not lane & step
        ]
        half = len(rows) // 2
        pairs = list(zip(range(half), range(half, 2 * half), strict=True))
        high = [lane + step for lane in low]
        rows = [
            keep(_shuffled(builder, rows[i], rows[j], low), _shuffled(builder, rows[i], rows[j], high))
            for i, j in pairs
        ]
        owners = [[(owners[i] + owners[j])[lane] for lane in low] for i, j in pairs]
        step //= 2
    return _shuffled(builder, rows[0], rows[0], [owners[0].index(row) for row in range(LANES)])


def _row_fold(symbol: str, description: str) -> Any:
    @intrinsic
    def fold(typing: Any, tile: Any) -> Any:
        def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            vector = ir.VectorType(ir.FloatType(), LANES)
            source = _pointer(context, builder, sig.args[0], args[0], ir.Constant(ir.IntType(64), 0), vector)
            rows = [builder.load(builder.gep(source, [ir.Constant(_I32, row)]), align=4) for row in range(LANES)]
            return _folded(builder, rows, lambda a, b: builder.select(builder.fcmp_ordered(symbol, a, b), a, b))

        return kinds.F32(tile), lower

    fold.__doc__ = description
    return fold


row_least = _row_fold("<", "The least element of each of the sixteen rows of a float32 array ``[256]``, one per lane.")
row_greatest = _row_fold(
    ">", "The greatest element of each of the sixteen rows of a float32 array ``[256]``, one per lane."
)
