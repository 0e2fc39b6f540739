"""im2col: windows of the input gathered as the columns of a panel.

Arguments of kernels are those that `problem_kernel` names.
"""

# mypy: disable-error-code="untyped-decorator"
from __future__ import annotations

from typing import Any

import numpy as np

from ....runtime.jit.address import f32
from ....runtime.jit.range_kernel import inner
from ....runtime.simd.memory import evens, load_masked, store_masked
from ..gemm.register_tile import PANEL


@inner
def _bits(first: Any, last: Any) -> Any:
    """Bit mask of `[first, last)`; `last` is at most 63."""
    return ((1 << max(first, last)) - 1) & ~((1 << first) - 1)


@inner
def _line(source: Any, begin: Any, stride: Any, target: Any, low: Any, high: Any, length: Any) -> None:
    """`length` elements from a row, zeros outside of ``[least, most)``."""
    written = _bits(0, length)
    if stride == 1:
        valid = _bits(low, high)
        for half in range(0, length, 16):
            store_masked(target + 4 * half, load_masked(source + 4 * (begin + half), valid >> half), written >> half)
    elif stride == 2:
        valid = _bits(2 * low, 2 * high - 1)
        for half in range(0, length, 16):
            place = source + 4 * (begin + 2 * half)
            pairs = evens(load_masked(place, valid >> (2 * half)), load_masked(place + 64, valid >> (2 * half + 16)))
            store_masked(target + 4 * half, pairs, written >> half)
    else:
        row, packed = f32(source), f32(target)
        for j in range(length):
            packed[j] = row[begin + j * stride] if low <= j < high else np.float32(0)


@inner
def pack_columns(conv: Any, source: Any, channels: Any, start: Any, wide: Any, panel: Any) -> None:
    """Gather `wide` windows, from output position `start` on, as columns of a panel."""
    depth, height, width = conv.depth, conv.height, conv.width
    out_height, out_width, kernel_z, kernel_y = conv.out_height, conv.out_width, conv.kernel_z, conv.kernel_y
    kernel_x = conv.kernel_x
    stride_x, dilation_x, pad_x = conv.stride_x, conv.dilation_x, conv.pad_x
    column = 0
    while column < wide:
        row, first_x = (start + column) // out_width, (start + column) % out_width
        row_z, row_y = row // out_height, row % out_height
        length = min(wide - column, out_width - first_x, PANEL)
        for tap in range(kernel_z * kernel_y):
            at_z = row_z * conv.stride_z + tap // kernel_y * conv.dilation_z - conv.pad_z
            at_y = row_y * conv.stride_y + tap % kernel_y * conv.dilation_y - conv.pad_y
            inside = at_z >= 0 and at_z < depth and at_y >= 0 and at_y < height
            for kx in range(kernel_x):
                shift = kx * dilation_x - pad_x
                low = max(0, (-shift + stride_x - 1) // stride_x - first_x)
                high = min(length, (width - 1 - shift) // stride_x + 1 - first_x) if width > shift else 0
                if not inside or high <= low:
                    low, high = length, length
                begin = (at_z * height + at_y) * width + first_x * stride_x + shift
                target = panel + 4 * ((tap * kernel_x + kx) * PANEL + column)
                for channel in range(channels):
                    place = source + 4 * channel * depth * height * width
                    _line(
                        place,
                        begin,
                        stride_x,
                        target + 4 * channel * kernel_z * kernel_y * kernel_x * PANEL,
                        low,
                        high,
                        length,
                    )
        column += length
