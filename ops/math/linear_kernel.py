"""Native Linear and MatMulExperts: weights of every stored type, rows of f32."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...runtime.kernel import range_kernel
from ...runtime.launch import Buffer, Launch, Planned, Step, native
from ...runtime.native import f32, share
from ..quants.products import rows
from . import dot_kernel
from .decoded_kernel import PANEL, TILE, many, scratch_nbytes
from .dot_panel_kernel import COLUMNS
from .linear import linear
from .rows_kernel import Floats, Products, few, summed, sums_group
from .whole_kernel import RUN, Digits, Whole, available, rounded_floats, rounded_nbytes, rounding

FEW = 4
"""Rows of activations up to which a weight is decoded in registers."""
UNIT = 96
"""Rows of a weight that are decoded into cache at a time, at most."""


@range_kernel
def pack_panels(args: Any, part: Any, parts: Any) -> None:
    """Rows in panels, element by element: from, to, rows, elements of a row. The last panel is padded with zeros to 16 or 32 rows."""
    rows_of, length = args[2], args[3]
    source, target = f32(args[0]), f32(args[1])
    first, last = share((rows_of + PANEL - 1) // PANEL, part, parts)
    for panel in range(first, last):
        count = min(PANEL, rows_of - panel * PANEL)
        width = PANEL if count > 16 else 16
        start = panel * PANEL * length
        for k in range(0, length, 16):
            stop = min(length, k + 16)
            for row in range(count):
                for element in range(k, stop):
                    target[start + element * width + row] = source[start + row * length + element]
            for element in range(k, stop):
                for row in range(count, width):
                    target[start + element * width + row] = np.float32(0)


def weight_of(step: Step) -> tuple[str, int] | None:
    """The type of the rows of input 1 and the bytes of a row; None where no kernel reads them."""
    value, buffer = step.node.inputs[1], step.inputs[1]
    if value is None or buffer is None or value.dtype is None:
        return None
    name = value.dtype.name
    return (name, buffer.nbytes // math.prod(buffer.shape[:-1])) if name in rows() else None


def bias_of(step: Step) -> Buffer | int | None:
    """The third input, 0 where there is none; None where it is no f32."""
    if len(step.inputs) < 3 or step.node.inputs[2] is None:
        return 0
    bias = step.inputs[2]
    return bias if bias is not None and bias.dtype == np.float32 else None


@native(linear)
def plan_linear(step: Step) -> Planned:
    """Activations of f32; those rounded to 8 bits in whole runs."""
    x, found, bias = step.inputs[0], weight_of(step), bias_of(step)
    if x is None or x.dtype != np.float32 or found is None or bias is None:
        return None
    name, row_bytes = found
    weight, y = step.inputs[1], step.output()
    assert weight is not None
    length, count = x.shape[-1], weight.shape[0]
    tokens = x.count // length
    rounding_wanted = step.attributes["activations"] == "q8"
    if rounding_wanted and length % RUN:
        return None
    whole = step.attributes["activations"] != "f32" and not length % RUN and dot_kernel.available(name)
    if tokens <= (FEW if whole else 2 * FEW):
        before, x, x_bytes, products = prepared(step, x, name)
        launches = []
        for first in range(0, tokens, FEW):
            batch = min(FEW, tokens - first)
            rows_of = Buffer(x.dtype, x.shape, x.room, x.offset + first * x_bytes)
            arguments = (weight, rows_of, y.view(y.shape, first * count), bias, count, row_bytes, length, x_bytes, 4 * count)
            launches.append(Launch(few(name, batch, products=products), arguments, step.parts(count, 3 * batch * count * length / 16)))
        return [*before, *launches]
    if whole:
        return _in_tiles(step, x, name, (weight, y, bias, count, row_bytes))
    before, x = rounded(step, x) if rounding_wanted else ([], x)
    parts = step.parts(-(-tokens // PANEL), tokens * length / 4)
    panels = step.scratch(4 * length * -(-tokens // PANEL) * PANEL)
    pack = Launch(pack_panels, (x, panels, tokens, length), parts)
    unit = max(TILE, min(UNIT, count // (4 * step.threads)) // TILE * TILE)
    parts = step.parts(-(-count // unit), tokens * count * length / 16)
    scratch = step.scratch(parts * scratch_nbytes(unit))
    return [*before, pack, Launch(many(name), (weight, panels, y, bias, count, row_bytes, length, tokens, scratch, unit), parts)]


def _in_tiles(step: Step, x: Buffer, name: str, operands: tuple[Buffer, Buffer, Buffer | int, int, int]) -> list[Launch]:
    """Products of many rows as whole numbers; operands are weight, y, bias, rows of the weight and bytes of one."""
    weight, y, bias, count, row_bytes = operands
    length = x.shape[-1]
    tokens, way = x.count // length, dot_kernel.taken(name)
    tiles = step.scratch(dot_kernel.tiles_nbytes(name, way, tokens, length))
    tiling = Launch(dot_kernel.tiling(name, way), (x, tiles, tokens, length), step.parts(tokens, x.count / 4))
    parts = step.parts(-(-count // COLUMNS), tokens * count * length / 32)
    room = step.scratch(parts * dot_kernel.scratch_nbytes(name, way, tokens))
    return [tiling, Launch(dot_kernel.dots(name, way), (weight, tiles, y, bias, count, row_bytes, length, tokens, room), parts)]


def prepared(step: Step, x: Buffer, name: str) -> tuple[list[Launch], Buffer, int, Products]:
    """Rows as the products of few rows with a type take them, the bytes of one, and these products."""
    length = x.shape[-1]
    tokens = x.count // length
    rounding_wanted = step.attributes["activations"] == "q8"
    if available(name):
        products = Whole if rounding_wanted else Digits
        nbytes = rounded_nbytes(name, length, products.digits)
        made = step.scratch(tokens * nbytes)
        launch = Launch(rounding(name, products.digits), (x, made, tokens, length, nbytes), step.parts(tokens, x.count / 4))
        return [launch], made, nbytes, products
    before, x = rounded(step, x) if rounding_wanted else ([], x)
    group = sums_group(name)
    if not group:
        return before, x, 4 * length, Floats
    nbytes = 4 * length + 4 * length // group
    made = step.scratch(tokens * nbytes)
    return [*before, Launch(summed(group), (x, made, tokens, length), step.parts(tokens, x.count / 8))], made, nbytes, Floats


def rounded(step: Step, x: Buffer) -> tuple[list[Launch], Buffer]:
    """The rows with their values rounded to 8 bits."""
    length = x.shape[-1]
    near = step.scratch(x.nbytes).view(x.shape, dtype=x.dtype)
    return [Launch(rounded_floats(), (x, near, x.count // length, length), step.parts(x.count // RUN, x.count / 4))], near
