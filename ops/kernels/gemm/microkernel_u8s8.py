"""U8 x s8 GEMM microkernel: int32 sums in registers, four elements of the common dimension per step (dot4).

Rows are signed bytes, read where they lie; the other factor is unsigned, in panels of `PANEL` columns with four
elements of a column together. Bytes of the other kind are moved by 128, and so are their zero points. Rows are
zero-padded to a multiple of four.
"""

# mypy: disable-error-code="misc, untyped-decorator, no-untyped-call"
from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir

from ....runtime.jit.isa import features
from ....runtime.jit.numba_lazy import intrinsic, types
from ....runtime.jit.range_kernel import inner
from ....runtime.simd.dot4_u8s8 import LANES, PATH, WORDS, dot

ROWS = 12 if "avx512f" in features() else 3
PANEL = 32
SIGN_OFFSET = 128
"""What the bytes of one kind are more than those of the other."""

_INT = ir.IntType(64)


def _address(builder: Any, base: Any, step: Any, index: int) -> Any:
    return builder.add(base, builder.mul(step, ir.Constant(_INT, index)))


def broadcast(builder: Any, four: Any) -> Any:
    """An i32 in every word."""
    undefined = ir.Constant(WORDS, ir.Undefined)
    one = builder.insert_element(undefined, four, ir.Constant(ir.IntType(32), 0))
    return builder.shuffle_vector(one, undefined, ir.Constant(WORDS, [0] * LANES))


def _tile(rows: int, path: str) -> Any:
    """A tile of `rows` rows; steps in bytes; `quads` is the row length / 4."""

    @intrinsic
    def tile(typing: Any, a: Any, a_row: Any, b: Any, quads: Any, c: Any, c_row: Any) -> Any:
        def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            a, a_row, b, quads, c, c_row = args
            word = lambda value: ir.Constant(_INT, value)  # noqa: E731
            lines = [_address(builder, a, a_row, row) for row in range(rows)]
            before = builder.block
            loop, after = builder.append_basic_block("along"), builder.append_basic_block("done")
            zero = ir.Constant(WORDS, [0] * 16)
            builder.cbranch(builder.icmp_signed(">", quads, word(0)), loop, after)
            builder.position_at_end(loop)
            step, at = builder.phi(_INT), builder.phi(_INT)
            sums = [builder.phi(WORDS) for _ in range(2 * rows)]
            for phi, start in zip((step, at, *sums), (word(0), b, *[zero] * (2 * rows)), strict=True):
                phi.add_incoming(start, before)
            halves = []
            for half in range(2):
                columns = builder.load(builder.inttoptr(builder.add(at, word(64 * half)), WORDS.as_pointer()))
                columns.align = 1
                halves.append(columns)
            made = []
            offset = builder.mul(step, word(4))
            for row in range(rows):
                four = builder.load(builder.inttoptr(builder.add(lines[row], offset), ir.IntType(32).as_pointer()))
                four.align = 1
                line = broadcast(builder, four)
                made += [dot(builder, path, sums[2 * row + half], halves[half], line) for half in range(2)]
            following = builder.add(step, word(1))
            step.add_incoming(following, loop)
            at.add_incoming(builder.add(at, word(4 * PANEL)), loop)
            for phi, value in zip(sums, made, strict=True):
                phi.add_incoming(value, loop)
            builder.cbranch(builder.icmp_signed("<", following, quads), loop, after)
            builder.position_at_end(after)
            for index, value in enumerate(made):
                found = builder.phi(WORDS)
                found.add_incoming(zero, before)
                found.add_incoming(value, loop)
                made[index] = found
            for index, found in enumerate(made):
                row, half = divmod(index, 2)
                place = builder.add(_address(builder, c, c_row, row), word(64 * half))
                builder.store(found, builder.inttoptr(place, WORDS.as_pointer()), align=4)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 6), lower

    return tile


def column_kernel(path: str) -> Any:
    """What makes a column of tiles by a row of `INTEGERS`."""
    main, four, one = _tile(ROWS, path), _tile(min(4, ROWS), path), _tile(1, path)
    middle = min(4, ROWS)

    @inner
    def column_of_tiles_u8s8(a: Any, a_row: Any, b: Any, quads: Any, c: Any, rows: Any) -> None:
        """Sums [rows, PANEL] at `c` of rows `a_row` bytes apart with one panel."""
        row = 0
        while row < rows:
            left = rows - row
            at, to = a + row * a_row, c + row * 4 * PANEL
            if left >= ROWS:
                main(at, a_row, b, quads, to, np.int64(4 * PANEL))
                row += ROWS
            elif left >= middle:
                four(at, a_row, b, quads, to, np.int64(4 * PANEL))
                row += middle
            else:
                one(at, a_row, b, quads, to, np.int64(4 * PANEL))
                row += 1

    return column_of_tiles_u8s8


column_of_tiles_u8s8 = column_kernel(PATH)


def pack_panels_u8(matrix: np.ndarray) -> np.ndarray:
    """A matrix of bytes [depth, columns] as panels [columns / PANEL, depth / 4, PANEL, 4], unsigned, zeros where there
    is nothing."""
    depth, columns = matrix.shape
    moved = matrix if matrix.dtype == np.uint8 else (matrix.astype(np.int16) + SIGN_OFFSET).astype(np.uint8)
    whole = np.zeros((-(-depth // 4) * 4, -(-columns // PANEL) * PANEL), np.uint8)
    whole[:depth, :columns] = moved
    return np.ascontiguousarray(whole.reshape(len(whole) // 4, 4, -1, PANEL).transpose(2, 0, 3, 1))


def pack_rows_s8(matrix: np.ndarray) -> np.ndarray:
    """Rows of bytes [rows, depth] as int8, zero-padded to a multiple of four."""
    moved = matrix if matrix.dtype == np.int8 else (matrix.astype(np.int16) - SIGN_OFFSET).astype(np.int8)
    return np.pad(moved, [(0, 0), (0, -matrix.shape[1] % 4)])
