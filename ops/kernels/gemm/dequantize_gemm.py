"""GEMM with dequantization: rows of any storage type are decoded to f32 in cache, then multiplied; and gathers of
decoded rows.

A chunk of some weight rows is decoded into memory that stays in cache, then multiplied with activations packed in
panels of 32 rows.
"""

from __future__ import annotations

import functools
from typing import Any

from ....runtime.jit.isa import features
from ....runtime.jit.llvm_kernel import EmittedKernel
from ....runtime.simd.llvm_vector import F32, I32, I64, LANES, Code, Vector
from .gemv import WeightRows, load_bias, minimum, part_range, zero_lines

PANEL = 32
CHUNK = 512
"""Elements of a row that are decoded at a time; every block length divides it."""
ROW_STRIDE = 4 * CHUNK + 64
"""Bytes from one decoded row to the next: one cache line of padding avoids conflicts in one cache set."""
TILE, TILE_VECTORS = (12, 2) if "avx512f" in features() else (6, 1) if "avx2" in features() else (3, 1)
"""Decoded rows and vectors of a panel in the register tile."""
TOKENS = 256
"""Rows of activations (full panels) that a chunk of decoded rows is multiplied with."""


@functools.cache
def gather_rows(name: str, index_bytes: int) -> EmittedKernel:
    """Gathers and decodes rows of `length` elements by `count` indices into `height` rows.

    An index out of range sets the bailout word and reads the first row.
    """
    stored = WeightRows(name)

    def write(
        builder: Any,
        part: Any,
        parts: Any,
        *,
        source: Any,
        indices: Any,
        target: Any,
        count: Any,
        height: Any,
        row_bytes: Any,
        length: Any,
        bailout: Any,
    ) -> None:
        code = Code(builder)
        kind = I64 if index_bytes == 8 else I32
        with code.loop(*part_range(code, count, part, parts)) as at:
            index = code.load(builder.add(indices, builder.mul(at, code.word(index_bytes))), kind)
            index = index if index_bytes == 8 else builder.sext(index, I64)
            index = builder.select(builder.icmp_signed("<", index, code.word(0)), builder.add(index, height), index)
            outside = builder.icmp_unsigned(">=", index, height)
            with builder.if_then(outside):
                code.store(code.word(1), bailout)
            index = builder.select(outside, code.word(0), index)
            to = builder.add(target, builder.mul(at, builder.shl(length, code.word(2))))
            _decode(
                code,
                stored,
                builder.add(source, builder.mul(index, row_bytes)),
                row_bytes,
                code.word(1),
                code.word(0),
                length,
                to,
            )

    return EmittedKernel(f"{name}_gathered_{index_bytes}", write)


def scratch_nbytes(unit: int) -> int:
    """Scratch bytes of one part of `dequantize_gemm`."""
    return unit * ROW_STRIDE + unit * TOKENS * 4


