"""Convolution problems for cuDNN: shapes, and symmetric padding."""

from __future__ import annotations

import math
from dataclasses import replace

from ...base.dataclass import dataclass

MAX_INT32 = (1 << 31) - 1
"""The library's elements and strides are 32-bit."""
KINDS = ("float32", "float16", "bfloat16")


@dataclass(frozen=True)
class Convolution:
    """``y[n, out, i] = sum over channels and taps of w[out, channel, tap] * x[n, channel, i * stride + tap * dilation -
    pad]``.

    Attributes:
        x, w, y: shapes.
        pads: elements before the first one of each spatial axis.
        transposed: whether x is what is computed, each y times its kernel added up.
    """

    x: tuple[int, ...]
    w: tuple[int, ...]
    y: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    pads: tuple[int, ...]
    groups: int
    dtype: str
    transposed: bool = False


def cudnn_problem(asked: Convolution) -> Convolution | None:
    """The problem in the form that the library accepts. A 1-D convolution becomes 2-D.

    None if the library does not support it: other dtypes, four and more spatial axes, arrays of 2^31 and more
    elements, and asymmetric padding that would change the number of outputs.
    """
    x, w, y = asked.x, asked.w, asked.y
    axes = list(zip(x[2:], w[2:], y[2:], asked.strides, asked.dilations, asked.pads, strict=True))
    if (
        asked.dtype not in KINDS
        or not 1 <= len(axes) <= 3
        or not all(0 < math.prod(shape) <= MAX_INT32 for shape in (x, w, y))
    ):
        return None
    if any(
        (size + 2 * pad - dilation * (kernel - 1) - 1) // stride + 1 != out
        for size, kernel, out, stride, dilation, pad in axes
    ):
        return None
    if len(axes) == 1:
        axes.insert(0, (1, 1, 1, 1, 1, 0))
    sizes, taps, outs, steps, gaps, before = zip(*axes, strict=True)
    return replace(
        asked, x=(*x[:2], *sizes), w=(*w[:2], *taps), y=(*y[:2], *outs), strides=steps, dilations=gaps, pads=before
    )
