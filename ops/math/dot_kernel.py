"""Products of many rows of activations by instructions that multiply and add several bytes or numbers of 16 bits.

Activations are rounded and stand in tiles, run by run of 32 elements (`dot_panel_kernel.Tile` for blocks, `pair_panel_kernel.PairTile` for numbers
of 16 bits). A piece of the weight is decoded once and meets them all.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from llvmlite import ir

from ...runtime.emit import EmittedKernel
from ...runtime.paths import BRAINS, HALVES, PROMPTS
from ...runtime.tiles import Emulated, Registers
from ...runtime.vector import F32, I32, I64, LANES, Code
from ..quants.products import codes
from .dot_panel_kernel import COLUMNS, Panel, Tile
from .dot_tiles_kernel import TiledPanel
from .half_panel_kernel import CodePairs, HalfPairs, HalfPanel, PairedPanel, SummedPairs, pairs_together
from .pair_panel_kernel import GREATEST, BrainPairs, PairTile, WholePairs
from .pair_tiles_kernel import TiledBrains
from .rows_kernel import Stored, bias_of, cleared, smaller, spread, words
from .whole_kernel import RUN

MEET = 768
"""Rows of activations that decoded rows meet; every number of rows of a tile divides it."""


@dataclass(frozen=True)
class Way:
    """How many rows are multiplied with weights of a type.

    Attributes:
        tile: of activations, for a type.
        panel: of the weight.
    """

    tile: Callable[[str], Any]
    panel: Callable[[Code, Any, Stored, Any], Any]


def _of_codes(rows: dict[int, int]) -> Callable[[str], Tile]:
    """Tiles for blocks, of so many rows by the number of neighbours that share a scale."""
    return lambda name: Tile(rows[codes()[name].group], codes()[name])


CODES = {
    "VNNI": Way(_of_codes({32: 6, 16: 4}), Panel),
    "AMX": Way(_of_codes({32: 32, 16: 32}), functools.partial(TiledPanel, Registers)),
    "emulated": Way(_of_codes({32: 32, 16: 32}), functools.partial(TiledPanel, Emulated)),
    "AVX-VNNI": Way(_of_codes({32: 4, 16: 4}), HalfPanel),
    "16-bit pairs": Way(_of_codes({32: 4, 16: 4}), PairedPanel),
}
WIDE_CODES = {**CODES, "16-bit pairs": Way(lambda name: PairTile(4, greatest=127), CodePairs)}
"""For codes of which two products do not fit 16 bits."""


def _in_parts(name: str) -> PairTile:
    return PairTile(32, {"f16": 2, "bf16": 1}[name])


PAIRS = {
    "VNNI": Way(lambda name: PairTile(6, greatest=GREATEST), WholePairs),
    "BF16": Way(lambda name: PairTile(12), BrainPairs),
    "AMX": Way(_in_parts, functools.partial(TiledBrains, Registers)),
    "emulated": Way(_in_parts, functools.partial(TiledBrains, Emulated)),
    "AVX-VNNI": Way(lambda name: PairTile(4, greatest=GREATEST), HalfPairs),
    "16-bit pairs": Way(lambda name: PairTile(4, greatest=GREATEST), SummedPairs),
}
"""By the names of the rows of `paths`; `emulated` does what AMX does with vectors, for tests."""
NARROW = {"f16": HALVES, "bf16": BRAINS}


def way_of(name: str, way: str) -> Way | None:
    """How the type's rows are multiplied by a row of `paths`, None for floats."""
    if name in codes():
        return (CODES if pairs_together(name) else WIDE_CODES).get(way)
    return PAIRS.get(way) if name in NARROW else None


def available(name: str) -> bool:
    """Whether the type's rows are multiplied here as whole or narrow numbers."""
    return way_of(name, taken(name)) is not None


def taken(name: str) -> str:
    """The row of `paths` for the type."""
    return NARROW.get(name, PROMPTS).taken()


def tile_of(name: str, way: str) -> Any:
    """The tile that products with a type are made of."""
    found = way_of(name, way)
    assert found is not None
    return found.tile(name)


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
                    tile.put(code, place, builder.add(to, builder.mul(run, code.word(tile.nbytes))), row)

    return EmittedKernel(f"{name}_tiling_{tile.rows}", write)


def _zeroed(code: Code, address: Any, nbytes: Any) -> None:
    with code.loop(code.word(0), nbytes, 4) as offset:
        code.store(ir.Constant(I32, 0), code.builder.add(address, offset))


@functools.cache
def dots(name: str, way: str) -> EmittedKernel:
    """``y[t, row] = x[t] . W[row] + bias[row]`` for x in tiles.

    Arguments: W, tiles, y, bias (0 for none), rows, bytes of a row, elements of a row, rows of x, and scratch (`scratch_nbytes` for each part).
    """
    found, tile, stored = way_of(name, way), tile_of(name, way), Stored(name)
    assert found is not None

    def write(builder: Any, arguments: Any, part: Any, parts: Any) -> None:
        code = Code(builder)
        weight, tiles, y, bias, count, row_bytes, length, tokens, scratch = words(code, arguments, 9)
        whole = builder.sdiv(builder.add(tokens, code.word(tile.rows - 1)), code.word(tile.rows))
        line = code.word(tile.rows * COLUMNS * 4)
        room = builder.add(code.word(tile.scratch), builder.mul(smaller(code, whole, code.word(MEET // tile.rows)), line))
        panel = found.panel(code, tile, stored, builder.add(scratch, builder.mul(part, room)))
        run_bytes = builder.mul(builder.sdiv(length, code.word(RUN)), code.word(tile.nbytes))
        with code.loop(*spread(code, builder.sdiv(builder.add(count, code.word(COLUMNS - 1)), code.word(COLUMNS)), part, parts)) as unit:
            row = builder.mul(unit, code.word(COLUMNS))
            height = smaller(code, code.word(COLUMNS), builder.sub(count, row))
            with code.loop(code.word(0), whole, MEET // tile.rows) as begin:
                end = smaller(code, builder.add(begin, code.word(MEET // tile.rows)), whole)
                cleared(code, panel.sums, builder.mul(builder.sub(end, begin), line))
                with code.loop(code.word(0), length, tile.chunk) as start:
                    depth = smaller(code, code.word(tile.chunk), builder.sub(length, start))
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
