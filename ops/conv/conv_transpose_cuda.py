"""Col2Im on the device: each element sums the columns of the windows that cover it."""

from __future__ import annotations

import numpy as np

from ...runtime.cuda.element.element import compute_dtype
from ...runtime.cuda.kernel.operand import Lookup, Operand
from ...runtime.cuda.kernel.reduce import Result, reduce_rows
from ...runtime.cuda.plan.kernel_api import Planned, Step, cuda
from ...runtime.plan.rows import Fold, add, element, found
from ..rules.sliding_window import window
from ..rules.sliding_window_cuda import per_window
from .conv_transpose import col2im


@cuda(col2im)
def col2im_on_device(step: Step) -> Planned:
    """Sum, for each pixel, the taps of all windows that cover it."""
    x, y = step.input(0), step.output()
    image, block = step.constant(1), step.constant(2)
    if image is None or block is None:
        return "its lengths are not constants"
    kernel = [int(item) for item in block.reshape(-1)]
    axes = window(
        "Col2Im", len(kernel), kernel, *(step.attributes[name] for name in ("strides", "pads", "dilations"))
    ).axes(y.shape[2:])
    columns = x.view((*y.shape[:2], *kernel, *(axis.out for axis in axes)))
    count = len(axes)
    strides = [*columns.strides[:2], *[0] * count, *columns.strides[2 : 2 + count]]
    lookups = []
    for place, axis in enumerate(axes):
        moved = np.arange(axis.size)[:, None] + axis.begin - np.arange(axis.kernel) * axis.dilation
        inside = (moved % axis.stride == 0) & (moved >= 0) & (moved < axis.out * axis.stride)
        along = [0] * (2 + 2 * count)
        along[2 + place], along[2 + count + place] = axis.kernel, 1
        table = step.constant_buffer(np.where(inside, moved // axis.stride, -1))
        lookups.append(Lookup(table, tuple(along), columns.strides[2 + count + place], axis.out, wraps=False))
    operand = Operand(columns, tuple(strides), lookups=tuple(lookups))
    result = Result(found, per_window(y, count), per_row=True)
    return reduce_rows(y.shape, kernel, {"x": operand}, [Fold("found", element, add)], [result], compute_dtype(x.dtype))
