"""Grouped GEMM of mixture-of-experts layers: rows sorted by expert times quantized weights.

Rows are assigned to slots, sorted by expert; each expert starts a new tile. One table holds the address of each slot's
row of x (0 for padding after an expert's last row), another that of its row of y.
"""

from __future__ import annotations

import functools
from typing import Any

from ....runtime.jit.llvm_kernel import EmittedKernel
from ....runtime.simd.llvm_vector import I64, Code
from .gemv import WeightRows, minimum, part_range
from .gemv_int8 import RUN
from .panel_int8_vnni import COLUMNS
from .quantized_gemm import gemm_variant, multiply_tiles, pack_row, scratch_size, tile_layout, write_sums, zero_words


def max_tiles(name: str, variant: str, pairs: int, experts: int) -> int:
    """Maximum number of tiles for `pairs` pairs of row and expert."""
    return pairs // tile_layout(name, variant).rows + min(pairs, experts)


@functools.cache
def pack_slots(name: str, variant: str) -> EmittedKernel:
    """Quantizes the rows whose addresses are in `table` and packs them into tiles at `target`; `number` is the address
    of the tile count."""
    tile = tile_layout(name, variant)

    def write(builder: Any, part: Any, parts: Any, *, table: Any, target: Any, number: Any, length: Any) -> None:
        code = Code(builder)
        nbytes = builder.mul(builder.sdiv(length, code.word(RUN)), code.word(tile.nbytes))
        with code.loop(*part_range(code, code.load(number, I64), part, parts)) as index:
            to, first = builder.add(target, builder.mul(index, nbytes)), builder.mul(index, code.word(tile.rows))
            place = builder.add(table, builder.shl(first, code.word(3)))
            with builder.if_then(builder.icmp_unsigned("==", code.load(place, I64, 8 * (tile.rows - 1)), code.word(0))):
                zero_words(code, to, nbytes)
            with code.loop(code.word(0), code.word(tile.rows)) as row:
                x = code.load(builder.add(place, builder.shl(row, code.word(3))), I64)
                with builder.if_then(builder.icmp_unsigned("!=", x, code.word(0))):
                    pack_row(code, tile, x, to, row, length)

    return EmittedKernel(f"{name}_pack_slots_{tile.rows}", write)


@functools.cache
def grouped_gemm(name: str, variant: str) -> EmittedKernel:
    """Rows of y for all jobs: jobs, address of their number, table of addresses of y, tiles, rows of an expert, bytes
    of one, elements of a row, the most rows of a job, and scratch (`dot_kernel.scratch_nbytes` for each part). A job is
    the address of a weight, the first slot, and rows."""
    found, tile, stored = gemm_variant(name, variant), tile_layout(name, variant), WeightRows(name)
    assert found is not None

    def write(
        builder: Any,
        part: Any,
        parts: Any,
        *,
        jobs: Any,
        number: Any,
        table: Any,
        tiles: Any,
        count: Any,
        row_bytes: Any,
        length: Any,
        max_rows: Any,
        scratch: Any,
    ) -> None:
        code = Code(builder)
        panel = found.panel(
            code, tile, stored, builder.add(scratch, builder.mul(part, scratch_size(code, tile, max_rows)))
        )
        units = builder.sdiv(builder.add(count, code.word(COLUMNS - 1)), code.word(COLUMNS))
        run_bytes = builder.mul(builder.sdiv(length, code.word(RUN)), code.word(tile.nbytes))
        with code.loop(code.word(0), code.load(number, I64)) as job:
            place = builder.add(jobs, builder.mul(job, code.word(24)))
            weight, slot, tokens = (code.load(place, I64, 8 * index) for index in range(3))
            held = builder.add(tiles, builder.mul(builder.sdiv(slot, code.word(tile.rows)), run_bytes))
            with code.loop(*part_range(code, units, part, parts)) as unit:
                row = builder.mul(unit, code.word(COLUMNS))
                height = minimum(code, code.word(COLUMNS), builder.sub(count, row))
                source = builder.add(weight, builder.mul(row, row_bytes))

                def line(token: Any) -> Any:
                    y = code.load(builder.add(table, builder.shl(builder.add(slot, token), code.word(3))), I64)
                    return builder.add(y, builder.shl(row, code.word(2)))

                for first, last in multiply_tiles(code, panel, (source, row_bytes, height), held, tokens, length, line):
                    write_sums(code, panel.sums, line, code.word(0), first, last, row, height)

        panel.release()

    return EmittedKernel(f"{name}_grouped_gemm_{variant}", write)
