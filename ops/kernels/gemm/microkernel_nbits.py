"""Microkernel for weights of 4 or 8 bits in blocks (MatMulNBits): panels of 32 columns, one scale per block and column.

A panel has four elements of the common dimension together. With 4 bits, byte ``j`` of word ``c`` holds element ``j`` of
column ``c`` in its low half and that of column ``c + 16`` in its high half; with 8 bits, two vectors of words hold
columns 0 to 15 and 16 to 31. Codes count from the middle of their range; `offsets` are zero points counted from there.
Rows are f32, or signed bytes with a scale for each block.
"""

# mypy: disable-error-code="misc, untyped-decorator, no-untyped-call"
from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir

from ....runtime.simd.dot4_u8s8 import PATH, WORDS, dot
from ....runtime.simd.llvm_vector import F32, I8, I32, LANES, Code, Vector, vector_type
from .register_tile import FLOATS, PANEL, VECTOR, tiles_by_rows

HEIGHTS = {False: (4, 2, 1), True: (6, 2, 1)}
"""Rows of the tiles, for f32 rows and for rows of bytes."""
HALVES = range(2)
CENTERED = [float(code - 8) for code in range(16)]


def _fma(code: Code, total: Any, a: Any, b: Any) -> Any:
    """Rounded once on every processor."""
    return code.call("llvm.fma.v16f32", FLOATS, a, b, total)


