"""Native Linear: f32 rows times weights of every storage type."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ...runtime.jit.llvm_kernel import EmittedKernel
from ...runtime.plan.kernel_api import Buffer, Launch, Planned, Step, native
from ...runtime.simd.llvm_vector import LANES
from ..kernels.gemm import float_gemm, packed_gemm
from ..kernels.gemm.columns import group_panel, int8
from ..kernels.gemm.dispatch import gemv_products, rounding_variant
from ..kernels.gemm.epilogue import Epilogue, launch_with_epilogue
from ..kernels.gemm.gemv import TILE, FloatProducts, Products, append_group_sums, gemv, gemv_tiles, minima_group
from ..kernels.gemm.gemv_int8 import RUN, quantize_rows, round_trip_rows, rounded_nbytes
from ..kernels.gemm.panel import COLUMNS
from ..quants.llvm import rows
from .linear import linear
from .panel_product import COPIED, packed_launch, product_panels, variable_product

MAX_COLUMNS_ACTIVATIONS = 1 << 19
"""Elements of activations that stay in the cache of a core while columns of a weight meet all of them."""
MAX_GEMV_ROWS = 4
"""Maximum number of activation rows per GEMV with block types."""
MAX_DIGIT_ROWS = 16
"""Maximum number of activation rows that are rounded to three digits for weights in panels."""
MAX_TILED_ROWS = 64
"""Maximum number of activation rows that use f32 weights in their stored layout."""


def stored_weight(step: Step) -> tuple[str, int] | None:
    """Storage type of input 1 and bytes of a row; None if no kernel reads the type."""
    value, buffer = step.node.inputs[1], step.inputs[1]
    if value is None or buffer is None or value.dtype is None:
        return None
    name = value.dtype.name
    return (name, buffer.nbytes // math.prod(buffer.shape[:-1])) if name in rows() else None


def f32_bias(step: Step) -> Buffer | int | None:
    """The third input, 0 if it is absent, None if it is not f32."""
    if len(step.inputs) < 3 or step.node.inputs[2] is None:
        return 0
    bias = step.inputs[2]
    return bias if bias is not None and bias.dtype == np.float32 else None


class RowWeight(NamedTuple):
    """Rows of a storage type.

    Attributes:
        name: of the storage type.
        height, row_bytes: rows, and bytes of one.
        in_panels: whether rows are packed side by side, as `columns.group_panel` reads them.
    """

    name: str
    buffer: Buffer
    height: int
    row_bytes: int
    in_panels: bool = False


@native(linear)
def plan_linear(step: Step) -> Planned:
    """Plan f32 activations; 8-bit activations need a multiple of `RUN` elements per row. Many rows use packed f32
    weights, unless the session decodes."""
    x, weight_type, bias = step.inputs[0], stored_weight(step), f32_bias(step)
    if x is None or x.dtype != np.float32 or weight_type is None or bias is None:
        return None
    name, row_bytes = weight_type
    weight, y, activations = step.inputs[1], step.output(), step.attributes["activations"]
    assert weight is not None
    length, count = x.shape[-1], weight.shape[0]
    tokens = x.count // length
    if activations == "q8" and length % RUN:
        return None
    if name == "f32" and activations != "q8" and (tokens < TILE or (step.decodes and tokens <= MAX_TILED_ROWS)):
        kernel = gemv(name, tokens) if tokens < TILE else gemv_tiles(name)
        return gemv_launch(step, kernel, tokens, (weight, x, y, bias), (count, row_bytes, length, 4 * length))
    if name == "f32" and bias == 0 and not step.is_constant(1) and min(tokens, count, length) >= COPIED:
        return variable_product(step, (x, weight, y), (tokens, count, length), (length, 1, 1, length))
    shift = step.constant(2)
    in_panels = name == "f32" and not step.decodes and tokens > 2 * MAX_GEMV_ROWS
    if in_panels and step.is_constant(1) and (shift is not None) == isinstance(bias, Buffer):
        packed = step.packed(1, ("panels", True), lambda matrix: product_panels(matrix.T))
        return packed_launch(step, x, packed, y, shift, (tokens, count, length), (length, 1))
    return multiply_rows(step, x, RowWeight(name, weight, count, row_bytes), y, bias, activations)


def multiply_rows(
    step: Step, x: Buffer, weight: RowWeight, y: Buffer, bias: Buffer | int, activations: str
) -> list[Launch]:
    """``x W^T + bias`` of f32 rows: GEMV of a few rows, GEMM of more.

    Args:
        bias: f32, 0 for none.
        activations: as of Linear.
    """
    name, _, count, row_bytes, in_panels = weight
    length = x.shape[-1]
    tokens = x.count // length
    digits = 1 if activations == "q8" else 3
    if in_panels and (digits == 1 or tokens <= MAX_DIGIT_ROWS):
        return _group_gemm(step, x, weight, y, bias, digits)
    if in_panels:
        return [_float_gemm(step, x, weight, y, bias)]
    rounded = None if activations == "f32" or length % RUN else rounding_variant(name)
    cached = tokens > 1 and x.count <= MAX_COLUMNS_ACTIVATIONS
    if activations == "q8" and rounded == int8.VARIANT and cached and int8.covers(name, count):
        return _columns_gemm(step, x, weight, y, bias)
    if tokens <= (2 * MAX_GEMV_ROWS if rounded is None else MAX_GEMV_ROWS):
        before, x, x_bytes, products = prepare_rows(step, x, name, activations)
        launches = []
        for first in range(0, tokens, MAX_GEMV_ROWS):
            batch = min(MAX_GEMV_ROWS, tokens - first)
            rows_of = Buffer(x.dtype, x.shape, x.allocation, x.offset + first * x_bytes)
            result, kernel = y.view(y.shape, first * count), gemv(name, batch, products=products)
            operands, lengths = (weight.buffer, rows_of, result, bias), (count, row_bytes, length, x_bytes)
            launches.append(gemv_launch(step, kernel, batch, operands, lengths))
        return [*before, *launches]
    if rounded is not None:
        return _packed_gemm(step, x, weight, rounded, y, bias)
    before, x = round_to_int8(step, x) if activations == "q8" else ([], x)
    return [*before, _float_gemm(step, x, weight, y, bias)]


def gemv_launch(
    step: Step,
    kernel: EmittedKernel,
    batch: int,
    operands: tuple[Buffer, Buffer, Buffer, Buffer | int],
    lengths: tuple[int, int, int, int],
) -> Launch:
    """GEMV of `batch` rows.

    Args:
        operands: weight, x, y, and bias or 0.
        lengths: weight rows, bytes of one, elements of one, and bytes of a row of x.
    """
    weight, x, y, bias = operands
    count, row_bytes, length, x_step = lengths
    return Launch(
        kernel,
        step.parts(count, 3 * batch * count * length / 16),
        weight=weight,
        x=x,
        y=y,
        bias=bias,
        count=count,
        row_bytes=row_bytes,
        length=length,
        x_step=x_step,
        y_step=4 * count,
        tokens=batch,
    )


def _float_gemm(step: Step, x: Buffer, weight: RowWeight, y: Buffer, bias: Buffer | int) -> Launch:
    """GEMM of f32 activations."""
    name, buffer, count, row_bytes, in_panels = weight
    length = x.shape[-1]
    tokens, nbytes = x.count // length, float_gemm.scratch_nbytes(name, length)
    parts = step.parts(-(-count // COLUMNS), tokens * count * length / 32)
    scratch = step.scratch(parts * nbytes)

    def launch(epilogue: Epilogue, result: Buffer) -> Launch:
        return Launch(
            float_gemm.float_gemm(name, group_panel.GroupFloatPanel if in_panels else None),
            parts,
            weight=buffer,
            x=x,
            y=result,
            bias=_shift(step, bias, epilogue),
            epilogue=epilogue.arguments(count),
            count=count,
            row_bytes=row_bytes,
            length=length,
            tokens=tokens,
            scratch=scratch,
            nbytes=nbytes,
        )

    return launch_with_epilogue(launch, y, count, _occupied(bias))


def _shift(step: Step, bias: Buffer | int, epilogue: Epilogue) -> Buffer | int:
    """The bias of a product, or one that its epilogue took in."""
    return bias if epilogue.bias is None or isinstance(bias, Buffer) else step.constant_buffer(epilogue.bias)


def _occupied(bias: Buffer | int) -> Epilogue | None:
    """An epilogue that takes in no further bias where a product has one."""
    return Epilogue(bias=np.zeros(0, np.float32)) if isinstance(bias, Buffer) else None


def _packed_gemm(step: Step, x: Buffer, weight: RowWeight, variant: str, y: Buffer, bias: Buffer | int) -> list[Launch]:
    """Packed GEMM of rounded activations."""
    name, count = weight.name, weight.height
    length = x.shape[-1]
    tokens = x.count // length
    parts = step.parts(-(-count // COLUMNS), tokens * count * length / 32)
    further = {"scratch": step.scratch(parts * packed_gemm.scratch_nbytes(name, variant, tokens))}
    kernel = functools.partial(packed_gemm.packed_gemm, name, variant)
    tile = packed_gemm.tile_layout(name, variant)
    return _tiled(step, x, tile, (weight, y, bias), (kernel, parts, further))


def _group_gemm(step: Step, x: Buffer, weight: RowWeight, y: Buffer, bias: Buffer | int, digits: int) -> list[Launch]:
    """Rows of some int8 digits times a weight in panels."""
    length = x.shape[-1]
    tokens = x.count // length
    tile = group_panel.tile_for(weight.name, tokens, digits)
    parts = step.parts(-(-weight.height // COLUMNS), tokens * weight.height * length / 32 * digits)
    further = {"scratch": step.scratch(parts * packed_gemm.part_nbytes(tile, tokens))}
    kernel = functools.partial(group_panel.group_gemm, weight.name, tile)
    return _tiled(step, x, tile, (weight, y, bias), (kernel, parts, further))


def _columns_gemm(step: Step, x: Buffer, weight: RowWeight, y: Buffer, bias: Buffer | int) -> list[Launch]:
    """Sixteen rows of the weight at a time."""
    name, _, count, row_bytes, _ = weight
    length = x.shape[-1]
    tokens = x.count // length
    tile = int8.tile_for(name, tokens)
    several = tokens > tile.rows
    parts = step.parts(-(-count // LANES), tokens * count * length / 32)
    further: dict[str, Any] = {"three_rows": 3 * row_bytes, "four_rows": 4 * row_bytes}
    further["scratch"] = step.scratch(parts * int8.scratch_nbytes(length)) if several else 0
    kernel = functools.partial(int8.columns_gemm, name, tile, several)
    return _tiled(step, x, tile, (weight, y, bias), (kernel, parts, further))


def _tiled(
    step: Step,
    x: Buffer,
    tile: Any,
    operands: tuple[RowWeight, Buffer, Buffer | int],
    product: tuple[Callable[[int | None], EmittedKernel], int, dict[str, Any]],
) -> list[Launch]:
    """Products of rows in tiles.

    Args:
        operands: weight, y, and bias or 0.
        product: makes the kernel with an activation after it, parts of its launch, and its further arguments.
    """
    (name, buffer, count, row_bytes, _), y, bias = operands
    kernel, parts, further = product
    length = x.shape[-1]
    tokens = x.count // length
    tiles = step.scratch(-(-tokens // tile.rows) * tile.length_nbytes(length))
    tiling = Launch(
        packed_gemm.pack_tiles(name, tile),
        step.parts(tokens, x.count / 4),
        source=x,
        target=tiles,
        count=tokens,
        length=length,
    )

    def launch(epilogue: Epilogue, result: Buffer) -> Launch:
        return Launch(
            kernel(epilogue.kind),
            parts,
            weight=buffer,
            tiles=tiles,
            y=result,
            bias=_shift(step, bias, epilogue),
            added=0 if epilogue.added is None else epilogue.added,
            added_row=epilogue.added_step(count),
            count=count,
            row_bytes=row_bytes,
            length=length,
            tokens=tokens,
            **further,
        )

    return [tiling, launch_with_epilogue(launch, y, count, _occupied(bias), emitted=True)]


def prepare_rows(step: Step, x: Buffer, name: str, activations: str) -> tuple[list[Launch], Buffer, int, Products]:
    """Launches that lay out activation rows for GEMV, the rows, bytes of a row, and the products class."""
    length = x.shape[-1]
    tokens = x.count // length
    int8_activations = activations == "q8"
    products = gemv_products(name, int8_activations)
    if products.digits:
        nbytes = rounded_nbytes(name, length, products)
        made = step.scratch(tokens * nbytes)
        kernel, parts = quantize_rows(name, products), step.parts(tokens, x.count / 4)
        return (
            [Launch(kernel, parts, source=x, target=made, count=tokens, length=length, row_bytes=nbytes)],
            made,
            nbytes,
            products,
        )
    before, x = round_to_int8(step, x) if int8_activations else ([], x)
    group = minima_group(name)
    if not group:
        return before, x, 4 * length, FloatProducts
    nbytes = 4 * length + 4 * length // group
    made = step.scratch(tokens * nbytes)
    launch = Launch(
        append_group_sums(group), step.parts(tokens, x.count / 8), source=x, target=made, count=tokens, length=length
    )
    return [*before, launch], made, nbytes, FloatProducts


def round_to_int8(step: Step, x: Buffer) -> tuple[list[Launch], Buffer]:
    """Launches that round the rows to 8 bits and back, and the rounded rows."""
    length = x.shape[-1]
    near = step.scratch(x.nbytes).view(x.shape, dtype=x.dtype)
    parts = step.parts(x.count // RUN, x.count / 4)
    return [Launch(round_trip_rows(), parts, source=x, target=near, count=x.count // length, length=length)], near
