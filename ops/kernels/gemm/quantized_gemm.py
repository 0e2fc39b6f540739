"""GEMM for quantized, f16 and bf16 weights: activations are rounded and tiled; one panel implementation per ISA.

Activations are rounded and stand in tiles, run by run of 32 elements (`dot_panel_kernel.Tile` for blocks,
`pair_panel_kernel.PairTile` for numbers of 16 bits). A piece of the weight is decoded once and meets them all.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

from llvmlite import ir

from ....runtime.base.dataclass import dataclass
from ....runtime.jit.isa import BF16_ROWS, F16_ROWS, PROMPTS
from ....runtime.jit.llvm_kernel import EmittedKernel
from ....runtime.simd.amx import Emulated, Registers
from ....runtime.simd.llvm_vector import F32, I32, I64, LANES, Code
from ...quants.llvm import codes
from .gemv import WeightRows, load_bias, minimum, part_range, zero_lines
from .gemv_int8 import RUN
from .panel_16bit import MAX_ACTIVATION, Bf16Pairs, Int16Pairs, PairTile
from .panel_avx2 import Avx2CodePairs, Avx2Pairs, Avx2Panel, AvxVnniPairs, AvxVnniPanel, max_pairs
from .panel_bf16_amx import AmxBf16Panel
from .panel_int8_amx import AmxInt8Panel
from .panel_int8_vnni import COLUMNS, Panel, Tile

ROW_BLOCK = 768
"""Rows of activations that decoded rows meet; every number of rows of a tile divides it."""


@dataclass(frozen=True)
class GemmVariant:
    """How many rows are multiplied with weights of a type.

    Attributes:
        tile: of activations, for a type.
        panel: of the weight.
    """

    tile: Callable[[str], Any]
    panel: Callable[[Code, Any, WeightRows, Any], Any]


def _int8_tiles(rows: dict[int, int]) -> Callable[[str], Tile]:
    """Tiles for blocks, of so many rows by the number of neighbours that share a scale."""
    return lambda name: Tile(rows[codes()[name].group], codes()[name])


CODES = {
    "VNNI": GemmVariant(_int8_tiles({32: 6, 16: 4}), Panel),
    "AMX": GemmVariant(_int8_tiles({32: 32, 16: 32}), functools.partial(AmxInt8Panel, Registers)),
    "emulated": GemmVariant(_int8_tiles({32: 32, 16: 32}), functools.partial(AmxInt8Panel, Emulated)),
    "AVX-VNNI": GemmVariant(_int8_tiles({32: 4, 16: 4}), AvxVnniPanel),
    "16-bit pairs": GemmVariant(_int8_tiles({32: 4, 16: 4}), Avx2Panel),
}
WIDE_CODES = {**CODES, "16-bit pairs": GemmVariant(lambda name: PairTile(4, max_magnitude=127), Avx2CodePairs)}
"""For codes of which two products do not fit 16 bits."""


def _bf16_tiles(name: str) -> PairTile:
    return PairTile(32, {"f16": 2, "bf16": 1}[name])


PAIRS = {
    "VNNI": GemmVariant(lambda name: PairTile(6, max_magnitude=MAX_ACTIVATION), Int16Pairs),
    "BF16": GemmVariant(lambda name: PairTile(12), Bf16Pairs),
    "AMX": GemmVariant(_bf16_tiles, functools.partial(AmxBf16Panel, Registers)),
    "emulated": GemmVariant(_bf16_tiles, functools.partial(AmxBf16Panel, Emulated)),
    "AVX-VNNI": GemmVariant(lambda name: PairTile(4, max_magnitude=MAX_ACTIVATION), AvxVnniPairs),
    "16-bit pairs": GemmVariant(lambda name: PairTile(4, max_magnitude=MAX_ACTIVATION), Avx2Pairs),
}
"""By the names of the rows of `paths`; `emulated` does what AMX does with vectors, for tests."""
NARROW = {"f16": F16_ROWS, "bf16": BF16_ROWS}


def gemm_variant(name: str, variant: str) -> GemmVariant | None:
    """How the type's rows are multiplied by a row of `paths`, None for floats."""
    if name in codes():
        return (CODES if max_pairs(name) else WIDE_CODES).get(variant)
    return PAIRS.get(variant) if name in NARROW else None


