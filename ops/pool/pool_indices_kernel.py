"""Native MaxPool with the positions of what it found, which its gradient needs."""

# mypy: disable-error-code="untyped-decorator"
from __future__ import annotations

import math

import numpy as np

from ...runtime.jit.address import f32, i64, share
from ...runtime.jit.kernel_arguments import Address, Words
from ...runtime.jit.range_kernel import range_kernel
from ...runtime.plan.kernel_api import Launch, Planned, Step, native
from ..kernels.half_via_f32 import via_f32
from ..rules.sliding_window import window
from .pool import max_pool
from .pool_kernel import plan_pool


@range_kernel
def found_in_windows(
    x: Address, y: Address, places: Address, planes: int, rows: Words, columns: Words, part: int, parts: int
) -> None:
    """The first of the largest elements of each window, and its position in the tensor; NaN if there is one. `rows` and
    `columns` have sizes of the image and of the result, length, stride and dilation of the window, and padding."""
    x, y, places = f32(x), f32(y), i64(places)
    height, out_height, kernel_height = rows[0], rows[1], rows[2]
    row_stride, row_dilation, top = rows[3], rows[4], rows[5]
    width, out_width, kernel_width = columns[0], columns[1], columns[2]
    column_stride, column_dilation, left = columns[3], columns[4], columns[5]
    first, last = share(planes * out_height, part, parts)
    for line in range(first, last):
        base = line // out_height * height * width
        row_begin, target = line % out_height * row_stride - top, line * out_width
        for out in range(out_width):
            y[target + out], places[target + out] = np.float32(-np.inf), np.int64(-1)
        for i in range(kernel_height):
            row = row_begin + i * row_dilation
            if row < 0 or row >= height:
                continue
            for j in range(kernel_width):
                shift = j * column_dilation - left
                begin = max(0, (column_stride - 1 - shift) // column_stride)
                end = min(out_width, (width - 1 - shift) // column_stride + 1)
                start = base + row * width + shift
                for out in range(begin, end):
                    at = start + out * column_stride
                    value, best, place = x[at], y[target + out], places[target + out]
                    better = (place < 0) | (value > best) | ((value != value) & (best == best))
                    y[target + out] = value if better else best
                    places[target + out] = at if better else place


@native(max_pool)
@via_f32
def plan_max_pool(step: Step) -> Planned:
    """Plan f32 over one or two spatial axes where indices are used; the other kernel plans the rest."""
    x = step.inputs[0]
    if not step.is_used(1):
        return plan_pool(step)
    if x is None or x.dtype != np.float32 or len(x.shape) not in (3, 4) or step.attributes["storage_order"]:
        return None
    names = ("kernel_shape", "strides", "pads", "dilations", "auto_pad", "ceil_mode")
    axes = window("MaxPool", len(x.shape) - 2, *(step.attributes[name] for name in names)).axes(x.shape[2:])
    lines = [(axis.size, axis.out, axis.kernel, axis.stride, axis.dilation, axis.begin) for axis in axes]
    rows = lines[0] if len(lines) > 1 else (1, 1, 1, 1, 1, 0)
    planes = x.shape[0] * x.shape[1]
    places = step.output(1)
    y = step.output() if step.is_used(0) else step.temporary(x.dtype, places.shape)
    work = y.count * math.prod(line[2] for line in lines) * 2.0
    return Launch(
        found_in_windows,
        step.parts(planes * rows[1], work),
        x=x,
        y=y,
        places=places,
        planes=planes,
        rows=rows,
        columns=lines[-1],
    )
