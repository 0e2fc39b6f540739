"""Products: sums over pairs of elements of two operands, in tiles that a block of threads keeps in shared memory.

An operand is laid over (stack, row, depth) or (stack, depth, column), each any number of axes with strides of their own; so one kernel
does matrix products, stacks of them that broadcast, transposed ones, and convolutions over padded inputs, whose windows overlap.
"""

from __future__ import annotations

import math

import numpy as np

from ..launch import Buffer
from . import blas, generated
from .coded import Coded
from .dense import problem
from .element import stored
from .group import Axes as Axes
from .group import offsets
from .half_product import LEAST, half_kind, half_product
from .kernel import Launch
from .machine import SIMULATED, capability
from .operand import Writer

SIDE, EACH, DEEP = (2, 2, 3) if SIMULATED else (16, 4, 16)
"""Threads along each side of a block, outputs of a thread along each side of its tile, and elements of depth that are held at a time."""
TILE = SIDE * EACH
FEWEST = 4
"""Rows and columns from which operands of 16 bits are multiplied on tensor cores."""


def product(
    a: Buffer, b: Buffer, c: Buffer, stack: Axes, rows: Axes, columns: Axes, depth: Axes, sums: np.dtype | None = None,
    starts: tuple[int, int, int] = (0, 0, 0),
) -> Launch:
    """c = sum over depth of a * b, in dtype `sums`, that of the elements where None; `starts` are elements before the first ones."""
    kind = sums if sums is not None else stored(c.dtype).compute
    library = by_library(a, b, c, stack, rows, columns, depth, starts) if kind == stored(c.dtype).compute else None
    if library is not None:
        return library
    half = half_kind(a, b)
    if half is not None and kind == np.float32 and min(rows.count, columns.count) >= FEWEST and capability() >= LEAST[half]:
        return half_product(a, b, c, stack, rows, columns, depth, starts, half)
    writer = Writer()
    for name, buffer, start in zip("abc", (a, b, c), starts, strict=True):
        writer.parameter(name, buffer)
        writer.parameter(f"{name}_start", start)
    for name, count in (("rows", rows.count), ("columns", columns.count), ("depth", depth.count)):
        writer.parameter(name, count)
    tiles = (-(-columns.count // TILE), -(-rows.count // TILE), stack.count)
    writer.parameter("tiles_x", tiles[0])
    writer.parameter("tiles_y", tiles[1])
    writer.add(
        1, f"left = cuda.shared.array({DEEP * TILE}, np.{kind.name})", f"right = cuda.shared.array({DEEP * TILE}, np.{kind.name})",
        f"found = cuda.local.array({EACH * EACH}, np.{kind.name})",
        "thread = np.int64(cuda.threadIdx.x)", f"tx, ty = thread % {SIDE}, thread // {SIDE}",
        "tile_x = np.int64(cuda.blockIdx.x) % tiles_x", "tile_y = np.int64(cuda.blockIdx.x) // tiles_x % tiles_y",
        "matrix = np.int64(cuda.blockIdx.x) // tiles_x // tiles_y",
    )
    offsets(writer, 1, "s", "matrix", stack, {"a": "a_s", "b": "b_s", "c": "c_s"})
    writer.add(1, f"for e in range({EACH * EACH}):", f"    found[e] = np.{kind.name}(0)", f"for base in range(0, depth, {DEEP}):")
    _fill(writer, "left", "a", "rows", "tile_y", rows, depth, a, kind)
    _fill(writer, "right", "b", "columns", "tile_x", columns, depth, b, kind)
    writer.add(
        2, "cuda.syncthreads()", f"for k in range({DEEP}):", f"    for i in range({EACH}):", f"        one = left[k * {TILE} + i * {SIDE} + ty]",
        f"        for j in range({EACH}):", f"            found[i * {EACH} + j] += one * right[k * {TILE} + j * {SIDE} + tx]", "cuda.syncthreads()",
    )
    writer.add(1, f"for i in range({EACH}):", f"    m = tile_y * {TILE} + i * {SIDE} + ty", "    if m < rows:")
    offsets(writer, 3, "m", "m", rows, {"c": "c_m"})
    writer.add(3, f"for j in range({EACH}):", f"    n = tile_x * {TILE} + j * {SIDE} + tx", "    if n < columns:")
    offsets(writer, 5, "n", "n", columns, {"c": "c_n"})
    writer.add(5, f"c[c_start + c_s + c_m + c_n] = {stored(c.dtype).store.format(f'found[i * {EACH} + j]')}")
    kernel = generated.made(f"product of {a.dtype} and {b.dtype}", writer.text(), (SIDE * SIDE,))
    return Launch(kernel, writer.values, math.prod(tiles))


def by_library(
    a: Buffer, b: Buffer, c: Buffer, stack: Axes, rows: Axes, columns: Axes, depth: Axes, starts: tuple[int, int, int] = (0, 0, 0),
    bias: Buffer | None = None,
) -> Launch | None:
    """The same by cuBLASLt, a `bias` for each column added; None where it is not there, or does not know such operands."""
    if not blas.available() or isinstance(a, Coded) or isinstance(b, Coded) or min(rows.count, columns.count) < FEWEST:
        return None
    asked = problem(stack, rows, columns, depth)
    if asked is None:
        return None
    first, second, third = (item.view((item.count - start,), start) for item, start in zip((a, b, c), starts, strict=True))
    return blas.launched(asked, first, second, third, bias)


def _fill(writer: Writer, tile: str, name: str, limit: str, block: str, group: Axes, depth: Axes, buffer: Buffer, kind: np.dtype) -> None:
    """Load a tile of an operand: neighbouring threads take neighbours along the axes whose stride is smaller."""
    strides = depth.a if name == "a" else depth.b
    across = group.a if name == "a" else group.b
    deep_first = bool(strides) and (not across or (strides or [0])[-1] <= (across or [0])[-1])
    writer.add(2, f"for e in range(thread, {DEEP * TILE}, {SIDE * SIDE}):")
    writer.add(3, f"k, place = e % {DEEP}, e // {DEEP}" if deep_first else f"place, k = e % {TILE}, e // {TILE}")
    writer.add(3, f"at, deep = {block} * {TILE} + place, base + k", f"value = np.{kind.name}(0)", f"if at < {limit} and deep < depth:")
    offsets(writer, 4, "m" if name == "a" else "n", "at", group, {name: f"{name}_at"})
    offsets(writer, 4, "d", "deep", depth, {name: f"{name}_deep"})
    load = writer.loaded(buffer, name, f"{name}_start + {name}_s + {name}_at + {name}_deep")
    writer.add(4, f"value = np.{kind.name}({load})")
    writer.add(3, f"{tile}[k * {TILE} + place] = value")
