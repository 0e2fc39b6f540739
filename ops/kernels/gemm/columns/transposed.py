"""F32 rows times a stored weight, of any type, as it lies: rows of the weight are lines of the common dimension.

Some columns of some rows of the weight are decoded to panels of f32, which need no transposition, and meet all rows of
a block of activations; sums of all pieces along the common dimension stay in the cache.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from .....runtime.base.process_cache import process_cache
from .....runtime.jit.llvm_kernel import EmittedKernel
from .....runtime.simd.llvm_vector import F32, LANES, Code
from ..gemv import WeightRows, minimum, part_range, zero_lines
from ..microkernel_f32 import HEIGHTS, TILE_VECTORS
from ..panel import VECTORS, line_stride
from ..register_tile import FLOATS, PANEL, VECTOR, Columns, Lines, accumulate

DEPTH = 192
"""Rows of the weight that are decoded at a time: a panel of them stays in the first cache with a tile's rows."""
WIDTH = 512
"""Columns of the weight that are decoded at a time where blocks are not longer: with the sums of a block of activations
they stay in the second cache."""
ROW_BLOCK = 264
"""Rows of activations that a decoded piece meets, a multiple of the heights of tiles."""
LINE = 4 * PANEL
"""Bytes of a line of a panel."""
ROW = line_stride(4 * DEPTH)
"""Bytes from row to row of copied activations."""
PANEL_NBYTES = line_stride(LINE * DEPTH)


class TransposedArguments(NamedTuple):
    """Arguments of `transposed_gemm`.

    Attributes:
        count, row_bytes: rows of the weight, which are elements of a row of x, and bytes of one.
        length: elements of a weight row.
        tokens: rows of x.
        scratch, nbytes: memory of all parts, and `scratch_nbytes` of one.
    """

    weight: Any
    x: Any
    y: Any
    count: Any
    row_bytes: Any
    length: Any
    tokens: Any
    scratch: Any
    nbytes: Any


def unit_of(name: str) -> int:
    """Columns that a part computes at least: whole blocks and whole panels."""
    return math.lcm(PANEL, WeightRows(name).length)


