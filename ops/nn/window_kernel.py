"""Windows of the input laid out as the columns of a panel, for products with kernels.

Arguments of kernels are those that `problem_kernel` names.
"""

# mypy: disable-error-code="untyped-decorator"
from __future__ import annotations

from typing import Any

import numpy as np

from ...runtime.kernel import inner
from ...runtime.native import f32
from ..math.lane_kernel import evens, load_some, store_some
from ..math.tile_kernel import PANEL


@inner
def _bits(first: Any, last: Any) -> Any:
    """Bits from `first` to before `last`, which is at most 63."""
    return ((1 << max(first, last)) - 1) & ~((1 << first) - 1)


@inner
def _line(source: Any, begin: Any, stride: Any, target: Any, least: Any, most: Any, length: Any) -> None:
    """`length` elements from a row, zeros outside of ``[least, most)``."""
    written = _bits(0, length)
    if stride == 1:
        valid = _bits(least, most)
        for half in range(0, length, 16):
            store_some(target + 4 * half, load_some(source + 4 * (begin + half), valid >> half), written >> half)
    elif stride == 2:
        valid = _bits(2 * least, 2 * most - 1)
        for half in range(0, length, 16):
            place = source + 4 * (begin + 2 * half)
            pairs = evens(load_some(place, valid >> (2 * half)), load_some(place + 64, valid >> (2 * half + 16)))
            store_some(target + 4 * half, pairs, written >> half)
    else:
        row, packed = f32(source), f32(target)
        for j in range(length):
            packed[j] = row[begin + j * stride] if least <= j < most else np.float32(0)


@inner
def columns(args: Any, source: Any, channels: Any, start: Any, wide: Any, panel: Any) -> None:
    """`wide` windows of some channels from position `start` on, one in each column of a panel."""
    depth, height, width = args[10], args[11], args[12]
    out_height, out_width, kernel_z, kernel_y, kernel_x = args[14], args[15], args[16], args[17], args[18]
    stride_x, dilation_x, pad_x = args[21], args[24], args[27]
    column = 0
    while column < wide:
        row, first_x = (start + column) // out_width, (start + column) % out_width
        row_z, row_y = row // out_height, row % out_height
        length = min(wide - column, out_width - first_x, PANEL)
        for tap in range(kernel_z * kernel_y):
            at_z = row_z * args[19] + tap // kernel_y * args[22] - args[25]
            at_y = row_y * args[20] + tap % kernel_y * args[23] - args[26]
            inside = at_z >= 0 and at_z < depth and at_y >= 0 and at_y < height
            for kx in range(kernel_x):
                shift = kx * dilation_x - pad_x
                least = max(0, (-shift + stride_x - 1) // stride_x - first_x)
                most = min(length, (width - 1 - shift) // stride_x + 1 - first_x) if width > shift else 0
                if not inside or most <= least:
                    least, most = length, length
                begin = (at_z * height + at_y) * width + first_x * stride_x + shift
                target = panel + 4 * ((tap * kernel_x + kx) * PANEL + column)
                for channel in range(channels):
                    place = source + 4 * channel * depth * height * width
                    _line(place, begin, stride_x, target + 4 * channel * kernel_z * kernel_y * kernel_x * PANEL, least, most, length)
        column += length
