"""LRN on the device: sums of squares over neighbouring channels, then the quotient."""

from __future__ import annotations

import math

from ...runtime.cuda.element.element import compute_dtype
from ...runtime.cuda.kernel.elementwise import elementwise_chain
from ...runtime.cuda.kernel.reduce import Result, reduce_rows
from ...runtime.cuda.plan.kernel_api import Planned, Step, cuda
from ...runtime.plan.rows import Fold, add, found, square
from ..rules.sliding_window import Axis
from ..rules.sliding_window_cuda import per_window, seen
from .lp_norm import lrn


def _normal(x: float, total: float, scale: float, bias: float, beta: float) -> float:
    return x / math.pow(bias + scale * total, beta)


@cuda(lrn)
def lrn_on_device(step: Step) -> Planned:
    """Sum squares over channels, then scale the elements."""
    x, size, y = step.input(0), step.attributes["size"], step.output()
    channels = x.shape[1]
    near = Axis(channels, size, 1, 1, (size - 1) // 2, size // 2, channels)
    kind = compute_dtype(x.dtype)
    sums = step.temporary(kind, x.shape)
    total = reduce_rows(
        x.shape,
        [size],
        {"x": seen(step, x, [near], 1)},
        [Fold("found", square, add)],
        [Result(found, per_window(sums, 1), per_row=True)],
        kind,
    )
    scale, bias, beta = step.attributes["alpha"] / size, step.attributes["bias"], step.attributes["beta"]
    return [total, elementwise_chain(_normal, [x, sums], y, scale, bias, beta)]