def _units(name: str) -> int:
    """Units that are decoded together."""
    return max(1, WIDTH // unit_of(name))


def scratch_nbytes(name: str, tokens: int) -> int:
    """Bytes that a part works in, for some rows of activations."""
    panels, rows = _units(name) * unit_of(name) // PANEL, min(tokens, ROW_BLOCK)
    return panels * PANEL_NBYTES + rows * ROW + panels * rows * LINE


@process_cache
def transposed_gemm(name: str) -> EmittedKernel:
    """``y[t] = x[t] . W`` for W of a storage type. A sum is made in an order that depends on neither parts nor rows."""
    stored, unit, units = WeightRows(name), unit_of(name), _units(name)
    panels_nbytes = units * unit // PANEL * PANEL_NBYTES

    def write(builder: Any, part: Any, parts: Any, given: TransposedArguments) -> None:
        code, build = Code(builder), builder
        zero, across, row_block, depths = map(code.word, (0, units * unit, ROW_BLOCK, DEPTH))
        panels = build.add(given.scratch, build.mul(part, given.nbytes))
        copied = build.add(panels, code.word(panels_nbytes))
        sums = build.add(copied, build.mul(minimum(code, given.tokens, row_block), code.word(ROW)))
        whole = build.sdiv(build.add(given.length, code.word(unit - 1)), code.word(unit))
        first, last = (build.mul(end, code.word(unit)) for end in part_range(code, whole, part, parts))
        last = minimum(code, last, given.length)
        with code.loop(first, last, units * unit) as column, code.loop(zero, given.tokens, ROW_BLOCK) as token:
            width = minimum(code, across, build.sub(last, column))
            count = build.sdiv(build.add(width, code.word(PANEL - 1)), code.word(PANEL))
            rows = minimum(code, row_block, build.sub(given.tokens, token))
            sums_nbytes = build.mul(rows, code.word(LINE))
            skipped = build.mul(build.sdiv(column, code.word(stored.length)), code.word(stored.size))
            zero_lines(code, sums, build.mul(count, sums_nbytes))
            with code.loop(zero, given.count, DEPTH) as start:
                depth = minimum(code, depths, build.sub(given.count, start))
                source = build.add(build.add(given.weight, build.mul(start, given.row_bytes)), skipped)
                _decode(code, stored, (source, given.row_bytes), (depth, width), panels)
                at = build.add(build.mul(token, given.count), start)
                source = build.add(given.x, build.shl(at, code.word(2)))
                _copy(code, (source, build.shl(given.count, code.word(2))), (rows, depth), (copied, code.word(ROW)))
                with code.loop(zero, count) as panel:
                    lines = build.add(panels, build.mul(panel, code.word(PANEL_NBYTES)))
                    _add_products(code, rows, copied, lines, depth, build.add(sums, build.mul(panel, sums_nbytes)))
            place = build.add(build.mul(token, given.length), column)
            target = build.add(given.y, build.shl(place, code.word(2)))
            with code.loop(zero, count) as panel:
                before = build.mul(panel, code.word(PANEL))
                held = (build.add(sums, build.mul(panel, sums_nbytes)), code.word(LINE))
                narrow = minimum(code, code.word(PANEL), build.sub(width, before))
                to = build.add(target, build.shl(before, code.word(2)))
                _copy(code, held, (rows, narrow), (to, build.shl(given.length, code.word(2))))

    return EmittedKernel(f"{name}_transposed", write, TransposedArguments)


def _decode(code: Code, stored: WeightRows, source: tuple[Any, Any], shape: tuple[Any, Any], panels: Any) -> None:
    """Elements of some rows, which begin a block, as lines of panels; `source`: address, and bytes from row to row."""
    build = code.builder
    (address, row_bytes), (rows, width) = source, shape
    with code.loop(code.word(0), rows) as row:
        line = build.add(panels, build.mul(row, code.word(LINE)))

        def place(element: Any, line: Any = line) -> Any:
            panel = build.mul(build.lshr(element, code.word(PANEL.bit_length() - 1)), code.word(PANEL_NBYTES))
            within = build.shl(build.and_(element, code.word(PANEL - 1)), code.word(2))
            return build.add(build.add(line, panel), within)

        stored.decode_to(code, build.add(address, build.mul(row, row_bytes)), width, place)


def _copy(code: Code, source: tuple[Any, Any], shape: tuple[Any, Any], target: tuple[Any, Any]) -> None:
    """Rows of f32; `source` and `target`: address, and bytes from row to row."""
    build, (rows, width) = code.builder, shape
    vectors = build.and_(width, code.word(-LANES))
    with code.loop(code.word(0), rows) as row:
        start, to = (build.add(address, build.mul(row, step)) for address, step in (source, target))
        for kind, first, last, step in ((FLOATS, code.word(0), vectors, LANES), (F32, vectors, width, 1)):
            with code.loop(first, last, step) as element:
                offset = build.shl(element, code.word(2))
                code.store(code.load(build.add(start, offset), kind), build.add(to, offset))


def _add_products(code: Code, count: Any, rows: Any, panel: Any, depth: Any, sums: Any) -> None:
    """Add the products of some rows and a panel to their sums."""
    build = code.builder
    done = code.word(0)
    for height in HEIGHTS:
        left = build.sub(count, done)
        end = build.add(done, build.sub(left, build.srem(left, code.word(height))))
        with code.loop(done, end, height) as row:
            address = build.add(rows, build.mul(row, code.word(ROW)))
            _add_tile(code, height, address, panel, depth, build.add(sums, build.mul(row, code.word(LINE))))
        done = end


def _add_tile(code: Code, height: int, rows: Any, panel: Any, depth: Any, sums: Any) -> None:
    """The same for rows whose sums fit into registers."""
    lines = Lines([code.builder.add(rows, code.word(ROW * row)) for row in range(height)], code.word(4), unrolled=True)
    for first in range(0, VECTORS, TILE_VECTORS):
        group = range(first, first + TILE_VECTORS)
        offsets = [LINE * row + VECTOR * half for row in range(height) for half in group]
        starts = [code.load(sums, FLOATS, offset) for offset in offsets]
        for total, offset in zip(accumulate(code, depth, starts, lines, Columns(panel, group)), offsets, strict=True):
            code.store(total, sums, offset)
