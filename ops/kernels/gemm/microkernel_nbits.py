"""Microkernel for weights of 4 or 8 bits in blocks (MatMulNBits): panels of 32 columns, one scale per block and column.

A panel has four elements of the common dimension together. With 4 bits, byte ``j`` of word ``c`` holds element ``j`` of
column ``c`` in its low half and that of column ``c + 16`` in its high half; with 8 bits, two vectors of words hold
columns 0 to 15 and 16 to 31. Codes count from the middle of their range; `offsets` are zero points counted from there.
Rows are f32, or signed bytes with a scale for each block.
"""

# mypy: disable-error-code="misc, untyped-decorator, no-untyped-call"
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from llvmlite import ir

from ....runtime.jit.isa import features
from ....runtime.jit.numba_lazy import cgutils, intrinsic, types
from ....runtime.simd.dot4_u8s8 import PATH, dot

PANEL = 32
ROWS = {False: (4, 2, 1), True: (6, 2, 1)}
"""Rows of the tiles, for real rows and for rows of bytes."""
WIDE = "avx512f" in features()

_INT, _WORD, _FLOAT = ir.IntType(64), ir.IntType(32), ir.FloatType()
_REALS, _WORDS, _SMALL = ir.VectorType(_FLOAT, 16), ir.VectorType(_WORD, 16), ir.VectorType(ir.IntType(8), 16)


