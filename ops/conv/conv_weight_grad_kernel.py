"""Native ConvWeightGrad of f32: for each image, taps of its padded planes times its gradients, summed in registers.

A row of the product is one tap of one channel, which is read in place; a panel has the gradients of `PANEL`
outputs at each position. Images are summed in groups, whose number does not depend on threads, and the groups at last.
"""

# mypy: disable-error-code="misc, untyped-decorator"
from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ...runtime.jit.address import f32, share
from ...runtime.jit.kernel_arguments import Address
from ...runtime.jit.range_kernel import inner, range_kernel
from ...runtime.plan.kernel_api import Launch, Planned, Step, native
from ...runtime.simd.llvm_vector import Code
from ..kernels.gemm.microkernel_f32 import HEIGHTS, vector_groups
from ..kernels.gemm.register_tile import FLOATS, PANEL, VECTOR, Columns, Lines, accumulate, tiles_by_rows
from ..kernels.strided_copy import TILE, transpose_words
from .conv_weight_grad import conv_weight_grad

GROUPS = 4
"""Groups of images whose sums are kept apart."""
WORD = 4 * PANEL
"""Bytes of a line of a panel."""


class TapArguments(NamedTuple):
    """A tile: rows are taps at `image` and the offsets in `taps`; a line of positions is `width` long, `step` bytes
    apart, and lines are `line_step` bytes apart."""

    image: Any
    taps: Any
    panel: Any
    lines: Any
    width: Any
    step: Any
    line_step: Any
    sums: Any


