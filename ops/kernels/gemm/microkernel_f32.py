"""F32 GEMM microkernel: up to 12 x 32 outputs in registers, accumulated over the common dimension.

A tile has up to `ROWS` rows and `PANEL` columns. The right matrix comes in panels of `PANEL` columns, zeros behind its
last one, so that each step along the common dimension reads one line; the left one is read where it lies, one element
for a whole row of the tile.
"""

# mypy: disable-error-code="misc, untyped-decorator, no-untyped-call"
from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir

from ....runtime.jit.address import f32
from ....runtime.jit.isa import features
from ....runtime.jit.numba_lazy import cgutils, intrinsic, types
from ....runtime.jit.range_kernel import inlined, inner

VECTOR = ir.VectorType(ir.FloatType(), 16)
INT = ir.IntType(64)
WIDE = "avx512f" in features()
ROWS, TILE_VECTORS = (12, 2) if WIDE else (6, 1) if "avx2" in features() else (3, 1)
"""Rows of a tile, and vectors of each that are in registers at a time."""
PANEL = 32
PREFETCH_DISTANCE = 8192
"""Bytes by which panels that come from memory are asked for before their use: the first tile reads them faster than the
processor foresees."""


def _splat(builder: Any, value: Any) -> Any:
    undefined = ir.Constant(VECTOR, ir.Undefined)
    one = builder.insert_element(undefined, value, ir.Constant(ir.IntType(32), 0))
    return builder.shuffle_vector(one, undefined, ir.Constant(ir.VectorType(ir.IntType(32), 16), [0] * 16))


def load(builder: Any, address: Any, kind: Any) -> Any:
    value = builder.load(builder.inttoptr(address, kind.as_pointer()))
    value.align = 4
    return value


def _vectors(builder: Any, args: Any, rows: int, vectors: range) -> None:
    """Some vectors of each row of a tile."""
    a, a_row, a_step, b, depth, c, c_row, bias, bias_row, columns, low, high, ahead = args
    starts = []
    shifts = load_vectors(builder, columns, vectors)
    for row in range(rows):
        element = _splat(
            builder, load(builder, builder.add(bias, builder.mul(bias_row, ir.Constant(INT, row))), ir.FloatType())
        )
        starts += [builder.fadd(element, shift) for shift in shifts]
    lines = [builder.add(a, builder.mul(a_row, ir.Constant(INT, row))) for row in range(rows)]
    found = accumulate(builder, depth, a_step, b, starts, lines, vectors, ahead, ir.Constant(INT, 0))
    store_rows(builder, found, vectors, c, c_row, low, high)


def load_vectors(builder: Any, address: Any, vectors: range) -> list[Any]:
    """Some vectors of a line."""
    return [load(builder, builder.add(address, ir.Constant(INT, 64 * half)), VECTOR) for half in vectors]


def store_rows(
    builder: Any, found: list[Any], vectors: range, c: Any, c_row: Any, low: Any, high: Any, apart: Any = None
) -> None:
    """The vectors of all rows, limited, to memory; those of a row are `apart` bytes apart, or one behind the other."""
    least, most = _splat(builder, low), _splat(builder, high)
    for index, total in enumerate(found):
        raised = builder.select(builder.fcmp_ordered("<", total, least), least, total)
        bounded = builder.select(builder.fcmp_ordered(">", raised, most), most, raised)
        row, half = divmod(index, len(vectors))
        place = (
            ir.Constant(INT, 64 * vectors[half])
            if apart is None
            else builder.mul(apart, ir.Constant(INT, vectors[half]))
        )
        address = builder.add(builder.add(c, builder.mul(c_row, ir.Constant(INT, row))), place)
        builder.store(bounded, builder.inttoptr(address, VECTOR.as_pointer()), align=4)


