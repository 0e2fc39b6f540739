"""Native MatMulNBits: few rows meet the codes in registers, many meet columns that are decoded once; at accuracy level 4 rows are rounded to 8 bits
in blocks, as onnxruntime does. Codes are kept in 4 bits or in 8. Columns whose blocks `g_idx` mixes are put in order, and those of rows with them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...runtime.kernel import inner, range_kernel
from ...runtime.launch import Buffer, Launch, Planned, Step, native
from ...runtime.native import f32, i32, share
from ...runtime.simd import LANES, splat, to_int
from ..math.lane_kernel import larger, largest, load_single, nearest, total
from ..math.tile_kernel import ROWS as TILE_ROWS
from ..math.tile_kernel import column_of_tiles
from ..nn.wide_kernel import of_halves
from ..quantized.byte_lane_kernel import store_bytes
from .matmul_nbits import matmul_nbits, zero_points_of
from .nbits_tile_kernel import PANEL, ROWS, decoder, panels, tile
from .packed import row_nbytes, unpacked

F32 = np.dtype(np.float32)
MANY = 8
"""Rows from which decoded columns are worth their memory."""
INTEGERS = 4
"""The accuracy level that allows rows of 8 bits."""


@range_kernel
def block_sums(args: Any, part: Any, parts: Any) -> None:
    """Rows, how many, their elements, elements of a block; rows padded to whole blocks, or 0; sums of blocks."""
    rows, depth, size = args[1], args[2], args[3]
    blocks = (depth + size - 1) // size
    first, last = share(rows, part, parts)
    for row in range(first, last):
        line = f32(args[0] + 4 * row * depth)
        for block in range(blocks):
            begin, end = block * size, min(depth, block * size + size)
            found = np.float32(0)
            for k in range(begin, end):
                found += line[k]
            f32(args[5])[row * blocks + block] = found
        if args[4] != 0:
            wide = f32(args[4] + 4 * row * blocks * size)
            for k in range(depth):
                wide[k] = line[k]
            for k in range(depth, blocks * size):
                wide[k] = np.float32(0)


@range_kernel
def rounded_blocks(args: Any, part: Any, parts: Any) -> None:
    """Rows of whole blocks, how many, blocks, elements of one; signed bytes, sums of blocks of these, scales."""
    rows, blocks, size = args[1], args[2], args[3]
    first, last = share(rows * blocks, part, parts)
    for unit in range(first, last):
        source, target = args[0] + 4 * unit * size, args[4] + unit * size
        most = splat(np.float32(0))
        for k in range(0, size, LANES):
            values = load_single(source + 4 * k)
            most = larger(most, larger(values, -values))
        peak = largest(most)
        scale = peak / np.float32(127)
        inverse = np.float32(127) / peak if peak != 0 else np.float32(0)
        found = splat(np.float32(0))
        for k in range(0, size, LANES):
            code = nearest(load_single(source + 4 * k) * inverse)
            found = found + code
            store_bytes(target + k, to_int(code), 0xFFFF)
        i32(args[5])[unit] = np.int32(total(found))
        f32(args[6])[unit] = scale


def _copied(target: Any, source: Any, rows: Any, row: Any, width: Any) -> None:
    for index in range(rows):
        for j in range(width):
            f32(target + index * row)[j] = f32(source + 4 * PANEL * index)[j]


copied = inner(_copied)


def _few(bits: int, integers: bool) -> Any:
    most, middle, _ = ROWS[integers]
    main, two, one = (tile(bits, rows, integers) for rows in ROWS[integers])

    @range_kernel
    def product_of_few(args: Any, part: Any, parts: Any) -> None:
        """Rows, bytes from one to the next, panels, scales, offsets, bytes of these from block to block; blocks, fours of a block, bias; sums of
        the rows' blocks, scales of these; rows, columns, results, scratch."""
        blocks, fours, rows, columns, y = args[6], args[7], args[11], args[12], args[13]
        scratch = args[14] + part * 4 * PANEL * most
        count = (columns + PANEL - 1) // PANEL
        first, last = share(count, part, parts)
        for panel in range(first, last):
            codes, scales = args[2] + panel * blocks * fours * 16 * bits, args[3] + panel * blocks * 4 * PANEL
            offsets, bias = args[4] + panel * blocks * args[5], args[8] + panel * 4 * PANEL
            width, row = min(PANEL, columns - panel * PANEL), 0
            while row < rows:
                x, sums, factors = args[0] + row * args[1], args[9] + 4 * row * blocks, args[10] + 4 * row * blocks
                if rows - row >= most:
                    main(x, args[1], codes, scales, offsets, args[5], blocks, fours, bias, sums, 4 * blocks, factors, scratch)
                    done = most
                elif rows - row >= middle:
                    two(x, args[1], codes, scales, offsets, args[5], blocks, fours, bias, sums, 4 * blocks, factors, scratch)
                    done = middle
                else:
                    one(x, args[1], codes, scales, offsets, args[5], blocks, fours, bias, sums, 4 * blocks, factors, scratch)
                    done = 1
                copied(y + 4 * (row * columns + panel * PANEL), scratch, done, 4 * columns, width)
                row += done

    return product_of_few


