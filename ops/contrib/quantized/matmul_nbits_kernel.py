"""Native MatMulNBits: its weight as grouped integers, in panels for VNNI, in rows elsewhere, which GEMV and packed GEMM
read as any block type; accuracy level 4 quantizes activations to int8."""

# mypy: disable-error-code="untyped-decorator"
from __future__ import annotations

import math

import numpy as np

from ....runtime.jit.address import f32, i32, share
from ....runtime.jit.kernel_arguments import Address
from ....runtime.jit.range_kernel import range_kernel
from ....runtime.plan.kernel_api import Launch, Planned, Step, native
from ....runtime.tensor.block_codec import block_type
from ...kernels.gemm.columns import group_panel
from ...kernels.gemm.panel import COLUMNS
from ...kernels.half_via_f32 import via_f32
from ...linalg.linear_kernel import RowWeight, multiply_rows
from ...quants.grouped import GROUPS, LENGTH, pack_groups, pack_panels, type_name
from ...rules.bit_packing import row_nbytes, unpacked
from .matmul_nbits import matmul_nbits, zero_points_of

F32 = np.dtype(np.float32)
INTEGERS = 4
"""The accuracy level that allows rows of 8 bits."""


@range_kernel
def gather_columns(
    x: Address, rows: int, depth: int, order_at: Address, width: int, y: Address, part: int, parts: int
) -> None:
    """Rows with their elements in an order, zero where it is negative."""
    order = i32(order_at)
    first, last = share(rows, part, parts)
    for row in range(first, last):
        line, made = f32(x + 4 * row * depth), f32(y + 4 * row * width)
        for k in range(width):
            made[k] = line[order[k]] if order[k] >= 0 else np.float32(0)


@native(matmul_nbits)
@via_f32
def plan_matmul_nbits(step: Step) -> Planned:
    """Plan constant weights in blocks of a multiple of 16, and a `g_idx` that names each block equally often."""
    a, codes, scales, zeros, bias = (step.optional_input(index) for index in (0, 1, 2, 3, 5))
    depth, columns, size, bits = (step.attributes[name] for name in ("K", "N", "block_size", "bits"))
    blocks = -(-depth // size)
    order, known = _in_order(step, depth, size)
    if a is None or a.dtype != F32 or a.shape[-1:] != (depth,) or size % GROUPS[0] or not known:
        return None
    if codes is None or scales is None or scales.dtype != F32 or scales.count != columns * blocks:
        return None
    if not (step.is_constant(1) and step.is_constant(2) and (zeros is None or step.is_constant(3))):
        return None
    if step.attributes.get("weight_prepacked", 0) or codes.count != columns * blocks * row_nbytes(size, bits):
        return None
    if bias is not None and (bias.dtype != F32 or bias.count != columns):
        return None
    if zeros is not None and zeros.count != columns * (row_nbytes(blocks, bits) if zeros.dtype == np.uint8 else blocks):
        return None
    width, group = -(-depth // LENGTH) * LENGTH, math.gcd(size, LENGTH)
    kept = 4 if bits <= 4 else 8
    name, in_panels = type_name(kept, group, zeros is not None), group_panel.selected()

    def pack(array: np.ndarray, steps: np.ndarray, points: np.ndarray | None, _: np.ndarray | None) -> np.ndarray:
        """The rows of the weight in the bits that they are kept in, counted from the middle as before."""
        middle, shift = 1 << (bits - 1), np.uint8((1 << (kept - 1)) - (1 << (bits - 1)))
        integers = unpacked(array.reshape(columns, blocks, -1), bits, size).reshape(columns, -1)
        integers = (integers if order is None else integers[:, order]) + shift
        factors = [steps.reshape(columns, blocks).astype(F32)]
        if points is not None:
            factors.append((zero_points_of(points, columns, blocks, bits, "MatMulNBits") - middle) * factors[0])
        factors = [_fitted(each.repeat(size // group, 1), width // group) for each in factors]
        integers = _fitted(integers, width)
        return pack_panels(integers, kept, factors, COLUMNS) if in_panels else pack_groups(integers, kept, factors)

    packed = step.packed(1, ("panels" if in_panels else "grouped", name), pack, (2, 3, 4))
    stored = RowWeight(name, packed, columns, width // LENGTH * block_type(name).size, in_panels)
    launches, rows = [], a.count // depth
    x = a.view((rows, depth))
    if order is not None or width != depth:
        places = np.full(width, -1, np.int32)
        places[:depth] = np.arange(depth) if order is None else order
        x = step.scratch(4 * rows * width).view((rows, width), dtype=F32)
        gathering = step.parts(rows, x.count)
        launches.append(
            Launch(
                gather_columns,
                gathering,
                x=a,
                rows=rows,
                depth=depth,
                order_at=step.constant_buffer(places),
                width=width,
                y=x,
            )
        )
    activations = "q8" if step.attributes.get("accuracy_level", 0) == INTEGERS else "f32"
    return [*launches, *multiply_rows(step, x, stored, step.output(), 0 if bias is None else bias, activations)]


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


def _fitted(array: np.ndarray, width: int) -> np.ndarray:
    """Rows cut or padded with zeros to a width."""
    return np.pad(array[:, :width], ((0, 0), (0, max(0, width - array.shape[1]))))