def accumulate(
    builder: Any,
    depth: Any,
    a_step: Any,
    b: Any,
    starts: list[Any],
    lines: list[Any],
    vectors: range,
    ahead: Any,
    shift: Any,
    row_ahead: int = 0,
    pace: int = 1,
) -> list[Any]:
    """What the vectors of all rows are at the end of the common dimension, from what they are before.

    Rows begin `shift` bytes behind `lines`; what lies `ahead` of the panel and `row_ahead` the first row, in bytes, is
    asked for, `pace` times as far along it.
    """
    zero, before = ir.Constant(INT, 0), builder.block
    loop, after = builder.append_basic_block("along"), builder.append_basic_block("done")
    builder.cbranch(builder.icmp_signed(">", depth, zero), loop, after)
    builder.position_at_end(loop)
    step, offset, at = builder.phi(INT), builder.phi(INT), builder.phi(INT)
    sums = [builder.phi(VECTOR) for _ in starts]
    for phi, start in zip((step, offset, at, *sums), (zero, shift, b, *starts), strict=True):
        phi.add_incoming(start, before)
    panel = load_vectors(builder, at, vectors)
    for half in vectors:
        _prefetch(builder, builder.add(at, builder.add(ahead, ir.Constant(INT, 64 * half))))
    if row_ahead:
        gone = builder.add(shift, builder.mul(builder.sub(offset, shift), ir.Constant(INT, pace)))
        _prefetch(builder, builder.add(builder.add(lines[0], gone), ir.Constant(INT, row_ahead)))
    elements = [_splat(builder, load(builder, builder.add(row, offset), ir.FloatType())) for row in lines]
    made = [
        multiply_add(builder, elements[index // len(vectors)], panel[index % len(vectors)], held)
        for index, held in enumerate(sums)
    ]
    following = builder.add(step, ir.Constant(INT, 1))
    step.add_incoming(following, loop)
    offset.add_incoming(builder.add(offset, a_step), loop)
    at.add_incoming(builder.add(at, ir.Constant(INT, 4 * PANEL)), loop)
    for phi, value in zip(sums, made, strict=True):
        phi.add_incoming(value, loop)
    builder.cbranch(builder.icmp_signed("<", following, depth), loop, after)
    builder.position_at_end(after)
    found = [builder.phi(VECTOR) for _ in starts]
    for phi, start, value in zip(found, starts, made, strict=True):
        phi.add_incoming(start, before)
        phi.add_incoming(value, loop)
    return found


def _prefetch(builder: Any, address: Any) -> None:
    """Ask for a line of memory ahead of its use."""
    place = builder.inttoptr(address, ir.IntType(8).as_pointer())
    kind = ir.FunctionType(ir.VoidType(), [place.type, *[ir.IntType(32)] * 3])
    function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
    builder.call(function, [place, *(ir.Constant(ir.IntType(32), number) for number in (0, 2, 1))])


def multiply_add(builder: Any, element: Any, panel: Any, total: Any) -> Any:
    """A product added to a sum, rounded once where the processor can."""
    if "fma" not in features():
        return builder.fadd(builder.fmul(element, panel), total)
    function = cgutils.get_or_insert_function(builder.module, ir.FunctionType(VECTOR, [VECTOR] * 3), "llvm.fma.v16f32")
    return builder.call(function, [element, panel, total])


def _tile(rows: int, halves: int = 2) -> Any:
    """A tile of `rows` rows and 16 or 32 columns.

    All addresses and steps are in bytes; each element starts from its row's and its column's bias and is limited at the
    end.
    """

    @intrinsic
    def tile(
        typing: Any,
        a: Any,
        a_row: Any,
        a_step: Any,
        b: Any,
        depth: Any,
        c: Any,
        c_row: Any,
        bias: Any,
        bias_row: Any,
        columns: Any,
        low: Any,
        high: Any,
        ahead: Any,
    ) -> Any:
        def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            for first in range(0, halves, TILE_VECTORS):
                _vectors(builder, args, rows, range(first, min(halves, first + TILE_VECTORS)))
            return context.get_dummy_value()

        return types.void(*[types.int64] * 10, types.float32, types.float32, types.int64), lower

    return tile


_main, _eight, _four, _two, _one = _tile(ROWS), _tile(min(8, ROWS)), _tile(min(4, ROWS)), _tile(2), _tile(1)
EIGHT, FOUR = min(8, ROWS), min(4, ROWS)
NARROW, SIXTEEN = PANEL // 2, 16 if WIDE else 4
_narrow, _narrow_four, _narrow_one = _tile(SIXTEEN, 1), _tile(4, 1), _tile(1, 1)


@inlined
def rows_of_tile(left: Any) -> Any:
    """Rows of the next tile when `left` are left."""
    if left >= ROWS:
        return ROWS
    if left >= EIGHT:
        return EIGHT
    if left >= FOUR:
        return FOUR
    return 2 if left >= 2 else 1


@inner
def column_of_tiles(
    a: Any,
    a_row: Any,
    a_step: Any,
    b: Any,
    depth: Any,
    c: Any,
    c_row: Any,
    first: Any,
    last: Any,
    width: Any,
    bias: Any,
    bias_row: Any,
    columns: Any,
    low: Any,
    high: Any,
    spare: Any,
    distance: Any = 0,
) -> None:
    """Rows ``[first, last)`` of `width` columns of the product; `spare` is memory for a tile of `ROWS` rows, wider than
    what is left, `distance` is `PREFETCH_DISTANCE` for panels that are not in cache."""
    row = first
    narrow, whole = width <= NARROW, width in (NARROW, PANEL)
    while row < last:
        left = last - row
        count = (SIXTEEN if left >= SIXTEEN else 4 if left >= 4 else 1) if narrow else rows_of_tile(left)
        ahead = distance if row == first else 0
        at, start = a + row * a_row, bias + row * bias_row
        to, step = (c + row * c_row, c_row) if whole else (spare, np.int64(4 * NARROW if narrow else 4 * PANEL))
        if narrow:
            if count == SIXTEEN:
                _narrow(at, a_row, a_step, b, depth, to, step, start, bias_row, columns, low, high, ahead)
            elif count == 4:
                _narrow_four(at, a_row, a_step, b, depth, to, step, start, bias_row, columns, low, high, ahead)
            else:
                _narrow_one(at, a_row, a_step, b, depth, to, step, start, bias_row, columns, low, high, ahead)
        elif count == ROWS:
            _main(at, a_row, a_step, b, depth, to, step, start, bias_row, columns, low, high, ahead)
        elif count == EIGHT:
            _eight(at, a_row, a_step, b, depth, to, step, start, bias_row, columns, low, high, ahead)
        elif count == FOUR:
            _four(at, a_row, a_step, b, depth, to, step, start, bias_row, columns, low, high, ahead)
        elif count == 2:
            _two(at, a_row, a_step, b, depth, to, step, start, bias_row, columns, low, high, ahead)
        else:
            _one(at, a_row, a_step, b, depth, to, step, start, bias_row, columns, low, high, ahead)
        if not whole:
            for line in range(count):
                source, target = f32(spare + line * step), f32(c + (row + line) * c_row)
                for column in range(width):
                    target[column] = source[column]
        row += count


def panels(matrix: np.ndarray) -> np.ndarray:
    """A matrix [depth, columns] as panels [columns / PANEL, depth, PANEL] of float32."""
    depth, columns = matrix.shape
    count = -(-columns // PANEL)
    made = np.empty((count, depth, PANEL), np.float32)
    if columns % PANEL:
        made[-1, :, columns % PANEL :] = 0
    for index in range(count):
        part = matrix[:, index * PANEL : (index + 1) * PANEL]
        made[index, :, : part.shape[1]] = part
    return made