class _Tile:
    """Instructions of one tile under construction."""

    def __init__(self, builder: Any, bits: int, rows: int) -> None:
        self.build, self.bits, self.rows = builder, bits, rows

    def call(self, name: str, result: Any, arguments: Sequence[Any]) -> Any:
        kind = ir.FunctionType(result, [argument.type for argument in arguments])
        return self.build.call(cgutils.get_or_insert_function(self.build.module, kind, name), arguments)

    def fma(self, a: Any, b: Any, c: Any) -> Any:
        return self.call("llvm.fma.v16f32", _REALS, [a, b, c])

    def word(self, value: int) -> Any:
        return ir.Constant(_INT, value)

    def load(self, address: Any, kind: Any, offset: int = 0) -> Any:
        value = self.build.load(self.build.inttoptr(self.build.add(address, self.word(offset)), kind.as_pointer()))
        value.align = 1
        return value

    def splat(self, value: Any) -> Any:
        kind = ir.VectorType(value.type, 16)
        one = self.build.insert_element(ir.Constant(kind, ir.Undefined), value, ir.Constant(_WORD, 0))
        return self.build.shuffle_vector(one, ir.Constant(kind, ir.Undefined), ir.Constant(_WORDS, [0] * 16))

    def same(self, value: int) -> Any:
        return ir.Constant(_WORDS, [value] * 16)

    def codes(self, at: Any) -> list[Any]:
        """The words of the next four elements."""
        return [self.load(at, _WORDS, 64 * half) for half in range(self.bits // 4)]

    def real(self, words: list[Any], element: int) -> list[Any]:
        """One element of both halves of the columns, as f32 from the middle of the codes on."""
        build = self.build
        if self.bits == 8:
            shifted = [build.and_(build.lshr(word, self.same(8 * element)), self.same(255)) for word in words]
            return [build.sitofp(build.sub(code, self.same(128)), _REALS) for code in shifted]
        shifted = [build.lshr(words[0], self.same(8 * element + 4 * half)) for half in range(2)]
        if WIDE:
            table = ir.Constant(_REALS, [float(code - 8) for code in range(16)])
            return [self.call("llvm.x86.avx512.permvar.sf.512", _REALS, [table, code]) for code in shifted]
        return [build.sitofp(build.sub(build.and_(code, self.same(15)), self.same(8)), _REALS) for code in shifted]

    def bytes_of(self, words: list[Any]) -> list[Any]:
        """Four elements of both halves of the columns, as unsigned bytes."""
        if self.bits == 8:
            return words
        low = self.same(0x0F0F0F0F)
        return [self.build.and_(words[0], low), self.build.and_(self.build.lshr(words[0], self.same(4)), low)]

    def dot(self, sums: Any, columns: Any, spread: Any) -> Any:
        """Sums with the products of four unsigned and four signed bytes in each word."""
        return dot(self.build, PATH, sums, columns, spread)


def microkernel(bits: int, rows: int, integers: bool) -> Any:
    """A tile of `rows` rows.

    Its arguments: rows and bytes from one to the next; codes of the panel; scales f32 and offsets i8 [blocks, 32] and
    bytes of the latter from block to block; blocks and quads of a block; what sums start from (f32 [32]); sums of the
    rows' blocks (f32, for bytes i32) and bytes from row to row; scales of the rows' blocks; results [rows, 32].
    """

    @intrinsic
    def microkernel_intrinsic(
        typing: Any,
        x: Any,
        x_row: Any,
        codes: Any,
        scales: Any,
        offsets: Any,
        offset_step: Any,
        blocks: Any,
        quads: Any,
        start: Any,
        sums: Any,
        sums_row: Any,
        x_scales: Any,
        c: Any,
    ) -> Any:
        def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            _emit(_Tile(builder, bits, rows), integers, args)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 13), lower

    return microkernel_intrinsic


def _emit(code: _Tile, integers: bool, args: Any) -> None:
    x, x_row, codes, scales, offsets, offset_step, blocks, quads, start, sums, sums_row, x_scales, c = args
    build, rows = code.build, code.rows
    lines = [build.add(x, build.mul(x_row, code.word(row))) for row in range(rows)]
    own = [build.add(sums, build.mul(sums_row, code.word(row))) for row in range(rows)]
    factors = [build.add(x_scales, build.mul(sums_row, code.word(row))) for row in range(rows)]
    first = [code.load(start, _REALS, 64 * half) for half in range(2)] * rows
    before = build.block
    outer, inner, block_end, after = (build.append_basic_block(name) for name in ("block", "quads", "scaled", "done"))
    build.cbranch(build.icmp_signed(">", blocks, code.word(0)), outer, after)
    build.position_at_end(outer)
    block, at, x_at, *totals = [build.phi(_INT) for _ in range(3)] + [build.phi(_REALS) for _ in first]
    for phi, value in zip((block, at, x_at, *totals), (code.word(0), codes, code.word(0), *first), strict=True):
        phi.add_incoming(value, before)
    chains = max(1, 4 // rows) if not integers else 1
    block_at = build.mul(block, code.word(4))
    if integers:
        middle = 8 if code.bits == 4 else 128
        shifts = [
            build.mul(code.load(build.add(own[row], block_at), _WORD), ir.Constant(_WORD, -middle))
            for row in range(rows)
        ]
        initial = [code.splat(shift) for shift in shifts for _ in range(2)]
    else:
        initial = [ir.Constant(_REALS, [0.0] * 16)] * (2 * rows * chains)
    build.branch(inner)
    build.position_at_end(inner)
    four, code_at, row_at, *found = [build.phi(_INT) for _ in range(3)] + [build.phi(value.type) for value in initial]
    for phi, value in zip((four, code_at, row_at, *found), (code.word(0), at, x_at, *initial), strict=True):
        phi.add_incoming(value, outer)
    microkernel_intrinsic = list(found)
    words = code.codes(code_at)
    if integers:
        columns = code.bytes_of(words)
        for row in range(rows):
            spread = code.splat(code.load(build.add(lines[row], row_at), _WORD))
            microkernel_intrinsic[2 * row : 2 * row + 2] = [
                code.dot(microkernel_intrinsic[2 * row + half], columns[half], spread) for half in range(2)
            ]
    else:
        for element in range(4):
            halves = code.real(words, element)
            for row in range(rows):
                spread = code.splat(code.load(build.add(lines[row], row_at), _FLOAT, 4 * element))
                place = 2 * (row * chains + element % chains)
                microkernel_intrinsic[place : place + 2] = [
                    code.fma(spread, halves[half], microkernel_intrinsic[place + half]) for half in range(2)
                ]
    next_quad, next_code = build.add(four, code.word(1)), build.add(code_at, code.word(16 * code.bits))
    next_row = build.add(row_at, code.word(4 if integers else 16))
    for phi, value in zip(
        (four, code_at, row_at, *found), (next_quad, next_code, next_row, *microkernel_intrinsic), strict=True
    ):
        phi.add_incoming(value, inner)
    build.cbranch(build.icmp_signed("<", next_quad, quads), inner, block_end)
    build.position_at_end(block_end)
    scale_at, offset_at = (
        build.add(scales, build.mul(block, code.word(4 * PANEL))),
        build.add(offsets, build.mul(block, offset_step)),
    )
    steps = [code.load(scale_at, _REALS, 64 * half) for half in range(2)]
    moves = [build.sitofp(build.sext(code.load(offset_at, _SMALL, 16 * half), _WORDS), _REALS) for half in range(2)]
    ended = []
    for row in range(rows):
        total = code.load(build.add(own[row], block_at), _WORD if integers else _FLOAT)
        spread = code.splat(build.sitofp(total, _FLOAT) if integers else total)
        for half in range(2):
            if integers:
                value = build.sitofp(microkernel_intrinsic[2 * row + half], _REALS)
            else:
                parts = [microkernel_intrinsic[2 * (row * chains + chain) + half] for chain in range(chains)]
                while len(parts) > 1:
                    parts = [build.fadd(one, other) for one, other in zip(parts[::2], parts[1::2], strict=True)]
                value = parts[0]
            value = code.fma(build.fneg(moves[half]), spread, value)
            if integers:
                value = build.fmul(value, code.splat(code.load(build.add(factors[row], block_at), _FLOAT)))
            ended.append(code.fma(value, steps[half], totals[2 * row + half]))
    next_block = build.add(block, code.word(1))
    for phi, value in zip((block, at, x_at, *totals), (next_block, next_code, next_row, *ended), strict=True):
        phi.add_incoming(value, block_end)
    build.cbranch(build.icmp_signed("<", next_block, blocks), outer, after)
    build.position_at_end(after)
    for index, (begin, value) in enumerate(zip(first, ended, strict=True)):
        result = build.phi(_REALS)
        result.add_incoming(begin, before)
        result.add_incoming(value, block_end)
        ended[index] = result
    for index, result in enumerate(ended):
        row, half = divmod(index, 2)
        place = build.add(c, code.word(128 * row + 64 * half))
        build.store(result, build.inttoptr(place, _REALS.as_pointer()), align=4)


def pack_panels(codes: np.ndarray, bits: int, columns: int, depth: int) -> np.ndarray:
    """Codes [columns, bytes of `depth` elements, lowest bits first] as panels of bytes."""
    count = -(-columns // PANEL)
    microkernel_intrinsic = np.zeros((count, depth // 4, bits // 4, 16, 4), np.uint8)
    for panel in range(count):
        rows = codes.reshape(columns, -1)[panel * PANEL : (panel + 1) * PANEL]
        if bits == 4:
            rows = np.stack([rows & 15, rows >> 4], axis=-1).reshape(len(rows), depth)
        whole = np.zeros((PANEL, depth), np.uint8)
        whole[: len(rows)] = rows
        halves = whole.reshape(2, 16, depth // 4, 4).transpose(2, 0, 1, 3)
        microkernel_intrinsic[panel] = halves if bits == 8 else (halves[:, :1] | halves[:, 1:] << 4)
    return microkernel_intrinsic


def panel_decoder(bits: int) -> Any:
    """Writes four elements of 32 columns as f32 [4, 32]: codes, scales, offsets as `microkernel` has them for one
    block."""

    @intrinsic
    def decoded(typing: Any, codes: Any, scales: Any, offsets: Any, target: Any) -> Any:
        def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            code = _Tile(builder, bits, 1)
            words = code.codes(args[0])
            moves = [
                builder.sitofp(builder.sext(code.load(args[2], _SMALL, 16 * half), _WORDS), _REALS) for half in range(2)
            ]
            for element in range(4):
                for half, value in enumerate(code.real(words, element)):
                    product = builder.fmul(builder.fsub(value, moves[half]), code.load(args[1], _REALS, 64 * half))
                    place = builder.add(args[3], code.word(128 * element + 64 * half))
                    builder.store(product, builder.inttoptr(place, _REALS.as_pointer()), align=4)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 4), lower

    return decoded
