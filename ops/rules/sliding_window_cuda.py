"""Sliding windows on the device: operands that index the elements of each window."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...runtime.cuda.kernel.operand import Lookup, Operand
from ...runtime.cuda.plan.kernel_api import Step
from ...runtime.plan.kernel_api import Buffer
from .sliding_window import Axis


def seen(step: Step, x: Buffer, axes: Sequence[Axis], first: int = 2, fill: float = 0.0) -> Operand:
    """The elements that windows see: over the axes of the output, then those of the taps; `fill` outside of the
    input."""
    rank, count = len(x.shape), len(axes)
    strides, lookups = [*x.strides, *[0] * count], []
    for place, axis in enumerate(axes):
        places = np.arange(axis.out)[:, None] * axis.stride + np.arange(axis.kernel) * axis.dilation - axis.begin
        table = step.constant_buffer(np.where((places >= 0) & (places < axis.size), places, -1))
        along = [0] * (rank + count)
        along[first + place], along[rank + place] = axis.kernel, 1
        strides[first + place] = 0
        lookups.append(Lookup(table, tuple(along), x.strides[first + place], axis.size, wraps=False))
    return Operand(x, tuple(strides), lookups=tuple(lookups), fill=fill)


def per_window(y: Buffer, taps: int) -> Operand:
    """An output over a box whose last axes are those of the taps."""
    return Operand(y, (*y.strides, *[0] * taps))
