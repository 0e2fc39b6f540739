"""Products of many rows with the experts that they are sent to, as `dot_kernel` multiplies them.

Rows stand in slots, those of an expert behind one another; each expert's begin with a tile. A table has the address of a slot's row of x, 0 behind
the last row of an expert, and another one that of its row of y.
"""

from __future__ import annotations

import functools
from typing import Any

from ...runtime.emit import EmittedKernel
from ...runtime.vector import I64, Code
from .dot_kernel import meet, out, put_row, room, tile_of, way_of, zeroed
from .dot_panel_kernel import COLUMNS
from .rows_kernel import Stored, smaller, spread, words
from .whole_kernel import RUN


def most_tiles(name: str, way: str, pairs: int, experts: int) -> int:
    """Tiles that pairs of row and expert fill at most."""
    return pairs // tile_of(name, way).rows + min(pairs, experts)


@functools.cache
def slots_tiling(name: str, way: str) -> EmittedKernel:
    """Rounds rows and puts them into tiles: table of addresses, to, address of the number of tiles, elements of a row."""
    tile = tile_of(name, way)

    def write(builder: Any, arguments: Any, part: Any, parts: Any) -> None:
        code = Code(builder)
        table, target, number, length = words(code, arguments, 4)
        nbytes = builder.mul(builder.sdiv(length, code.word(RUN)), code.word(tile.nbytes))
        with code.loop(*spread(code, code.load(number, I64), part, parts)) as index:
            to, first = builder.add(target, builder.mul(index, nbytes)), builder.mul(index, code.word(tile.rows))
            place = builder.add(table, builder.shl(first, code.word(3)))
            with builder.if_then(builder.icmp_unsigned("==", code.load(place, I64, 8 * (tile.rows - 1)), code.word(0))):
                zeroed(code, to, nbytes)
            with code.loop(code.word(0), code.word(tile.rows)) as row:
                x = code.load(builder.add(place, builder.shl(row, code.word(3))), I64)
                with builder.if_then(builder.icmp_unsigned("!=", x, code.word(0))):
                    put_row(code, tile, x, to, row, length)

    return EmittedKernel(f"{name}_slots_tiling_{tile.rows}", write)


@functools.cache
def expert_dots(name: str, way: str) -> EmittedKernel:
    """Rows of y for all jobs: jobs, address of their number, table of addresses of y, tiles, rows of an expert, bytes of one, elements of a row, the
    most rows of a job, and scratch (`dot_kernel.scratch_nbytes` for each part). A job is the address of a weight, the first slot, and rows."""
    found, tile, stored = way_of(name, way), tile_of(name, way), Stored(name)
    assert found is not None

    def write(builder: Any, arguments: Any, part: Any, parts: Any) -> None:
        code = Code(builder)
        jobs, number, table, tiles, count, row_bytes, length, most, scratch = words(code, arguments, 9)
        panel = found.panel(code, tile, stored, builder.add(scratch, builder.mul(part, room(code, tile, most))))
        units = builder.sdiv(builder.add(count, code.word(COLUMNS - 1)), code.word(COLUMNS))
        run_bytes = builder.mul(builder.sdiv(length, code.word(RUN)), code.word(tile.nbytes))
        with code.loop(code.word(0), code.load(number, I64)) as job:
            place = builder.add(jobs, builder.mul(job, code.word(24)))
            weight, slot, tokens = (code.load(place, I64, 8 * index) for index in range(3))
            held = builder.add(tiles, builder.mul(builder.sdiv(slot, code.word(tile.rows)), run_bytes))
            with code.loop(*spread(code, units, part, parts)) as unit:
                row = builder.mul(unit, code.word(COLUMNS))
                height = smaller(code, code.word(COLUMNS), builder.sub(count, row))
                source = builder.add(weight, builder.mul(row, row_bytes))

                def line(token: Any) -> Any:
                    y = code.load(builder.add(table, builder.shl(builder.add(slot, token), code.word(3))), I64)
                    return builder.add(y, builder.shl(row, code.word(2)))

                for first, last in meet(code, panel, (source, row_bytes, height), held, tokens, length, line):
                    out(code, panel.sums, line, code.word(0), first, last, row, height)

        panel.end()

    return EmittedKernel(f"{name}_expert_dots_{way}", write)