def _many(bits: int) -> Any:
    decode = decoder(bits)

    @range_kernel
    def product_of_many(args: Any, part: Any, parts: Any) -> None:
        """As `product_of_few`, elements of a row and a zero in place of the sums of blocks and their scales."""
        blocks, fours, depth, rows, columns, y = args[6], args[7], args[9], args[11], args[12], args[13]
        size = 4 * PANEL * (4 * blocks * fours + TILE_ROWS)
        scratch = args[14] + part * size
        count = (columns + PANEL - 1) // PANEL
        first, last = share(count, part, parts)
        for panel in range(first, last):
            codes, scales = args[2] + panel * blocks * fours * 16 * bits, args[3] + panel * blocks * 4 * PANEL
            offsets, bias = args[4] + panel * blocks * args[5], args[8] + panel * 4 * PANEL
            for four in range(blocks * fours):
                block = four // fours
                decode(codes + four * 16 * bits, scales + block * 4 * PANEL, offsets + block * args[5], scratch + four * 16 * PANEL)
            column_of_tiles(
                args[0], args[1], 4, scratch, depth, y + 4 * panel * PANEL, 4 * columns, 0, rows, min(PANEL, columns - panel * PANEL), args[10], 0,
                bias, np.float32(-math.inf), np.float32(math.inf), scratch + 16 * PANEL * blocks * fours,
            )

    return product_of_many


FEW = {(bits, integers): _few(bits, integers) for bits in (4, 8) for integers in (False, True)}
MANY_ROWS = {bits: _many(bits) for bits in (4, 8)}


@range_kernel
def taken_columns(args: Any, part: Any, parts: Any) -> None:
    """Rows, how many, their elements; which of them comes where; rows in that order."""
    depth, order = args[2], i32(args[3])
    first, last = share(args[1], part, parts)
    for row in range(first, last):
        line, made = f32(args[0] + 4 * row * depth), f32(args[4] + 4 * row * depth)
        for k in range(depth):
            made[k] = line[order[k]]


def kept_bits(bits: int) -> int:
    """Bits that codes of so many are kept in."""
    return 4 if bits <= 4 else 8


def _codes(data: np.ndarray, bits: int, columns: int, size: int, order: np.ndarray | None) -> np.ndarray:
    """Packed codes [columns, bytes] of whole blocks in the bits that they are kept in, counted from the middle as before, their elements in order."""
    kept = kept_bits(bits)
    if bits == kept and order is None:
        return data.reshape(columns, -1)
    codes = unpacked(data.reshape(columns, -1, row_nbytes(size, bits)), bits, size).reshape(columns, -1)
    codes = (codes if order is None else codes[:, order]) + np.uint8((1 << (kept - 1)) - (1 << (bits - 1)))
    return codes if kept == 8 else codes[:, ::2] | codes[:, 1::2] << np.uint8(4)


