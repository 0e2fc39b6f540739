"""Tiled contraction kernel: sums of products of two strided operands, in shared-memory tiles.

An operand is indexed by (batch, row, depth) or (batch, depth, column), each any number of axes with strides of their
own; so one kernel computes matrix products, broadcast batches, transposed products, and convolutions over padded
inputs, whose windows overlap.
"""

from __future__ import annotations

import math

import numpy as np

from ...plan.kernel_api import Buffer
from ..device.device import SIMULATED, capability
from ..element.block_quantized import QuantizedBuffer
from ..element.element import storage_of
from ..kernel import source_module
from ..kernel.contraction_axes import Axes as Axes
from ..kernel.contraction_axes import Contraction as Contraction
from ..kernel.contraction_axes import offsets
from ..kernel.kernel import Launch
from ..kernel.operand import Writer
from . import cublaslt
from .blas_operand import blas_problem
from .f16_mma import MIN_CAPABILITY, f16_gemm, mma_input_type

SIDE, EACH, DEEP = (2, 2, 3) if SIMULATED else (16, 4, 16)
"""Threads along each side of a block, outputs of a thread along each side of its tile, and elements of depth that are
held at a time."""
TILE = SIDE * EACH
MIN_MMA_ROWS = 4
"""Minimum rows and columns for tensor cores, if operands have 16 bits."""


def product(a: Buffer, b: Buffer, c: Buffer, axes: Contraction, sums: np.dtype | None = None) -> Launch:
    """c = sum over depth of a * b, accumulated in dtype `sums`, by default that of the elements."""
    stack, rows, columns, depth = axes.stack, axes.rows, axes.columns, axes.depth
    kind = sums if sums is not None else storage_of(c.dtype).compute
    library = cublaslt_product(a, b, c, axes) if kind == storage_of(c.dtype).compute else None
    if library is not None:
        return library
    half = mma_input_type(a, b)
    if (
        half is not None
        and kind == np.float32
        and min(rows.count, columns.count) >= MIN_MMA_ROWS
        and capability() >= MIN_CAPABILITY[half]
    ):
        return f16_gemm(a, b, c, axes, half)
    writer = Writer()
    for name, buffer, start in zip("abc", (a, b, c), axes.starts, strict=True):
        writer.parameter(name, buffer)
        writer.parameter(f"{name}_start", start)
    for name, count in (("rows", rows.count), ("columns", columns.count), ("depth", depth.count)):
        writer.parameter(name, count)
    tiles = (-(-columns.count // TILE), -(-rows.count // TILE), stack.count)
    writer.parameter("tiles_x", tiles[0])
    writer.parameter("tiles_y", tiles[1])
    writer.add(
        1,
        f"left = cuda.shared.array({DEEP * TILE}, np.{kind.name})",
        f"right = cuda.shared.array({DEEP * TILE}, np.{kind.name})",
        f"found = cuda.local.array({EACH * EACH}, np.{kind.name})",
        "thread = np.int64(cuda.threadIdx.x)",
        f"tx, ty = thread % {SIDE}, thread // {SIDE}",
        "tile_x = np.int64(cuda.blockIdx.x) % tiles_x",
        "tile_y = np.int64(cuda.blockIdx.x) // tiles_x % tiles_y",
        "matrix = np.int64(cuda.blockIdx.x) // tiles_x // tiles_y",
    )
    offsets(writer, 1, "s", "matrix", stack, {"a": "a_s", "b": "b_s", "c": "c_s"})
    writer.add(
        1,
        f"for e in range({EACH * EACH}):",
        f"    found[e] = np.{kind.name}(0)",
        f"for base in range(0, depth, {DEEP}):",
    )
    _fill(writer, "a", axes, a, kind)
    _fill(writer, "b", axes, b, kind)
    writer.add(
        2,
        "cuda.syncthreads()",
        f"for k in range({DEEP}):",
        f"    for i in range({EACH}):",
        f"        one = left[k * {TILE} + i * {SIDE} + ty]",
        f"        for j in range({EACH}):",
        f"            found[i * {EACH} + j] += one * right[k * {TILE} + j * {SIDE} + tx]",
        "cuda.syncthreads()",
    )
    writer.add(1, f"for i in range({EACH}):", f"    m = tile_y * {TILE} + i * {SIDE} + ty", "    if m < rows:")
    offsets(writer, 3, "m", "m", rows, {"c": "c_m"})
    writer.add(3, f"for j in range({EACH}):", f"    n = tile_x * {TILE} + j * {SIDE} + tx", "    if n < columns:")
    offsets(writer, 5, "n", "n", columns, {"c": "c_n"})
    writer.add(5, f"c[c_start + c_s + c_m + c_n] = {storage_of(c.dtype).store.format(f'found[i * {EACH} + j]')}")
    kernel = source_module.compile_source(f"product of {a.dtype} and {b.dtype}", writer.text(), (SIDE * SIDE,))
    return Launch(kernel, writer.values, math.prod(tiles))


def cublaslt_product(a: Buffer, b: Buffer, c: Buffer, axes: Contraction, bias: Buffer | None = None) -> Launch | None:
    """The same by cuBLASLt, with an optional `bias` per column; None if it is not available, or does not support the
    operands."""
    if not cublaslt.available() or isinstance(a, QuantizedBuffer) or isinstance(b, QuantizedBuffer):
        return None
    asked = blas_problem(axes)
    if asked is None:
        return None
    first, second, third = (
        item.view((item.count - start,), start) for item, start in zip((a, b, c), axes.starts, strict=True)
    )
    return cublaslt.launched(asked, first, second, third, bias)


def _fill(writer: Writer, name: str, axes: Contraction, buffer: Buffer, kind: np.dtype) -> None:
    """Write the load of operand `name`'s tile: adjacent threads read along the axis with the smaller stride."""
    depth = axes.depth
    if name == "a":
        tile, limit, block, group, strides, across = "left", "rows", "tile_y", axes.rows, depth.a, axes.rows.a
    else:
        tile, limit, block, group, strides, across = "right", "columns", "tile_x", axes.columns, depth.b, axes.columns.b
    deep_first = bool(strides) and (not across or (strides or [0])[-1] <= (across or [0])[-1])
    writer.add(2, f"for e in range(thread, {DEEP * TILE}, {SIDE * SIDE}):")
    writer.add(3, f"k, place = e % {DEEP}, e // {DEEP}" if deep_first else f"place, k = e % {TILE}, e // {TILE}")
    writer.add(
        3,
        f"at, deep = {block} * {TILE} + place, base + k",
        f"value = np.{kind.name}(0)",
        f"if at < {limit} and deep < depth:",
    )
    offsets(writer, 4, "m" if name == "a" else "n", "at", group, {name: f"{name}_at"})
    offsets(writer, 4, "d", "deep", depth, {name: f"{name}_deep"})
    load = writer.loaded(buffer, name, f"{name}_start + {name}_s + {name}_at + {name}_deep")
    writer.add(4, f"value = np.{kind.name}({load})")
    writer.add(3, f"{tile}[k * {TILE} + place] = value")
