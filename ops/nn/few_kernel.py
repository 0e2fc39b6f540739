"""Convolution with few positions of the output: windows are rows, and the kernels, packed once, stand in panels of output channels."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...runtime.kernel import inner, range_kernel
from ...runtime.native import f32, number, share
from ..math.finish_kernel import finished
from ..math.tile_kernel import PANEL, column_of_tiles, panels

FEW = 12
"""Positions up to which windows are rows."""
ENOUGH = 16
"""Output channels of a group from which panels of them pay."""


def weight_panels(w: np.ndarray, groups: int) -> np.ndarray:
    """Kernels [out, ...] as panels [groups, out / groups / PANEL, depth, PANEL]."""
    return np.stack([panels(part.reshape(len(part), -1).T) for part in np.split(w, groups)])


def padded_bias(bias: np.ndarray | None, groups: int, outputs: int) -> np.ndarray:
    """Biases [groups, panels x PANEL]."""
    wide = -(-outputs // PANEL) * PANEL
    made = np.zeros((groups, wide), np.float32)
    if bias is not None:
        made[:, :outputs] = bias.reshape(groups, outputs)
    return made


@inner
def _window(args: Any, source: Any, position: Any, target: Any) -> None:
    """The window of a position as a row."""
    channels, depth, height, width = args[8], args[10], args[11], args[12]
    out_height, out_width, kernel_z, kernel_y, kernel_x = args[14], args[15], args[16], args[17], args[18]
    row, out_x = position // out_width, position % out_width
    row_z, row_y = row // out_height, row % out_height
    x, made = f32(source), f32(target)
    place = 0
    for channel in range(channels):
        for tap in range(kernel_z * kernel_y):
            at_z = row_z * args[19] + tap // kernel_y * args[22] - args[25]
            at_y = row_y * args[20] + tap % kernel_y * args[23] - args[26]
            inside = at_z >= 0 and at_z < depth and at_y >= 0 and at_y < height
            line = ((channel * depth + at_z) * height + at_y) * width
            for kx in range(kernel_x):
                at_x = out_x * args[21] + kx * args[24] - args[27]
                made[place + kx] = x[line + at_x] if inside and at_x >= 0 and at_x < width else np.float32(0)
            place += kernel_x


@range_kernel
def convolved_few(args: Any, part: Any, parts: Any) -> None:
    """Arguments as `conv_kernel` says; kernels in panels, biases padded to them."""
    x, w, y, bias, zero = args[0], args[1], args[2], args[3], args[5]
    images, groups, channels, outputs = args[6], args[7], args[8], args[9]
    low, high = np.float32(number(args[28])), np.float32(number(args[29]))
    alpha, beta, added = np.float32(number(args[34])), np.float32(number(args[35])), args[36]
    depth, positions = channels * args[16] * args[17] * args[18], args[13] * args[14] * args[15]
    windows = args[31] + part * 4 * positions * (depth + PANEL)
    made = windows + 4 * positions * depth
    count = (outputs + PANEL - 1) // PANEL
    first, last = share(images * groups * count, part, parts)
    before = -1
    for unit in range(first, last):
        panel, place = unit % count, unit // count
        group = place % groups
        if place != before:
            before = place
            source = x + place * channels * args[10] * args[11] * args[12] * 4
            for position in range(positions):
                _window(args, source, position, windows + 4 * depth * position)
        column_of_tiles(
            windows, 4 * depth, 4, w + (group * count + panel) * depth * PANEL * 4, depth, made, 4 * PANEL, 0, positions, PANEL, zero, 0,
            bias + 4 * PANEL * (group * count + panel), low, high, made,
        )
        start = panel * PANEL
        base = 4 * (place * outputs + start) * positions
        wide = min(PANEL, outputs - start)
        target, source_row = f32(y + base), f32(made)
        for row in range(wide):
            for position in range(positions):
                target[row * positions + position] = source_row[position * PANEL + row]
        if args[32] != 0:
            finished(args[33], alpha, beta, y + base, 0, 1, wide * positions, added + base if added != 0 else added, 0)
