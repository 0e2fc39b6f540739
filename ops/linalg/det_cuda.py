"""Det on the device: Gaussian elimination with partial pivoting, one matrix a thread."""

from __future__ import annotations

import numpy as np

from ...runtime.cuda.kernel.elementwise import elementwise_chain, unchanged
from ...runtime.cuda.kernel.per_thread import per_thread_launch
from ...runtime.cuda.plan.kernel_api import Planned, Step, cuda
from .det import det

ELIMINATION = """
    start = i * size * size
    found = 1.0
    for column in range(size):
        pivot = column
        for row in range(column + 1, size):
            if abs(a[start + row * size + column]) > abs(a[start + pivot * size + column]):
                pivot = row
        if pivot != column:
            found = -found
            for k in range(size):
                held = a[start + column * size + k]
                a[start + column * size + k] = a[start + pivot * size + k]
                a[start + pivot * size + k] = held
        first = a[start + column * size + column]
        found = found * first
        if first == 0.0:
            break
        for row in range(column + 1, size):
            factor = a[start + row * size + column] / first
            for k in range(column, size):
                a[start + row * size + k] -= factor * a[start + column * size + k]
    put_y(y, i, found)
"""


@cuda(det)
def det_on_device(step: Step) -> Planned:
    """Eliminate with partial pivoting in f64, one matrix per thread."""
    x, y = step.input(0), step.output()
    wide = step.temporary(np.float64, x.shape)
    return [
        elementwise_chain(unchanged, [x], wide),
        per_thread_launch("determinants", y.count, {"a": wide, "y": y, "size": x.shape[-1]}, ELIMINATION),
    ]