def _in_order(step: Step, depth: int, size: int) -> tuple[np.ndarray | None, bool]:
    """The order of columns that brings blocks together, None where they are; and whether there is one."""
    held = step.constant(4)
    if len(step.inputs) < 5 or step.inputs[4] is None:
        return None, True
    if held is None or held.size != depth or (np.bincount(held.reshape(-1).clip(0), minlength=-(-depth // size)) != size).any() or held.min() < 0:
        return None, False
    order = np.argsort(held.reshape(-1), kind="stable").astype(np.int32)
    return None if (order == np.arange(depth)).all() else order, True


def _in_panels(values: np.ndarray, columns: int) -> np.ndarray:
    """Values [columns, blocks] as [panels, blocks, 32]."""
    count = -(-columns // PANEL)
    whole = np.zeros((count * PANEL, values.shape[1]), values.dtype)
    whole[:columns] = values
    return np.ascontiguousarray(whole.reshape(count, PANEL, -1).transpose(0, 2, 1))


def _from_middle(points: np.ndarray, columns: int, blocks: int, bits: int) -> np.ndarray:
    """Zero points from the middle of the codes on, in panels."""
    moved = zero_points_of(points, columns, blocks, bits, "MatMulNBits") - (1 << (bits - 1))
    return _in_panels(moved.astype(np.int8), columns)


@native(matmul_nbits)
@of_halves
def plan_matmul_nbits(step: Step) -> Planned:
    """Constant weights with whole zero points, blocks of 16 and its multiples; `g_idx` where it names each block equally often."""
    given = [*step.inputs, *[None] * (6 - len(step.inputs))]
    a, zeros, bias = given[0], given[3], given[5]
    depth, columns, size, bits = (step.attributes[name] for name in ("K", "N", "block_size", "bits"))
    blocks = -(-depth // size)
    codes, scales, held = step.inputs[1], step.inputs[2], step.constant(5)
    order, known = _in_order(step, depth, size)
    if a is None or a.dtype != F32 or a.shape[-1:] != (depth,) or size % LANES or not known:
        return None
    if codes is None or scales is None or not (step.known(1) and step.known(2)) or scales.dtype != F32 or scales.count != columns * blocks:
        return None
    if step.attributes.get("weight_prepacked", 0) or codes.count != columns * blocks * row_nbytes(size, bits):
        return None
    if bias is not None and (held is None or held.size != columns):
        return None
    offsets, offset_step = step.held(np.zeros(PANEL, np.int8)), 0
    if zeros is not None:
        if not step.known(3) or zeros.dtype != np.uint8 or zeros.count != columns * row_nbytes(blocks, bits):
            return None
        offsets, offset_step = step.packed(3, "panels", lambda array: _from_middle(array, columns, blocks, bits)), PANEL
    kept, launches = kept_bits(bits), []
    weight = step.packed(1, ("panels", bits), lambda array: panels(_codes(array, bits, columns, size, order), kept, columns, blocks * size))
    factors = step.packed(2, "panels", lambda array: _in_panels(array.reshape(columns, blocks), columns))
    start = np.zeros(-(-columns // PANEL) * PANEL, np.float32)
    start[:columns] = 0 if held is None else held.reshape(-1)
    if order is not None:
        rows, turned = a.count // depth, step.scratch(4 * a.count).view(a.shape, dtype=F32)
        launches.append(Launch(taken_columns, (a, rows, depth, step.held(order), turned), step.parts(rows, a.count)))
        a = turned
    return [*launches, *_launches(step, a, (weight, factors, offsets, offset_step, blocks, size // 4, step.held(start)), depth, columns, size, kept)]


def _launches(step: Step, a: Buffer, weight: tuple[Any, ...], depth: int, columns: int, size: int, bits: int) -> list[Launch]:
    """The product with a packed weight: what `product_of_few` takes from its third argument on."""
    y, rows, blocks = step.output(), a.count // depth, -(-depth // size)
    wide, integers = blocks * size, step.attributes.get("accuracy_level", 0) == INTEGERS
    work = rows * columns * depth / (48 if integers else 16)
    parts = step.parts(-(-columns // PANEL), work + columns * depth / 24)
    launches, source = [], a
    few = integers or rows < MANY
    sums = step.scratch(4 * rows * blocks) if few else depth
    if few and (wide != depth or not integers):
        padded = step.scratch(4 * rows * wide) if wide != depth else None
        launches.append(Launch(block_sums, (a, rows, depth, size, padded or 0, sums), step.parts(rows, a.count)))
        source = padded or a
    factors: Any = step.held(np.zeros(1, np.float32))
    if integers:
        factors, codes = step.scratch(4 * rows * blocks), step.scratch(rows * wide)
        launches.append(Launch(rounded_blocks, (source, rows, blocks, size, codes, sums, factors), step.parts(rows * blocks, a.count / 4)))
        source = codes
    kernel = FEW[bits, integers] if few else MANY_ROWS[bits]
    room = 4 * PANEL * ROWS[integers][0] if few else 4 * PANEL * (wide + TILE_ROWS)
    row = (wide if few else depth) * (1 if integers else 4)
    arguments = (source, row, *weight, sums, factors, rows, columns, y, step.scratch(parts * room))
    return [*launches, Launch(kernel, arguments, parts)]
