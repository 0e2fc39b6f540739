"""Native MatMulNBits: GEMV decodes codes in registers, GEMM decodes each column panel once; accuracy level 4 quantizes
activations to int8."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from ....runtime.jit.address import f32, i32, share
from ....runtime.jit.kernel_arguments import Address
from ....runtime.jit.range_kernel import inner, range_kernel
from ....runtime.plan.kernel_api import Buffer, Launch, Planned, Step, native
from ....runtime.simd.bytes import store_bytes
from ....runtime.simd.memory import lane_max, lane_sum, load_f32, maximum, nearest
from ....runtime.simd.vector import LANES, splat, to_int
from ...kernels.gemm.microkernel_f32 import ROWS as TILE_ROWS
from ...kernels.gemm.microkernel_f32 import column_of_tiles
from ...kernels.gemm.microkernel_nbits import HEIGHTS, microkernel, pack_panels, panel_decoder
from ...kernels.gemm.register_tile import PANEL
from ...kernels.half_via_f32 import via_f32
from ...rules.bit_packing import row_nbytes, unpacked
from .matmul_nbits import matmul_nbits, zero_points_of

F32 = np.dtype(np.float32)
MANY = 8
"""Rows from which decoded columns are worth their memory."""
INTEGERS = 4
"""The accuracy level that allows rows of 8 bits."""


class BlockWeight(NamedTuple):
    """A packed weight: codes, scales and offsets in panels.

    Attributes:
        offset_step: bytes from the offsets of a block to those of the next, 0 where there is one for all.
        quads: of elements of a block.
    """

    codes: Address
    scales: Address
    offsets: Address
    offset_step: int
    blocks: int
    quads: int
    bias: Address


@range_kernel
def block_sums(
    x: Address, rows: int, depth: int, size: int, padded: Address, sums: Address, part: int, parts: int
) -> None:
    """Sums of blocks of rows, and the rows padded to whole blocks where that is wanted."""
    blocks = (depth + size - 1) // size
    first, last = share(rows, part, parts)
    for row in range(first, last):
        line = f32(x + 4 * row * depth)
        for block in range(blocks):
            begin, end = block * size, min(depth, block * size + size)
            found = np.float32(0)
            for k in range(begin, end):
                found += line[k]
            f32(sums)[row * blocks + block] = found
        if padded != 0:
            wide = f32(padded + 4 * row * blocks * size)
            for k in range(depth):
                wide[k] = line[k]
            for k in range(depth, blocks * size):
                wide[k] = np.float32(0)


@range_kernel
def rounded_blocks(
    x: Address, rows: int, blocks: int, size: int, codes: Address, sums: Address, scales: Address, part: int, parts: int
) -> None:
    """Rows of whole blocks as signed bytes, with the sums of their blocks and scales."""
    first, last = share(rows * blocks, part, parts)
    for unit in range(first, last):
        source, target = x + 4 * unit * size, codes + unit * size
        most = splat(np.float32(0))
        for k in range(0, size, LANES):
            values = load_f32(source + 4 * k)
            most = maximum(most, maximum(values, -values))
        peak = lane_max(most)
        scale = peak / np.float32(127)
        inverse = np.float32(127) / peak if peak != 0 else np.float32(0)
        found = splat(np.float32(0))
        for k in range(0, size, LANES):
            code = nearest(load_f32(source + 4 * k) * inverse)
            found = found + code
            store_bytes(target + k, to_int(code), 0xFFFF)
        i32(sums)[unit] = np.int32(lane_sum(found))
        f32(scales)[unit] = scale


def _copied(target: Any, source: Any, rows: Any, row: Any, width: Any) -> None:
    for index in range(rows):
        for j in range(width):
            f32(target + index * row)[j] = f32(source + 4 * PANEL * index)[j]


copied = inner(_copied)


def _few(bits: int, integers: bool) -> Any:
    tiles, most = microkernel(bits, integers), HEIGHTS[integers][0]

    @range_kernel
    def product_of_few(
        x_at: Address,
        row_bytes: int,
        weight: BlockWeight,
        block_sums: Address,
        x_scales: Address,
        rows: int,
        columns: int,
        y: Address,
        room: Address,
        part: int,
        parts: int,
    ) -> None:
        """Rows, `row_bytes` apart, times a weight; sums of their blocks and scales of these are made before."""
        blocks, quads = weight.blocks, weight.quads
        scratch = room + part * 4 * PANEL * most
        count = (columns + PANEL - 1) // PANEL
        first, last = share(count, part, parts)
        for panel in range(first, last):
            codes, scales = (
                weight.codes + panel * blocks * quads * 16 * bits,
                weight.scales + panel * blocks * 4 * PANEL,
            )
            offsets, bias = weight.offsets + panel * blocks * weight.offset_step, weight.bias + panel * 4 * PANEL
            width, row = min(PANEL, columns - panel * PANEL), 0
            while row < rows:
                done = tiles(
                    rows - row,
                    x_at + row * row_bytes,
                    row_bytes,
                    codes,
                    scales,
                    offsets,
                    weight.offset_step,
                    blocks,
                    quads,
                    bias,
                    block_sums + 4 * row * blocks,
                    4 * blocks,
                    x_scales + 4 * row * blocks,
                    scratch,
                )
                copied(y + 4 * (row * columns + panel * PANEL), scratch, done, 4 * columns, width)
                row += done

    return product_of_few


def _many(bits: int) -> Any:
    decode = panel_decoder(bits)

    @range_kernel
    def product_of_many(
        x_at: Address,
        row_bytes: int,
        weight: BlockWeight,
        depth: int,
        zero: Address,
        rows: int,
        columns: int,
        y: Address,
        room: Address,
        part: int,
        parts: int,
    ) -> None:
        """As `product_of_few`, of blocks that are decoded panel by panel."""
        blocks, quads = weight.blocks, weight.quads
        size = 4 * PANEL * (4 * blocks * quads + TILE_ROWS)
        scratch = room + part * size
        count = (columns + PANEL - 1) // PANEL
        first, last = share(count, part, parts)
        for panel in range(first, last):
            codes, scales = (
                weight.codes + panel * blocks * quads * 16 * bits,
                weight.scales + panel * blocks * 4 * PANEL,
            )
            offsets, bias = weight.offsets + panel * blocks * weight.offset_step, weight.bias + panel * 4 * PANEL
            for four in range(blocks * quads):
                block = four // quads
                decode(
                    1,
                    codes + four * 16 * bits,
                    scales + block * 4 * PANEL,
                    offsets + block * weight.offset_step,
                    scratch + four * 16 * PANEL,
                )
            column_of_tiles(
                x_at,
                row_bytes,
                4,
                scratch,
                depth,
                y + 4 * panel * PANEL,
                4 * columns,
                0,
                rows,
                min(PANEL, columns - panel * PANEL),
                zero,
                0,
                bias,
                np.float32(-math.inf),
                np.float32(math.inf),
                scratch + 16 * PANEL * blocks * quads,
            )

    return product_of_many


FEW = {(bits, integers): _few(bits, integers) for bits in (4, 8) for integers in (False, True)}
MANY_ROWS = {bits: _many(bits) for bits in (4, 8)}


@range_kernel
def taken_columns(x: Address, rows: int, depth: int, order_at: Address, y: Address, part: int, parts: int) -> None:
    """Rows with their elements in an order."""
    order = i32(order_at)
    first, last = share(rows, part, parts)
    for row in range(first, last):
        line, made = f32(x + 4 * row * depth), f32(y + 4 * row * depth)
        for k in range(depth):
            made[k] = line[order[k]]


def kept_bits(bits: int) -> int:
    """Bits that codes of so many are kept in."""
    return 4 if bits <= 4 else 8


def _codes(data: np.ndarray, bits: int, columns: int, size: int, order: np.ndarray | None) -> np.ndarray:
    """Packed codes [columns, bytes] of whole blocks in the bits that they are kept in, counted from the middle as
    before, their elements in order."""
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
    if (
        held is None
        or held.size != depth
        or (np.bincount(held.reshape(-1).clip(0), minlength=-(-depth // size)) != size).any()
        or held.min() < 0
    ):
        return None, False
    order = np.argsort(held.reshape(-1), kind="stable").astype(np.int32)
    return None if (order == np.arange(depth)).all() else order, True


def _pack_columns(values: np.ndarray, columns: int) -> np.ndarray:
    """Values [columns, blocks] as [panels, blocks, 32]."""
    count = -(-columns // PANEL)
    whole = np.zeros((count * PANEL, values.shape[1]), values.dtype)
    whole[:columns] = values
    return np.ascontiguousarray(whole.reshape(count, PANEL, -1).transpose(0, 2, 1))


def _from_middle(points: np.ndarray, columns: int, blocks: int, bits: int) -> np.ndarray:
    """Zero points from the middle of the codes on, in panels."""
    moved = zero_points_of(points, columns, blocks, bits, "MatMulNBits") - (1 << (bits - 1))
    return _pack_columns(moved.astype(np.int8), columns)


@native(matmul_nbits)
@via_f32
def plan_matmul_nbits(step: Step) -> Planned:
    """Constant weights with whole zero points, blocks of 16 and its multiples; `g_idx` where it names each block
    equally often."""
    given = [*step.inputs, *[None] * (6 - len(step.inputs))]
    a, zeros, bias = given[0], given[3], given[5]
    depth, columns, size, bits = (step.attributes[name] for name in ("K", "N", "block_size", "bits"))
    blocks = -(-depth // size)
    codes, scales, held = step.inputs[1], step.inputs[2], step.constant(5)
    order, known = _in_order(step, depth, size)
    if a is None or a.dtype != F32 or a.shape[-1:] != (depth,) or size % LANES or not known:
        return None
    if (
        codes is None
        or scales is None
        or not (step.is_constant(1) and step.is_constant(2))
        or scales.dtype != F32
        or scales.count != columns * blocks
    ):
        return None
    if step.attributes.get("weight_prepacked", 0) or codes.count != columns * blocks * row_nbytes(size, bits):
        return None
    if bias is not None and (held is None or held.size != columns):
        return None
    offsets, offset_step = step.constant_buffer(np.zeros(PANEL, np.int8)), 0
    if zeros is not None:
        if not step.is_constant(3) or zeros.dtype != np.uint8 or zeros.count != columns * row_nbytes(blocks, bits):
            return None
        offsets, offset_step = step.packed(3, "panels", lambda array: _from_middle(array, columns, blocks, bits)), PANEL
    kept, launches = kept_bits(bits), []
    weight = step.packed(
        1,
        ("panels", bits),
        lambda array: pack_panels(_codes(array, bits, columns, size, order), kept, columns, blocks * size),
    )
    factors = step.packed(2, "panels", lambda array: _pack_columns(array.reshape(columns, blocks), columns))
    start = np.zeros(-(-columns // PANEL) * PANEL, np.float32)
    start[:columns] = 0 if held is None else held.reshape(-1)
    if order is not None:
        rows, gathered = a.count // depth, step.scratch(4 * a.count).view(a.shape, dtype=F32)
        launches.append(
            Launch(
                taken_columns,
                step.parts(rows, a.count),
                x=a,
                rows=rows,
                depth=depth,
                order_at=step.constant_buffer(order),
                y=gathered,
            )
        )
        a = gathered
    packed = BlockWeight(weight, factors, offsets, offset_step, blocks, size // 4, step.constant_buffer(start))
    return [*launches, *_launches(step, a, packed, depth, columns, size, kept)]


def _launches(
    step: Step, a: Buffer, weight: BlockWeight, depth: int, columns: int, size: int, bits: int
) -> list[Launch]:
    """The product with a packed weight."""
    y, rows, blocks = step.output(), a.count // depth, -(-depth // size)
    wide, integers = blocks * size, step.attributes.get("accuracy_level", 0) == INTEGERS
    work = rows * columns * depth / (48 if integers else 16)
    parts = step.parts(-(-columns // PANEL), work + columns * depth / 24)
    launches, source = [], a
    few = integers or rows < MANY
    sums = step.scratch(4 * rows * blocks) if few else 0
    if few and (wide != depth or not integers):
        padded = step.scratch(4 * rows * wide) if wide != depth else None
        launches.append(
            Launch(
                block_sums,
                step.parts(rows, a.count),
                x=a,
                rows=rows,
                depth=depth,
                size=size,
                padded=padded or 0,
                sums=sums,
            )
        )
        source = padded or a
    factors: Any = step.constant_buffer(np.zeros(1, np.float32))
    if integers:
        factors, codes = step.scratch(4 * rows * blocks), step.scratch(rows * wide)
        rounding = step.parts(rows * blocks, a.count / 4)
        launches.append(
            Launch(
                rounded_blocks,
                rounding,
                x=source,
                rows=rows,
                blocks=blocks,
                size=size,
                codes=codes,
                sums=sums,
                scales=factors,
            )
        )
        source = codes
    room = 4 * PANEL * HEIGHTS[integers][0] if few else 4 * PANEL * (wide + TILE_ROWS)
    row = (wide if few else depth) * (1 if integers else 4)
    shared = {
        "x_at": source,
        "row_bytes": row,
        "weight": weight,
        "rows": rows,
        "columns": columns,
        "y": y,
        "room": step.scratch(parts * room),
    }
    if few:
        return [*launches, Launch(FEW[bits, integers], parts, **shared, block_sums=sums, x_scales=factors)]
    return [*launches, Launch(MANY_ROWS[bits], parts, **shared, depth=depth, zero=factors)]
