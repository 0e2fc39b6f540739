"""Convolutions as a library is asked for them: shapes, and one padding for both ends of an axis."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ..record import dataclass

MOST = (1 << 31) - 1
"""The library counts elements and strides in 32 bits."""
KINDS = ("float32", "float16", "bfloat16")


@dataclass(frozen=True)
class Convolution:
    """``y[n, out, place] = sum over channels and taps of w[out, channel, tap] * x[n, channel, place * stride + tap * dilation - pad]``.

    Attributes:
        x, w, y: shapes, of two spatial axes at least.
        turned: whether x is what is computed, each y times its kernel added up: a transposed convolution.
    """

    x: tuple[int, ...]
    w: tuple[int, ...]
    y: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    pads: tuple[int, ...]
    groups: int
    dtype: str
    turned: bool = False


def convolution(
    x: Sequence[int], w: Sequence[int], y: Sequence[int], strides: Sequence[int], dilations: Sequence[int], pads: Sequence[int], groups: int,
    dtype: str, turned: bool = False,
) -> Convolution | None:
    """What a library is asked for; `pads` are elements before the first one. A single spatial axis becomes the second of two.

    None where it knows no such convolution: other dtypes, four spatial axes and more, arrays of more elements than it counts, and paddings at
    the end of an axis with which it would compute more or fewer outputs than there are, since it pads both ends alike.
    """
    axes = list(zip(x[2:], w[2:], y[2:], strides, dilations, pads, strict=True))
    if dtype not in KINDS or not 1 <= len(axes) <= 3 or not all(0 < math.prod(shape) <= MOST for shape in (x, w, y)):
        return None
    if any((size + 2 * pad - dilation * (kernel - 1) - 1) // stride + 1 != out for size, kernel, out, stride, dilation, pad in axes):
        return None
    if len(axes) == 1:
        axes.insert(0, (1, 1, 1, 1, 1, 0))
    sizes, taps, outs, steps, gaps, before = zip(*axes, strict=True)
    return Convolution((*x[:2], *sizes), (*w[:2], *taps), (*y[:2], *outs), steps, gaps, before, groups, dtype, turned)