@functools.cache
def dequantize_gemm(name: str) -> EmittedKernel:
    """``y[t, row] = x[t] . W[row] + bias[row]`` for x in panels.

    `count` is rows of the weight, `length` elements of one, `tokens` rows of x, `bias` 0 for none, `scratch` has
    `scratch_nbytes` for each part, and `unit` rows are decoded at a time, a multiple of `TILE`. A panel holds `PANEL`
    rows of x, element by element; the last one only 16 where no more are left.
    """
    stored = WeightRows(name)

    def write(
        builder: Any,
        part: Any,
        parts: Any,
        *,
        weight: Any,
        panels: Any,
        y: Any,
        bias: Any,
        count: Any,
        row_bytes: Any,
        length: Any,
        tokens: Any,
        scratch: Any,
        unit: Any,
    ) -> None:
        code = Code(builder)
        scratch = builder.add(scratch, builder.mul(part, builder.mul(unit, code.word(ROW_STRIDE + 4 * TOKENS))))
        sums = builder.add(scratch, builder.mul(unit, code.word(ROW_STRIDE)))
        units = builder.sdiv(builder.sub(builder.add(count, unit), code.word(1)), unit)
        whole = builder.sdiv(builder.add(tokens, code.word(PANEL - 1)), code.word(PANEL))
        with code.loop(*part_range(code, units, part, parts)) as number:
            row = builder.mul(number, unit)
            height = minimum(code, unit, builder.sub(count, row))
            tiles = builder.sdiv(builder.add(height, code.word(TILE - 1)), code.word(TILE))
            source = builder.add(weight, builder.mul(row, row_bytes))
            with code.loop(code.word(0), whole, TOKENS // PANEL) as panel:
                end = minimum(code, builder.add(panel, code.word(TOKENS // PANEL)), whole)
                zero_lines(
                    code, sums, builder.mul(builder.mul(builder.sub(end, panel), tiles), code.word(TILE * PANEL * 4))
                )
                with code.loop(code.word(0), length, CHUNK) as start:
                    depth = minimum(code, code.word(CHUNK), builder.sub(length, start))
                    _decode(code, stored, source, row_bytes, height, start, depth, scratch)
                    with code.loop(panel, end) as now:
                        _tiles(
                            code,
                            panels,
                            scratch,
                            sums,
                            now,
                            builder.sub(now, panel),
                            tiles,
                            start,
                            depth,
                            length,
                            tokens,
                        )
                with code.loop(panel, end) as now:
                    tile = builder.add(
                        sums, builder.mul(builder.mul(builder.sub(now, panel), tiles), code.word(TILE * PANEL * 4))
                    )
                    _write_sums(code, tile, y, bias, now, tokens, row, height, count)

    return EmittedKernel(f"{name}_dequantize_gemm", write)


def _decode(
    code: Code, stored: WeightRows, source: Any, row_bytes: Any, height: Any, start: Any, depth: Any, scratch: Any
) -> None:
    """Decode elements of some rows, from `start` on, to f32."""
    build = code.builder
    skipped = build.mul(build.sdiv(start, code.word(stored.length)), code.word(stored.size))
    with code.loop(code.word(0), height) as row:
        address = build.add(build.add(source, build.mul(row, row_bytes)), skipped)
        target = build.add(scratch, build.mul(row, code.word(ROW_STRIDE)))

        def each(block: Any, element: Any) -> None:
            place = build.add(target, build.shl(element, code.word(2)))
            for index, numbers in enumerate(value for group in stored.groups(code, block) for value in group.values()):
                code.store(numbers.value, place, 64 * index)

        blocks = build.sdiv(depth, code.word(stored.length))
        stored.blocks(code, address, blocks, each)
        if stored.plain:
            with code.loop(build.mul(blocks, code.word(LANES)), depth) as element:
                code.store(stored.number(code, address, element), build.add(target, build.shl(element, code.word(2))))


def _tiles(
    code: Code,
    panels: Any,
    scratch: Any,
    sums: Any,
    panel: Any,
    place: Any,
    tiles: Any,
    start: Any,
    depth: Any,
    length: Any,
    tokens: Any,
) -> None:
    """Add a chunk's products with one panel to all tiles of the panel."""
    build = code.builder
    base = build.add(panels, build.mul(build.mul(panel, length), code.word(4 * PANEL)))
    narrow = build.icmp_signed("<=", build.sub(tokens, build.mul(panel, code.word(PANEL))), code.word(LANES))
    sums = build.add(sums, build.mul(build.mul(place, tiles), code.word(TILE * PANEL * 4)))
    with build.if_else(narrow) as (few_tokens, many_tokens):
        for branch, vectors in ((few_tokens, 1), (many_tokens, 2)):
            with branch, code.loop(code.word(0), tiles) as tile:
                right = build.add(base, build.mul(start, code.word(64 * vectors)))
                left = build.add(scratch, build.mul(tile, code.word(TILE * ROW_STRIDE)))
                place = build.add(sums, build.mul(tile, code.word(TILE * PANEL * 4)))
                for first in range(0, vectors, TILE_VECTORS):
                    _tile(code, left, right, depth, place, vectors, range(first, min(vectors, first + TILE_VECTORS)))


def _tile(code: Code, left: Any, right: Any, depth: Any, sums: Any, vectors: int, selected: range) -> None:
    """Add the products of `TILE` decoded rows and the `selected` vectors of a panel to the sums [TILE, PANEL]."""
    build = code.builder
    places = [
        (row, half, code.variable(code.floats(sums, 4 * PANEL * row + 64 * half).value))
        for row in range(TILE)
        for half in selected
    ]
    for row, half, place in places:
        build.store(code.floats(sums, 4 * PANEL * row + 64 * half).value, place)
    with code.loop(code.word(0), depth) as step:
        at = build.add(right, build.mul(step, code.word(64 * vectors)))
        columns = [code.floats(at, 64 * half) for half in selected]
        line = build.add(left, build.shl(step, code.word(2)))
        for row in range(TILE):
            element = code.splat(code.load(line, F32, row * ROW_STRIDE))
            for index, column in enumerate(columns):
                place = places[row * len(columns) + index][2]
                build.store(code.fma(element, column, Vector(code, build.load(place))).value, place)
    for row, half, place in places:
        code.store(build.load(place), sums, 4 * PANEL * row + 64 * half)


def _write_sums(
    code: Code, sums: Any, y: Any, bias: Any, panel: Any, tokens: Any, row: Any, height: Any, count: Any
) -> None:
    """Write the sums of a panel's tiles [tile, TILE, PANEL], transposed, to rows of y."""
    build = code.builder
    first = build.mul(panel, code.word(PANEL))
    width = minimum(code, code.word(PANEL), build.sub(tokens, first))
    with code.loop(code.word(0), width) as token:
        line = build.add(y, build.shl(build.add(build.mul(build.add(first, token), count), row), code.word(2)))
        column = build.add(sums, build.shl(token, code.word(2)))
        with code.loop(code.word(0), height) as index:
            value = code.load(build.add(column, build.mul(index, code.word(4 * PANEL))), F32)
            value = build.fadd(value, load_bias(code, bias, build.add(row, index)))
            code.store(value, build.add(line, build.shl(index, code.word(2))))
