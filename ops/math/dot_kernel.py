"""Products of many rows of activations with blocks as whole numbers, by instructions that multiply and add four bytes.

Activations are rounded to 8 bits, each run of 32 neighbours with a step of its own, and stand in tiles: for each run the codes of all rows of
the tile, then their steps, the numbers that their sums start from, and their sums. A piece of the weight is decoded once and meets them all.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from llvmlite import ir

from ...runtime.emit import EmittedKernel
from ...runtime.paths import PROMPTS
from ...runtime.tiles import Emulated, Registers
from ...runtime.vector import F32, I8, I32, I64, LANES, Code, vector_type
from ..quants.products import codes
from .dot_panel_kernel import CHUNK, COLUMNS, Panel, Tile
from .dot_tiles_kernel import TiledPanel
from .rows_kernel import Stored, bias_of, cleared, smaller, spread, words
from .whole_kernel import RUN, _part, _quads, _rounded, _whole_sum

MEET = 768
"""Rows of activations that decoded rows meet; every number of rows of a tile divides it."""


@dataclass(frozen=True)
class Way:
    """How tiles are multiplied.

    Attributes:
        rows: of a tile, by the number of neighbours that share a scale.
    """

    panel: Callable[[Code, Tile, Stored, Any], Panel]
    rows: dict[int, int]


WAYS = {
    "VNNI": Way(Panel, {32: 6, 16: 4}),
    "AMX": Way(functools.partial(TiledPanel, Registers), {32: 32, 16: 32}),
    "emulated": Way(functools.partial(TiledPanel, Emulated), {32: 32, 16: 32}),
}
"""By the names of `paths.PROMPTS`; the last does what AMX does with vectors, for tests."""


def available(name: str) -> bool:
    """Whether the type's blocks are multiplied here as whole numbers."""
    return name in codes() and PROMPTS.taken() in ("AMX", "VNNI")


def tile_of(name: str, way: str) -> Tile:
    """The tile that products with a type are made of, in one of `WAYS`."""
    kind = codes()[name]
    return Tile(WAYS[way].rows[kind.group], kind)


