"""Products of many rows of activations by instructions that multiply and add several bytes or numbers of 16 bits.

Activations are rounded and stand in tiles, run by run of 32 elements (`dot_panel_kernel.Tile` for blocks, `pair_panel_kernel.PairTile` for numbers
of 16 bits). A piece of the weight is decoded once and meets them all.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

from llvmlite import ir

from ...runtime.emit import EmittedKernel
from ...runtime.paths import BRAINS, HALVES, PROMPTS
from ...runtime.record import dataclass
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
                zeroed(code, to, builder.mul(runs, code.word(tile.nbytes)))
            with code.loop(code.word(0), height) as row:
                put_row(code, tile, builder.add(source, builder.mul(builder.add(first, row), builder.shl(length, code.word(2)))), to, row, length)

    return EmittedKernel(f"{name}_tiling_{tile.rows}", write)


def put_row(code: Code, tile: Any, x: Any, to: Any, row: Any, length: Any) -> None:
    """Round a row and put it into a tile."""
    build = code.builder
    with code.loop(code.word(0), build.sdiv(length, code.word(RUN))) as run:
        tile.put(code, build.add(x, build.mul(run, code.word(4 * RUN))), build.add(to, build.mul(run, code.word(tile.nbytes))), row)


def zeroed(code: Code, address: Any, nbytes: Any) -> None:
    """Zeros over whole words."""
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
        panel = found.panel(code, tile, stored, builder.add(scratch, builder.mul(part, room(code, tile, tokens))))
        with code.loop(*spread(code, builder.sdiv(builder.add(count, code.word(COLUMNS - 1)), code.word(COLUMNS)), part, parts)) as unit:
            row = builder.mul(unit, code.word(COLUMNS))
            height = smaller(code, code.word(COLUMNS), builder.sub(count, row))
            source = builder.add(weight, builder.mul(row, row_bytes))

            def line(token: Any) -> Any:
                return builder.add(y, builder.shl(builder.add(builder.mul(token, count), row), code.word(2)))

            for first, last in meet(code, panel, (source, row_bytes, height), tiles, tokens, length, line):
                out(code, panel.sums, line, bias, first, last, row, height)

        panel.end()

    return EmittedKernel(f"{name}_dots_{way}", write)


def room(code: Code, tile: Any, tokens: Any) -> Any:
    """What `scratch_nbytes` is for a number of rows that a kernel is given."""
    build = code.builder
    whole = build.sdiv(build.add(tokens, code.word(tile.rows - 1)), code.word(tile.rows))
    most = build.mul(smaller(code, whole, code.word(MEET // tile.rows)), code.word(tile.rows * COLUMNS * 4))
    return build.add(code.word(tile.scratch), most)


def meet(
    code: Code, panel: Any, rows_of: tuple[Any, Any, Any], tiles: Any, tokens: Any, length: Any, line_of: Callable[[Any], Any]
) -> Iterator[tuple[Any, Any]]:
    """Multiply some rows of a weight with rows of activations; gives the first row and the end of those whose sums are complete, once.

    Args:
        rows_of: address of the weight's rows, bytes of one, and how many there are, up to `COLUMNS`.
        line_of: where the sums of a row of activations will go; that memory is asked for while its last ones are made.
    """
    build, tile = code.builder, panel.tile
    last_row = build.sub(tokens, code.word(1))
    source, row_bytes, height = rows_of
    whole = build.sdiv(build.add(tokens, code.word(tile.rows - 1)), code.word(tile.rows))
    line = code.word(tile.rows * COLUMNS * 4)
    run_bytes = build.mul(build.sdiv(length, code.word(RUN)), code.word(tile.nbytes))
    with code.loop(code.word(0), whole, MEET // tile.rows) as begin:
        end = smaller(code, build.add(begin, code.word(MEET // tile.rows)), whole)
        cleared(code, panel.sums, build.mul(build.sub(end, begin), line))
        with code.loop(code.word(0), length, tile.chunk) as start:
            depth = smaller(code, code.word(tile.chunk), build.sub(length, start))
            panel.decode(source, row_bytes, height, start, depth)
            runs, ends = build.sdiv(depth, code.word(RUN)), build.icmp_signed("==", build.add(start, depth), length)
            skipped = build.mul(build.sdiv(start, code.word(RUN)), code.word(tile.nbytes))
            with code.loop(begin, end) as number:
                x = build.add(tiles, build.add(build.mul(number, run_bytes), skipped))
                sums = build.add(panel.sums, build.mul(build.sub(number, begin), line))
                left = build.sub(tokens, build.mul(number, code.word(tile.rows)))
                with build.if_then(ends), code.loop(code.word(0), code.word(tile.rows)) as index:
                    place = line_of(smaller(code, build.add(build.mul(number, code.word(tile.rows)), index), last_row))
                    for offset in range(0, 4 * COLUMNS + 1, 64):
                        code.prefetch(place, offset, writing=True)
                few = build.icmp_signed("<=", left, code.word(tile.rows // 2))
                with build.if_else(few) as (half, all_):
                    with half:
                        panel.multiply(x, runs, sums, tile.rows // 2)
                    with all_:
                        panel.multiply(x, runs, sums, tile.rows)
        yield build.mul(begin, code.word(tile.rows)), smaller(code, tokens, build.mul(end, code.word(tile.rows)))


def out(code: Code, sums: Any, line_of: Callable[[Any], Any], bias: Any, first: Any, last: Any, row: Any, height: Any) -> None:
    """The sums [rows, COLUMNS] of rows of activations from `first` into rows of y, whose addresses a function gives."""
    build = code.builder
    shifts = code.variable(ir.Constant(ir.ArrayType(F32, COLUMNS), [0.0] * COLUMNS))
    place = build.ptrtoint(shifts, I64)
    with code.loop(code.word(0), height) as index:
        code.store(bias_of(code, bias, build.add(row, index)), build.add(place, build.shl(index, code.word(2))))
    with code.loop(first, last) as token:
        line = line_of(token)
        source = build.add(sums, build.mul(build.sub(token, first), code.word(4 * COLUMNS)))
        with build.if_else(build.icmp_signed("==", height, code.word(COLUMNS))) as (all_, some):
            with all_:
                for half in range(COLUMNS // LANES):
                    code.store((code.floats(source, 64 * half) + code.floats(place, 64 * half)).value, line, 64 * half)
            with some, code.loop(code.word(0), height) as index:
                offset = build.shl(index, code.word(2))
                value = build.fadd(code.load(build.add(source, offset), F32), code.load(build.add(place, offset), F32))
                code.store(value, build.add(line, offset))