def _words(code: Code, bits: int, at: Any) -> list[Vector]:
    """The words of four elements."""
    return [Vector(code, code.load(at, WORDS, VECTOR * half)) for half in range(bits // 4)]


def _decode(code: Code, bits: int, words: list[Vector], element: int) -> list[Any]:
    """One element of both halves of the columns, as f32 from the middle of the codes on."""
    if bits == 8:
        return [((word >> 8 * element & 255) - 128).as_float().value for word in words]
    return [code.table(words[0] >> 8 * element + 4 * half, CENTERED).value for half in HALVES]


def _bytes(bits: int, words: list[Vector]) -> list[Any]:
    """Four elements of both halves of the columns, as unsigned bytes."""
    return [word.value for word in (words if bits == 8 else [words[0] & 0x0F0F0F0F, words[0] >> 4 & 0x0F0F0F0F])]


def _offsets(code: Code, address: Any) -> list[Any]:
    """The zero points of a block, as f32."""
    return [
        code.widened(code.load(address, vector_type(I8), LANES * half), signed=True).as_float().value for half in HALVES
    ]


class BlockTile(NamedTuple):
    """A tile.

    Attributes:
        x, x_row: rows, and bytes from one to the next.
        codes: of the panel.
        scales, offsets: f32 and i8 [blocks, 32].
        offset_step: bytes of offsets from block to block.
        quads: of a block.
        start: what sums start from, f32 [32].
        sums, sums_row: sums of the rows' blocks (f32, for bytes i32), and bytes from row to row.
        x_scales: scales of the rows' blocks.
        c: results [rows, 32].
    """

    x: Any
    x_row: Any
    codes: Any
    scales: Any
    offsets: Any
    offset_step: Any
    blocks: Any
    quads: Any
    start: Any
    sums: Any
    sums_row: Any
    x_scales: Any
    c: Any


class DecodedQuad(NamedTuple):
    """Four elements of 32 columns as f32 [4, 32], of a block with its scales and offsets."""

    codes: Any
    scales: Any
    offsets: Any
    target: Any


def microkernel(bits: int, integers: bool) -> Any:
    """Tiles of the rows in `HEIGHTS`."""

    def write(code: Code, rows: int, tile: BlockTile) -> None:
        build, chains = code.builder, 1 if integers else max(1, 4 // rows)
        lines, own, factors = (
            [build.add(base, build.mul(step, code.word(row))) for row in range(rows)]
            for base, step in ((tile.x, tile.x_row), (tile.sums, tile.sums_row), (tile.x_scales, tile.sums_row))
        )

        def quad(_: Any, held: list[Any]) -> list[Any]:
            """Four elements of the common dimension."""
            code_at, row_at, *found = held
            words = _words(code, bits, code_at)
            if integers:
                columns = _bytes(bits, words)
                for row, line in enumerate(lines):
                    spread = code.splat(code.load(build.add(line, row_at), I32)).value
                    for half in HALVES:
                        found[2 * row + half] = dot(code, PATH, found[2 * row + half], columns[half], spread)
            for element in range(0 if integers else 4):
                columns = _decode(code, bits, words, element)
                for row, line in enumerate(lines):
                    spread = code.splat(code.load(build.add(line, row_at), F32, 4 * element)).value
                    for half in HALVES:
                        place = 2 * (row * chains + element % chains) + half
                        found[place] = _fma(code, found[place], spread, columns[half])
            return [
                build.add(code_at, code.word(16 * bits)),
                build.add(row_at, code.word(4 if integers else 16)),
                *found,
            ]

        def block(index: Any, held: list[Any]) -> list[Any]:
            at, x_at, *totals = held
            word = build.mul(index, code.word(4))
            found = [ir.Constant(FLOATS, [0.0] * LANES)] * (2 * rows * chains)
            if integers:
                middle = ir.Constant(I32, -8 if bits == 4 else -128)
                starts = [build.mul(code.load(build.add(place, word), I32), middle) for place in own]
                found = [code.splat(value).value for value in starts for _ in HALVES]
            at, x_at, *found = code.repeat(tile.quads, [at, x_at, *found], quad)
            scale_at = build.add(tile.scales, build.mul(index, code.word(4 * PANEL)))
            steps = [code.load(scale_at, FLOATS, VECTOR * half) for half in HALVES]
            moves = _offsets(code, build.add(tile.offsets, build.mul(index, tile.offset_step)))
            for row in range(rows):
                total = code.load(build.add(own[row], word), I32 if integers else F32)
                spread = code.splat(build.sitofp(total, F32) if integers else total).value
                for half in HALVES:
                    parts = [found[2 * (row * chains + chain) + half] for chain in range(chains)]
                    while len(parts) > 1:
                        parts = [build.fadd(one, other) for one, other in zip(parts[::2], parts[1::2], strict=True)]
                    value = build.sitofp(parts[0], FLOATS) if integers else parts[0]
                    value = _fma(code, value, build.fneg(moves[half]), spread)
                    if integers:
                        factor = code.splat(code.load(build.add(factors[row], word), F32)).value
                        value = build.fmul(value, factor)
                    totals[2 * row + half] = _fma(code, totals[2 * row + half], value, steps[half])
            return [at, x_at, *totals]

        starts = [code.load(tile.start, FLOATS, VECTOR * half) for half in HALVES] * rows
        for index, value in enumerate(code.repeat(tile.blocks, [tile.codes, code.word(0), *starts], block)[2:]):
            code.store(value, tile.c, VECTOR * index)

    return tiles_by_rows(HEIGHTS[integers], BlockTile, write)


def pack_panels(codes: np.ndarray, bits: int, columns: int, depth: int) -> np.ndarray:
    """Codes [columns, bytes of `depth` elements, lowest bits first] as panels of bytes."""
    count = -(-columns // PANEL)
    panels = np.zeros((count, depth // 4, bits // 4, 16, 4), np.uint8)
    for panel in range(count):
        rows = codes.reshape(columns, -1)[panel * PANEL : (panel + 1) * PANEL]
        if bits == 4:
            rows = np.stack([rows & 15, rows >> 4], axis=-1).reshape(len(rows), depth)
        whole = np.zeros((PANEL, depth), np.uint8)
        whole[: len(rows)] = rows
        halves = whole.reshape(2, 16, depth // 4, 4).transpose(2, 0, 1, 3)
        panels[panel] = halves if bits == 8 else (halves[:, :1] | halves[:, 1:] << 4)
    return panels


def panel_decoder(bits: int) -> Any:
    """Decodes a `DecodedQuad`."""

    def write(code: Code, _: int, quad: DecodedQuad) -> None:
        build, words, moves = code.builder, _words(code, bits, quad.codes), _offsets(code, quad.offsets)
        for element in range(4):
            for half, value in enumerate(_decode(code, bits, words, element)):
                product = build.fmul(build.fsub(value, moves[half]), code.load(quad.scales, FLOATS, VECTOR * half))
                code.store(product, quad.target, 4 * PANEL * element + VECTOR * half)

    return tiles_by_rows((1,), DecodedQuad, write)
