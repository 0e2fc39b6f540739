"""Native pooling of float32 over one or two axes, and over whole channels."""

# mypy: disable-error-code="untyped-decorator"
from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...runtime.kernel import range_kernel
from ...runtime.launch import Launch, Planned, Step, native
from ...runtime.native import f32, share
from .global_pool import global_average_pool
from .pool import average_pool, max_pool
from .window import window

F32 = np.dtype(np.float32)


def _pooling(average: bool) -> Any:
    @range_kernel
    def pooled(args: Any, part: Any, parts: Any) -> None:
        """Rows of the output: x, y, planes, height, width, out height and width, kernel, strides, dilations, padding, whether padding counts."""
        x, y, planes, height, width, out_height, out_width = f32(args[0]), f32(args[1]), args[2], args[3], args[4], args[5], args[6]
        kernel_y, kernel_x, stride_y, stride_x = args[7], args[8], args[9], args[10]
        dilation_y, dilation_x, pad_y, pad_x, end_y, end_x, padded = args[11], args[12], args[13], args[14], args[15], args[16], args[17]
        first, last = share(planes * out_height, part, parts)
        for row in range(first, last):
            plane, out_y = row // out_height, row % out_height
            base, line = plane * height * width, row * out_width
            for out_x in range(out_width):
                found = np.float32(0) if average else np.float32(-np.inf)
                seen = 0
                for ky in range(kernel_y):
                    at_y = out_y * stride_y + ky * dilation_y - pad_y
                    for kx in range(kernel_x):
                        at_x = out_x * stride_x + kx * dilation_x - pad_x
                        if 0 <= at_y < height and 0 <= at_x < width:
                            value = x[base + at_y * width + at_x]
                            seen += 1
                            if average:
                                found += value
                            else:
                                found = value if value > found or value != value else found
                        elif padded != 0 and at_y < height + end_y and at_x < width + end_x:
                            seen += 1
                y[line + out_x] = found / np.float32(seen) if average else found

    return pooled


_AVERAGE, _LARGEST = _pooling(True), _pooling(False)


@range_kernel(fastmath={"reassoc"})
def row_means(args: Any, part: Any, parts: Any) -> None:
    """Mean of each row: x, y, rows, elements of a row."""
    x, y, rows, count = f32(args[0]), f32(args[1]), args[2], args[3]
    first, last = share(rows, part, parts)
    for row in range(first, last):
        total = np.float32(0)
        for j in range(count):
            total += x[row * count + j]
        y[row] = total / np.float32(count)


@native(max_pool, average_pool)
def plan_pool(step: Step) -> Planned:
    """Indices of the largest, and three spatial axes and more, are left to NumPy."""
    x = step.inputs[0]
    if x is None or x.dtype != F32 or len(x.shape) not in (3, 4) or step.wanted(1):
        return None
    names = ("kernel_shape", "strides", "pads", "dilations", "auto_pad", "ceil_mode")
    axes = window(step.node.op.name, len(x.shape) - 2, *(step.attributes[name] for name in names)).axes(x.shape[2:])
    lines = [(axis.size, axis.out, axis.kernel, axis.stride, axis.dilation, axis.begin, axis.end) for axis in axes]
    if len(lines) == 1:
        lines.insert(0, (1, 1, 1, 1, 1, 0, 0))
    average = step.node.op is average_pool
    columns = [item for column in zip(*lines, strict=True) for item in column]
    y, planes = step.output(), x.shape[0] * x.shape[1]
    work = y.count * math.prod(line[2] for line in lines) * 1.5
    arguments = (x, y, planes, *columns, step.attributes.get("count_include_pad", 0))
    return Launch(_AVERAGE if average else _LARGEST, arguments, step.parts(planes * lines[0][1], work))


@native(global_average_pool)
def plan_global_average(step: Step) -> Planned:
    """The mean of each channel."""
    x = step.inputs[0]
    if x is None or x.dtype != F32 or len(x.shape) < 3:
        return None
    rows = x.shape[0] * x.shape[1]
    return Launch(row_means, (x, step.output(), rows, x.count // rows), step.parts(rows, x.count * 0.3))
