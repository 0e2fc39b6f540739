"""CumSum and CumProd on the device: one row per thread."""

from __future__ import annotations

from ...runtime.cuda.element.element import compute_dtype
from ...runtime.cuda.kernel.axes import split
from ...runtime.cuda.kernel.operand import Operand
from ...runtime.cuda.kernel.reduce import add, times
from ...runtime.cuda.kernel.scatter_scan import scan_launch
from ...runtime.cuda.plan.kernel_api import Planned, Step, cuda
from .cumulative import cum_prod, cum_sum


@cuda(cum_sum, cum_prod)
def cumulated_on_device(step: Step) -> Planned:
    """One thread for each row."""
    x, axes, y = step.input(0), step.constant(1), step.output()
    if axes is None:
        return "its axis is not a constant"
    order, apart, along = split(x.shape, [int(axes.reshape(-1)[0])])
    ends = [[item.strides[axis] for axis in order] for item in (x, y)]
    offset = 0
    if step.attributes["reverse"]:
        offset = (along[0] - 1) * ends[0][-1]
        for strides in ends:
            strides[-1] = -strides[-1]
    join = add if step.node.op is cum_sum else times
    source, target = (Operand(item, tuple(strides), offset) for item, strides in zip((x, y), ends, strict=True))
    return scan_launch(
        apart, along[0], source, target, join, compute_dtype(x.dtype), bool(step.attributes["exclusive"])
    )