def _add_tile(code: Code, rows: int, tile: TapArguments) -> None:
    build = code.builder
    taps = [build.add(tile.image, code.load(tile.taps, code.word(0).type, 8 * row)) for row in range(rows)]
    for group in vector_groups(PANEL // FLOATS.count):
        places = [PANEL * 4 * row + VECTOR * half for row in range(rows) for half in group]
        held = [code.word(0), tile.panel, *(code.load(tile.sums, FLOATS, place) for place in places)]

        def line(_: Any, held: list[Any], group: range = group) -> list[Any]:
            offset, panel, *sums = held
            lines = Lines(taps, tile.step, offset, unrolled=True)
            found = accumulate(code, tile.width, sums, lines, Columns(panel, group))
            following = build.add(panel, build.mul(tile.width, code.word(WORD)))
            return [build.add(offset, tile.line_step), following, *found]

        for place, total in zip(places, code.repeat(tile.lines, held, line)[2:], strict=True):
            code.store(total, tile.sums, place)


_tap_tiles = tiles_by_rows(HEIGHTS, TapArguments, _add_tile)


@inner
def padded(x: int, target: int, height: int, width: int, top: int, left: int, tall: int, wide: int) -> None:
    """A plane with zeros around it."""
    source, plane = f32(x), f32(target)
    for row in range(tall):
        at, line = row - top, row * wide
        if at < 0 or at >= height:
            for j in range(wide):
                plane[line + j] = np.float32(0)
            continue
        for j in range(min(left, wide)):
            plane[line + j] = np.float32(0)
        end = min(wide, left + width)
        for j in range(left, end):
            plane[line + j] = source[at * width + j - left]
        for j in range(max(left, end), wide):
            plane[line + j] = np.float32(0)


@inner
def _transposed(source: int, count: int, step: int, target: int, width: int) -> None:
    """`count` rows of `width` elements, `step` elements apart, as lines of a panel, zeros after them."""
    rows, lines = f32(source), f32(target)
    for first in range(0, PANEL, TILE):
        for begin in range(0, width, TILE):
            if first + TILE <= count and begin + TILE <= width:
                transpose_words(
                    source + 4 * (first * step + begin), 4 * step, target + 4 * (begin * PANEL + first), WORD
                )
                continue
            for row in range(first, first + TILE):
                for j in range(begin, min(width, begin + TILE)):
                    lines[j * PANEL + row] = rows[row * step + j] if row < count else np.float32(0)


@range_kernel
def taps_times_grads(
    x: Address,
    grad: Address,
    taps: Address,
    sums: Address,
    scratch: Address,
    images: int,
    groups: int,
    channels: int,
    outputs: int,
    rows: int,
    height: int,
    width: int,
    top: int,
    left: int,
    tall: int,
    wide: int,
    out_height: int,
    out_width: int,
    step_y: int,
    step_x: int,
    part: int,
    parts: int,
) -> None:
    """Sums [groups, panels, rows, PANEL] of a group's images; `rows` taps of all channels."""
    count = (outputs + PANEL - 1) // PANEL
    positions, plane = out_height * out_width, 4 * tall * wide
    first, last = share(groups * count, part, parts)
    image = scratch + part * (channels * plane + WORD * positions)
    panel_of = image + channels * plane
    for unit in range(first, last):
        group, panel = unit // count, unit % count
        total = sums + unit * rows * WORD
        cleared = f32(total)
        for j in range(rows * PANEL):
            cleared[j] = np.float32(0)
        for number in range(images * group // groups, images * (group + 1) // groups):
            for channel in range(channels):
                source = x + 4 * (number * channels + channel) * height * width
                padded(source, image + channel * plane, height, width, top, left, tall, wide)
            source = grad + 4 * (number * outputs + panel * PANEL) * positions
            _transposed(source, min(PANEL, outputs - panel * PANEL), positions, panel_of, positions)
            row = 0
            while row < rows:
                row += _tap_tiles(
                    rows - row, image, taps + 8 * row, panel_of, out_height, out_width, 4 * step_x,
                    4 * step_y * wide, total + row * WORD,
                )  # fmt: skip


@range_kernel
def summed_groups(sums: Address, y: Address, groups: int, outputs: int, rows: int, part: int, parts: int) -> None:
    """The sums of all groups as [outputs, rows]; the first group's are overwritten."""
    count = (outputs + PANEL - 1) // PANEL
    tiles = (rows + TILE - 1) // TILE
    first, last = share(count * tiles, part, parts)
    for unit in range(first, last):
        panel, begin = unit // tiles, unit % tiles * TILE
        end = min(rows, begin + TILE)
        place = sums + (panel * rows + begin) * WORD
        total = f32(place)
        for group in range(1, groups):
            other = f32(place + group * count * rows * WORD)
            for j in range((end - begin) * PANEL):
                total[j] += other[j]
        wide = min(PANEL, outputs - panel * PANEL)
        for near in range(0, wide, TILE):
            target = 4 * ((panel * PANEL + near) * rows + begin)
            if near + TILE <= wide and begin + TILE <= rows:
                transpose_words(place + 4 * near, WORD, y + target, 4 * rows)
                continue
            result = f32(y + target)
            for j in range(min(TILE, wide - near)):
                for row in range(end - begin):
                    result[j * rows + row] = total[row * PANEL + near + j]


def tap_offsets(channels: int, kernel: Sequence[int], dilations: Sequence[int], tall: int, wide: int) -> np.ndarray:
    """Bytes from the first element of planes of `tall` x `wide` elements to the taps of a window by channel."""
    places = itertools.product(range(channels), *map(range, kernel))
    offsets = [(channel * tall + i * dilations[0]) * wide + j * dilations[1] for channel, i, j in places]
    return 4 * np.array(offsets, np.int64)


@native(conv_weight_grad)
def plan_conv_weight_grad(step: Step) -> Planned:
    """Plan f32 over one or two spatial axes."""
    x, grad = step.input(0), step.input(1)
    axes = len(x.shape) - 2
    if x.dtype != np.float32 or axes not in (1, 2):
        return None
    missing = 2 - axes
    chosen = (step.attributes["kernel_shape"], *(step.attributes[name] for name in ("strides", "dilations")))
    kernel, strides, dilations = ([1] * missing + list(given or [1] * axes) for given in chosen)
    before = [0] * missing + list(step.attributes["begin"] or [0] * axes)
    (height, width), out = ([1] * missing + list(item.shape[2:]) for item in (x, grad))
    tall, wide = (
        (taps - 1) * dilation + (length - 1) * stride + 1
        for taps, dilation, length, stride in zip(kernel, dilations, out, strides, strict=True)
    )
    images, channels, outputs = x.shape[0], x.shape[1], grad.shape[1]
    count = channels * math.prod(kernel)
    places = tap_offsets(channels, kernel, dilations, tall, wide)
    groups, panels = min(GROUPS, images), -(-outputs // PANEL)
    sums = step.temporary(np.float32, (groups, panels, count, PANEL))
    parts = step.parts(groups * panels, grad.count * count / 16)
    scratch = step.scratch(parts * 4 * (channels * tall * wide + PANEL * math.prod(out)))
    product = Launch(
        taps_times_grads, parts, x=x, grad=grad, taps=step.constant_buffer(places), sums=sums,
        scratch=scratch, images=images, groups=groups, channels=channels, outputs=outputs, rows=count, height=height,
        width=width, top=before[0], left=before[1], tall=tall, wide=wide, out_height=out[0], out_width=out[1],
        step_y=strides[0], step_x=strides[1],
    )  # fmt: skip
    parts = step.parts(panels * -(-count // TILE), sums.count)
    y = step.output()
    return [product, Launch(summed_groups, parts, sums=sums, y=y, groups=groups, outputs=outputs, rows=count)]
