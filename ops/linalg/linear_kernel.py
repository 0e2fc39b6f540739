"""Native Linear: f32 rows times weights of every storage type."""

from __future__ import annotations

import math

import numpy as np

from ...runtime.jit.llvm_kernel import EmittedKernel
from ...runtime.plan.kernel_api import Buffer, Launch, Planned, Step, native
from ..kernels.gemm import packed_gemm
from ..kernels.gemm.dispatch import float_variant, gemv_products, rounding_variant
from ..kernels.gemm.gemv import FloatProducts, Products, append_group_sums, gemv, minima_group
from ..kernels.gemm.gemv_int8 import RUN, quantize_rows, round_trip_rows, rounded_nbytes
from ..kernels.gemm.microkernel_f32 import panels
from ..kernels.gemm.panel import COLUMNS
from ..quants.llvm import rows
from .linear import linear
from .panel_product import packed_launch

MAX_GEMV_ROWS = 4
"""Maximum number of activation rows per GEMV."""


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


@native(linear)
def plan_linear(step: Step) -> Planned:
    """Linear of f32 activations; activations quantized to 8 bits need a multiple of `RUN` elements per row. Many rows
    meet an f32 weight in panels, unless the session decodes."""
    x, weight_type, bias = step.inputs[0], stored_weight(step), f32_bias(step)
    if x is None or x.dtype != np.float32 or weight_type is None or bias is None:
        return None
    name, row_bytes = weight_type
    weight, y = step.inputs[1], step.output()
    assert weight is not None
    length, count = x.shape[-1], weight.shape[0]
    tokens = x.count // length
    int8_activations = step.attributes["activations"] == "q8"
    if int8_activations and length % RUN:
        return None
    rounded = None if step.attributes["activations"] == "f32" or length % RUN else rounding_variant(name)
    if tokens <= (2 * MAX_GEMV_ROWS if rounded is None else MAX_GEMV_ROWS):
        before, x, x_bytes, products = prepare_rows(step, x, name)
        launches = []
        for first in range(0, tokens, MAX_GEMV_ROWS):
            batch = min(MAX_GEMV_ROWS, tokens - first)
            rows_of = Buffer(x.dtype, x.shape, x.allocation, x.offset + first * x_bytes)
            result, kernel = y.view(y.shape, first * count), gemv(name, batch, products=products)
            launches.append(
                gemv_launch(step, kernel, batch, (weight, rows_of, result, bias), (count, row_bytes, length, x_bytes))
            )
        return [*before, *launches]
    shift = step.constant(2)
    if name == "f32" and not step.decodes and step.is_constant(1) and (shift is not None) == isinstance(bias, Buffer):
        packed = step.packed(1, ("panels", True), lambda matrix: panels(matrix.T))
        return packed_launch(step, x, packed, y, shift, (tokens, count, length), (length, 1))
    before, x = round_to_int8(step, x) if int8_activations and rounded is None else ([], x)
    return [
        *before,
        *_packed_gemm(step, x, name, rounded or float_variant(length), (weight, y, bias, count, row_bytes)),
    ]


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
    )


def _packed_gemm(
    step: Step, x: Buffer, name: str, variant: str, operands: tuple[Buffer, Buffer, Buffer | int, int, int]
) -> list[Launch]:
    """Packed GEMM; operands are weight, y, bias, weight rows and bytes of a weight row."""
    weight, y, bias, count, row_bytes = operands
    length = x.shape[-1]
    tokens = x.count // length
    tiles = step.scratch(packed_gemm.tiles_nbytes(name, variant, tokens, length))
    tiling = Launch(
        packed_gemm.pack_tiles(name, variant),
        step.parts(tokens, x.count / 4),
        source=x,
        target=tiles,
        count=tokens,
        length=length,
    )
    parts = step.parts(-(-count // COLUMNS), tokens * count * length / 32)
    scratch = step.scratch(parts * packed_gemm.scratch_nbytes(name, variant, tokens))
    return [
        tiling,
        Launch(
            packed_gemm.packed_gemm(name, variant),
            parts,
            weight=weight,
            tiles=tiles,
            y=y,
            bias=bias,
            count=count,
            row_bytes=row_bytes,
            length=length,
            tokens=tokens,
            scratch=scratch,
        ),
    ]


def prepare_rows(step: Step, x: Buffer, name: str) -> tuple[list[Launch], Buffer, int, Products]:
    """Launches that lay out activation rows for GEMV, the rows, bytes of a row, and the products class."""
    length = x.shape[-1]
    tokens = x.count // length
    int8_activations = step.attributes["activations"] == "q8"
    products = gemv_products(name, int8_activations)
    if products.digits:
        nbytes = rounded_nbytes(name, length, products.digits)
        made = step.scratch(tokens * nbytes)
        kernel, parts = quantize_rows(name, products.digits), step.parts(tokens, x.count / 4)
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