def available(name: str) -> bool:
    """Whether the type's rows are multiplied here as whole or narrow numbers."""
    return gemm_variant(name, selected_variant(name)) is not None


def selected_variant(name: str) -> str:
    """The row of `paths` for the type."""
    return NARROW.get(name, PROMPTS).selected()


def tile_layout(name: str, variant: str) -> Any:
    """The tile that products with a type are made of."""
    found = gemm_variant(name, variant)
    assert found is not None
    return found.tile(name)


def tiles_nbytes(name: str, variant: str, tokens: int, length: int) -> int:
    """Bytes of rows of activations in tiles."""
    tile = tile_layout(name, variant)
    return -(-tokens // tile.rows) * (length // RUN) * tile.nbytes


def scratch_nbytes(name: str, variant: str, tokens: int) -> int:
    """Bytes that a part works in."""
    tile = tile_layout(name, variant)
    return tile.scratch + min(ROW_BLOCK // tile.rows, -(-tokens // tile.rows)) * tile.rows * COLUMNS * 4


@functools.cache
def pack_tiles(name: str, variant: str) -> EmittedKernel:
    """Rounds rows of f32 and puts them into tiles: from, to, rows, elements of a row. Rows behind the last one are
    zeros."""
    tile = tile_layout(name, variant)

    def write(builder: Any, part: Any, parts: Any, *, source: Any, target: Any, count: Any, length: Any) -> None:
        code = Code(builder)
        runs = builder.sdiv(length, code.word(RUN))
        tiles = builder.sdiv(builder.add(count, code.word(tile.rows - 1)), code.word(tile.rows))
        with code.loop(*part_range(code, tiles, part, parts)) as number:
            to = builder.add(target, builder.mul(number, builder.mul(runs, code.word(tile.nbytes))))
            first = builder.mul(number, code.word(tile.rows))
            height = minimum(code, code.word(tile.rows), builder.sub(count, first))
            with builder.if_then(builder.icmp_signed("<", height, code.word(tile.rows))):
                zero_words(code, to, builder.mul(runs, code.word(tile.nbytes)))
            with code.loop(code.word(0), height) as row:
                pack_row(
                    code,
                    tile,
                    builder.add(source, builder.mul(builder.add(first, row), builder.shl(length, code.word(2)))),
                    to,
                    row,
                    length,
                )

    return EmittedKernel(f"{name}_tiling_{tile.rows}", write)


def pack_row(code: Code, tile: Any, x: Any, to: Any, row: Any, length: Any) -> None:
    """Round a row and put it into a tile."""
    build = code.builder
    with code.loop(code.word(0), build.sdiv(length, code.word(RUN))) as run:
        tile.pack(
            code,
            build.add(x, build.mul(run, code.word(4 * RUN))),
            build.add(to, build.mul(run, code.word(tile.nbytes))),
            row,
        )


def zero_words(code: Code, address: Any, nbytes: Any) -> None:
    """Zeros over whole words."""
    with code.loop(code.word(0), nbytes, 4) as offset:
        code.store(ir.Constant(I32, 0), code.builder.add(address, offset))


@functools.cache
def quantized_gemm(name: str, variant: str) -> EmittedKernel:
    """``y[t, row] = x[t] . W[row] + bias[row]`` for x in tiles.

    `count` is rows of the weight, `length` elements of one, `tokens` rows of x, `bias` 0 for none, `scratch` has
    `scratch_nbytes` for each part.
    """
    found, tile, stored = gemm_variant(name, variant), tile_layout(name, variant), WeightRows(name)
    assert found is not None

    def write(
        builder: Any,
        part: Any,
        parts: Any,
        *,
        weight: Any,
        tiles: Any,
        y: Any,
        bias: Any,
        count: Any,
        row_bytes: Any,
        length: Any,
        tokens: Any,
        scratch: Any,
    ) -> None:
        code = Code(builder)
        panel = found.panel(
            code, tile, stored, builder.add(scratch, builder.mul(part, scratch_size(code, tile, tokens)))
        )
        with code.loop(
            *part_range(code, builder.sdiv(builder.add(count, code.word(COLUMNS - 1)), code.word(COLUMNS)), part, parts)
        ) as unit:
            row = builder.mul(unit, code.word(COLUMNS))
            height = minimum(code, code.word(COLUMNS), builder.sub(count, row))
            source = builder.add(weight, builder.mul(row, row_bytes))

            def line(token: Any) -> Any:
                return builder.add(y, builder.shl(builder.add(builder.mul(token, count), row), code.word(2)))

            for first, last in multiply_tiles(code, panel, (source, row_bytes, height), tiles, tokens, length, line):
                write_sums(code, panel.sums, line, bias, first, last, row, height)

        panel.release()

    return EmittedKernel(f"{name}_dots_{variant}", write)


def scratch_size(code: Code, tile: Any, tokens: Any) -> Any:
    """What `scratch_nbytes` is for a number of rows that a kernel is given."""
    build = code.builder
    tile_count = build.sdiv(build.add(tokens, code.word(tile.rows - 1)), code.word(tile.rows))
    most = build.mul(minimum(code, tile_count, code.word(ROW_BLOCK // tile.rows)), code.word(tile.rows * COLUMNS * 4))
    return build.add(code.word(tile.scratch), most)


def multiply_tiles(
    code: Code,
    panel: Any,
    rows_of: tuple[Any, Any, Any],
    tiles: Any,
    tokens: Any,
    length: Any,
    line_of: Callable[[Any], Any],
) -> Iterator[tuple[Any, Any]]:
    """Multiply some rows of a weight with rows of activations; gives the first row and the end of those whose sums are
    complete, once.

    Args:
        rows_of: address of the weight's rows, bytes of one, and how many there are, up to `COLUMNS`.
        line_of: where the sums of a row of activations will go; that memory is asked for while its last ones are made.
    """
    build, tile = code.builder, panel.tile
    last_row = build.sub(tokens, code.word(1))
    source, row_bytes, height = rows_of
    tile_count = build.sdiv(build.add(tokens, code.word(tile.rows - 1)), code.word(tile.rows))
    line = code.word(tile.rows * COLUMNS * 4)
    run_bytes = build.mul(build.sdiv(length, code.word(RUN)), code.word(tile.nbytes))
    with code.loop(code.word(0), tile_count, ROW_BLOCK // tile.rows) as begin:
        end = minimum(code, build.add(begin, code.word(ROW_BLOCK // tile.rows)), tile_count)
        zero_lines(code, panel.sums, build.mul(build.sub(end, begin), line))
        with code.loop(code.word(0), length, tile.chunk) as start:
            depth = minimum(code, code.word(tile.chunk), build.sub(length, start))
            panel.decode(source, row_bytes, height, start, depth)
            runs, ends = build.sdiv(depth, code.word(RUN)), build.icmp_signed("==", build.add(start, depth), length)
            skipped = build.mul(build.sdiv(start, code.word(RUN)), code.word(tile.nbytes))
            with code.loop(begin, end) as number:
                x = build.add(tiles, build.add(build.mul(number, run_bytes), skipped))
                sums = build.add(panel.sums, build.mul(build.sub(number, begin), line))
                left = build.sub(tokens, build.mul(number, code.word(tile.rows)))
                with build.if_then(ends), code.loop(code.word(0), code.word(tile.rows)) as index:
                    place = line_of(minimum(code, build.add(build.mul(number, code.word(tile.rows)), index), last_row))
                    for offset in range(0, 4 * COLUMNS + 1, 64):
                        code.prefetch(place, offset, writing=True)
                few = build.icmp_signed("<=", left, code.word(tile.rows // 2))
                with build.if_else(few) as (half, all_):
                    with half:
                        panel.multiply(x, runs, sums, tile.rows // 2)
                    with all_:
                        panel.multiply(x, runs, sums, tile.rows)
        yield build.mul(begin, code.word(tile.rows)), minimum(code, tokens, build.mul(end, code.word(tile.rows)))


def write_sums(
    code: Code, sums: Any, line_of: Callable[[Any], Any], bias: Any, first: Any, last: Any, row: Any, height: Any
) -> None:
    """The sums [rows, COLUMNS] of rows of activations from `first` into rows of y, whose addresses a function gives."""
    build = code.builder
    shifts = code.variable(ir.Constant(ir.ArrayType(F32, COLUMNS), [0.0] * COLUMNS))
    place = build.ptrtoint(shifts, I64)
    with code.loop(code.word(0), height) as index:
        code.store(load_bias(code, bias, build.add(row, index)), build.add(place, build.shl(index, code.word(2))))
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