def tiles_nbytes(name: str, way: str, tokens: int, length: int) -> int:
    """Bytes of rows of activations in tiles."""
    tile = tile_of(name, way)
    return -(-tokens // tile.rows) * (length // RUN) * tile.nbytes


def scratch_nbytes(name: str, way: str, tokens: int) -> int:
    """Bytes that a part works in."""
    tile = tile_of(name, way)
    return tile.scratch + min(MEET // tile.rows, -(-tokens // tile.rows)) * tile.rows * COLUMNS * 4


@functools.cache
def tiling(name: str, way: str) -> EmittedKernel:
    """Rounds rows of f32 and puts them into tiles: from, to, rows, elements of a row. Rows behind the last one are zeros."""
    tile = tile_of(name, way)

    def write(builder: Any, arguments: Any, part: Any, parts: Any) -> None:
        code = Code(builder)
        source, target, count, length = words(code, arguments, 4)
        runs = builder.sdiv(length, code.word(RUN))
        tiles = builder.sdiv(builder.add(count, code.word(tile.rows - 1)), code.word(tile.rows))
        with code.loop(*spread(code, tiles, part, parts)) as number:
            to = builder.add(target, builder.mul(number, builder.mul(runs, code.word(tile.nbytes))))
            first = builder.mul(number, code.word(tile.rows))
            height = smaller(code, code.word(tile.rows), builder.sub(count, first))
            with builder.if_then(builder.icmp_signed("<", height, code.word(tile.rows))):
                _zeroed(code, to, builder.mul(runs, code.word(tile.nbytes)))
            with code.loop(code.word(0), height) as row:
                x = builder.add(source, builder.mul(builder.add(first, row), builder.shl(length, code.word(2))))
                with code.loop(code.word(0), runs) as run:
                    place = builder.add(x, builder.mul(run, code.word(4 * RUN)))
                    _round_run(code, tile, place, builder.add(to, builder.mul(run, code.word(tile.nbytes))), row)

    return EmittedKernel(f"{name}_tiling_{tile.rows}", write)


def _zeroed(code: Code, address: Any, nbytes: Any) -> None:
    with code.loop(code.word(0), nbytes, 4) as offset:
        code.store(ir.Constant(I32, 0), code.builder.add(address, offset))


def _round_run(code: Code, tile: Tile, x: Any, to: Any, row: Any) -> None:
    """One run of one row."""
    build = code.builder
    numbers, step = _rounded(code, [code.floats(x, 64 * half) for half in range(2)], 127)
    code.store(build.trunc(numbers, vector_type(I8, RUN)), build.add(to, build.mul(row, code.word(RUN))))
    words_of = build.add(to, build.shl(row, code.word(2)))
    code.store(step, words_of, tile.steps)
    quads = _quads(code, numbers)

    def total(index: int, count: int) -> Any:
        return _whole_sum(code, _part(code, quads, 8 // count * index, 8 // count))

    if tile.kind.zero:
        for index in range(tile.parts):
            code.store(build.mul(total(index, tile.parts), ir.Constant(I32, -tile.kind.zero)), words_of, tile.starts + 4 * tile.rows * index)
    for index in range(tile.minima):
        value = build.fneg(build.fmul(build.sitofp(total(index, tile.minima), F32), step))
        code.store(value, words_of, tile.sums + 4 * tile.rows * index)


@functools.cache
def dots(name: str, way: str) -> EmittedKernel:
    """``y[t, row] = x[t] . W[row] + bias[row]`` for x in tiles.

    Arguments: W, tiles, y, bias (0 for none), rows, bytes of a row, elements of a row, rows of x, and scratch (`scratch_nbytes` for each part).
    """
    tile, stored = tile_of(name, way), Stored(name)

    def write(builder: Any, arguments: Any, part: Any, parts: Any) -> None:
        code = Code(builder)
        weight, tiles, y, bias, count, row_bytes, length, tokens, scratch = words(code, arguments, 9)
        whole = builder.sdiv(builder.add(tokens, code.word(tile.rows - 1)), code.word(tile.rows))
        line = code.word(tile.rows * COLUMNS * 4)
        room = builder.add(code.word(tile.scratch), builder.mul(smaller(code, whole, code.word(MEET // tile.rows)), line))
        panel = WAYS[way].panel(code, tile, stored, builder.add(scratch, builder.mul(part, room)))
        run_bytes = builder.mul(builder.sdiv(length, code.word(RUN)), code.word(tile.nbytes))
        with code.loop(*spread(code, builder.sdiv(builder.add(count, code.word(COLUMNS - 1)), code.word(COLUMNS)), part, parts)) as unit:
            row = builder.mul(unit, code.word(COLUMNS))
            height = smaller(code, code.word(COLUMNS), builder.sub(count, row))
            with code.loop(code.word(0), whole, MEET // tile.rows) as begin:
                end = smaller(code, builder.add(begin, code.word(MEET // tile.rows)), whole)
                cleared(code, panel.sums, builder.mul(builder.sub(end, begin), line))
                with code.loop(code.word(0), length, CHUNK) as start:
                    depth = smaller(code, code.word(CHUNK), builder.sub(length, start))
                    panel.decode(builder.add(weight, builder.mul(row, row_bytes)), row_bytes, height, start, depth)
                    runs = builder.sdiv(depth, code.word(RUN))
                    skipped = builder.mul(builder.sdiv(start, code.word(RUN)), code.word(tile.nbytes))
                    with code.loop(begin, end) as number:
                        x = builder.add(tiles, builder.add(builder.mul(number, run_bytes), skipped))
                        sums = builder.add(panel.sums, builder.mul(builder.sub(number, begin), line))
                        left = builder.sub(tokens, builder.mul(number, code.word(tile.rows)))
                        few = builder.icmp_signed("<=", left, code.word(tile.rows // 2))
                        with builder.if_else(few) as (half, all_):
                            with half:
                                panel.multiply(x, runs, sums, tile.rows // 2)
                            with all_:
                                panel.multiply(x, runs, sums, tile.rows)
                first = builder.mul(begin, code.word(tile.rows))
                _out(code, panel.sums, y, bias, first, smaller(code, tokens, builder.mul(end, code.word(tile.rows))), row, height, count)

        panel.end()

    return EmittedKernel(f"{name}_dots_{way}", write)


def _out(code: Code, sums: Any, y: Any, bias: Any, first: Any, last: Any, row: Any, height: Any, count: Any) -> None:
    """The sums [rows, COLUMNS] of rows of activations from `first` into rows of y."""
    build = code.builder
    shifts = code.variable(ir.Constant(ir.ArrayType(F32, COLUMNS), [0.0] * COLUMNS))
    place = build.ptrtoint(shifts, I64)
    with code.loop(code.word(0), height) as index:
        code.store(bias_of(code, bias, build.add(row, index)), build.add(place, build.shl(index, code.word(2))))
    with code.loop(first, last) as token:
        line = build.add(y, build.shl(build.add(build.mul(token, count), row), code.word(2)))
        source = build.add(sums, build.mul(build.sub(token, first), code.word(4 * COLUMNS)))
        with build.if_else(build.icmp_signed("==", height, code.word(COLUMNS))) as (all_, some):
            with all_:
                for half in range(COLUMNS // LANES):
                    code.store((code.floats(source, 64 * half) + code.floats(place, 64 * half)).value, line, 64 * half)
            with some, code.loop(code.word(0), height) as index:
                offset = build.shl(index, code.word(2))
                value = build.fadd(code.load(build.add(source, offset), F32), code.load(build.add(place, offset), F32))
                code.store(value, build.add(line, offset))
