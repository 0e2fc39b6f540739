"""Grouped GEMM of mixture-of-experts layers: rows sorted by expert times quantized weights.

Rows are assigned to slots, sorted by expert; each expert starts a new tile. One table holds the address of each slot's
row of x (0 for padding after an expert's last row), another that of its row of y.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ....runtime.base.process_cache import process_cache
from ....runtime.jit.llvm_kernel import EmittedKernel
from ....runtime.simd.llvm_vector import I64, Code
from .gemv import part_range
from .packed_gemm import EmittedEpilogue, multiply_tiles, panel_maker, tile_layout, weight_units, write_sums, zero_words


def max_tiles(name: str, variant: str, pairs: int, experts: int) -> int:
    """Maximum number of tiles for `pairs` pairs of row and expert."""
    return pairs // tile_layout(name, variant).rows + min(pairs, experts)


@process_cache
def pack_slots(name: str, variant: str) -> EmittedKernel:
    """Quantizes the rows whose addresses are in `table` and packs them into tiles at `target`; `number` is the address
    of the tile count."""
    tile = tile_layout(name, variant)

    def write(builder: Any, part: Any, parts: Any, *, table: Any, target: Any, number: Any, length: Any) -> None:
        code = Code(builder)
        nbytes = tile.offset(code, length)
        with code.loop(*part_range(code, code.load(number, I64), part, parts)) as index:
            to, first = builder.add(target, builder.mul(index, nbytes)), builder.mul(index, code.word(tile.rows))
            place = builder.add(table, builder.shl(first, code.word(3)))
            with builder.if_then(builder.icmp_unsigned("==", code.load(place, I64, 8 * (tile.rows - 1)), code.word(0))):
                zero_words(code, to, nbytes)
            with code.loop(code.word(0), code.word(tile.rows)) as row:
                x = code.load(builder.add(place, builder.shl(row, code.word(3))), I64)
                with builder.if_then(builder.icmp_unsigned("!=", x, code.word(0))):
                    tile.pack_row(code, x, to, row, length)

    return EmittedKernel(f"{name}_pack_slots_{tile.rows}", write)


class GroupedGemmArguments(NamedTuple):
    """Arguments of `grouped_gemm`.

    Attributes:
        jobs: for each job the address of a weight, the first slot, and rows.
        number: address of the number of jobs.
        table: addresses of rows of y.
        count, row_bytes, length: rows of an expert, bytes and elements of one.
        max_rows: the most rows of a job.
        scratch: `packed_gemm.scratch_nbytes` for each part.
    """

    jobs: Any
    number: Any
    table: Any
    tiles: Any
    count: Any
    row_bytes: Any
    length: Any
    max_rows: Any
    scratch: Any


@process_cache
def grouped_gemm(name: str, variant: str) -> EmittedKernel:
    """Rows of y for all jobs."""
    make_panel, rows_of_tile = panel_maker(name, variant), tile_layout(name, variant).rows

    def write(builder: Any, part: Any, parts: Any, given: GroupedGemmArguments) -> None:
        code = Code(builder)
        panel = make_panel(code, part, given.scratch, given.max_rows)
        tile_bytes = panel.tile.offset(code, given.length)
        with code.loop(code.word(0), code.load(given.number, I64)) as job:
            place = builder.add(given.jobs, builder.mul(job, code.word(24)))
            weight, slot, tokens = (code.load(place, I64, 8 * index) for index in range(3))
            tiles = builder.add(given.tiles, builder.mul(builder.sdiv(slot, code.word(rows_of_tile)), tile_bytes))
            for row, rows_of in weight_units(code, weight, given.count, given.row_bytes, part, parts):

                def line(token: Any, row: Any = row, slot: Any = slot) -> Any:
                    y = code.load(builder.add(given.table, builder.shl(builder.add(slot, token), code.word(3))), I64)
                    return builder.add(y, builder.shl(row, code.word(2)))

                for first, last in multiply_tiles(code, panel, rows_of, tiles, tokens, given.length, line):
                    write_sums(
                        code, panel.sums, line, first, last, rows_of[2], EmittedEpilogue(code, code.word(0), row)
                    )

        panel.release()

    return EmittedKernel(f"{name}_grouped_gemm_{variant}", write, GroupedGemmArguments)
