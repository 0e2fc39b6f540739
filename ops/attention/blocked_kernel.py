"""Attention of many queries: blocks of queries over blocks of keys with a running softmax (Dao et al. 2022, arXiv:2205.14135).

Keys and values are packed into panels first, widened to f32; products are those of `tile_kernel`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...runtime.kernel import inner, range_kernel
from ...runtime.native import f32, i32, number, share
from ...runtime.scalar_math import exp
from ...runtime.simd import LANES
from ..math.lane_kernel import load_one, load_single, narrow, store_single, widen
from ..math.tile_kernel import PANEL, ROWS, column_of_tiles
from .score_kernel import HIDING, keys_of, shown, sight_of, weigh

QUERIES = 48
"""Queries of a block."""
KEYS = 256
"""Keys of a block."""


@inner
def _column_major(kind: Any, source: Any, row: Any, count: Any, size: Any, target: Any) -> None:
    """`count` rows as the columns of a panel, zeros behind them."""
    packed = f32(target)
    width = 4 if kind == 0 else 2
    for j in range(count):
        line = source + j * row
        for k in range(size):
            packed[k * PANEL + j] = load_one(kind, line + k * width)
    for j in range(count, PANEL):
        for k in range(size):
            packed[k * PANEL + j] = np.float32(0)


@range_kernel
def packed_keys(args: Any, part: Any, parts: Any) -> None:
    """Keys, kind, bytes from batch to batch, head to head and row to row; panels [batch, heads, panels, size, PANEL]; these lengths."""
    source, kind, batch_step, head_step, row = args[0], args[1], args[2], args[3], args[4]
    target, batch, heads, keys, size = args[5], args[6], args[7], args[8], args[9]
    count = (keys + PANEL - 1) // PANEL
    first, last = share(batch * heads * count, part, parts)
    for unit in range(first, last):
        panel, head, image = unit % count, unit // count % heads, unit // count // heads
        start = source + image * batch_step + head * head_step + panel * PANEL * row
        _column_major(kind, start, row, min(PANEL, keys - panel * PANEL), size, target + unit * size * PANEL * 4)


@range_kernel
def packed_values(args: Any, part: Any, parts: Any) -> None:
    """As `packed_keys`, into [batch, heads, key blocks, panels, KEYS, PANEL]."""
    source, kind, batch_step, head_step, row = args[0], args[1], args[2], args[3], args[4]
    target, batch, heads, keys, size = args[5], args[6], args[7], args[8], args[9]
    count, panels = (keys + KEYS - 1) // KEYS, (size + PANEL - 1) // PANEL
    width = 4 if kind == 0 else 2
    first, last = share(batch * heads * count, part, parts)
    for unit in range(first, last):
        block, head, image = unit % count, unit // count % heads, unit // count // heads
        for j in range(min(KEYS, keys - block * KEYS)):
            line = source + image * batch_step + head * head_step + (block * KEYS + j) * row
            for panel in range(panels):
                to = target + ((unit * panels + panel) * KEYS + j) * PANEL * 4
                wide = min(PANEL, size - panel * PANEL)
                widen(kind, line + panel * PANEL * width, to, wide, np.float32(1))
                for column in range(wide, PANEL):
                    f32(to)[column] = np.float32(0)


@range_kernel
def attended_blocks(args: Any, part: Any, parts: Any) -> None:
    """Queries, outputs, packed keys and values; lengths and steps as `attention_kernel` lists them; scratch of a part for each part."""
    q, q_kind, q_batch, q_head, q_row = args[0], args[1], args[2], args[3], args[4]
    y, y_kind, y_batch, y_head, y_row = args[5], args[6], args[7], args[8], args[9]
    batch, heads, groups, queries, keys, size, width = args[10], args[11], args[12], args[13], args[14], args[15], args[16]
    mask, form, mask_batch, mask_head, mask_row, masked = args[17], args[18], args[19], args[20], args[21], args[22]
    lengths, length_width, more, before = args[23], args[24], args[25], args[26]
    causal, left, right, sink, sink_kind = args[27], args[28], args[29], args[30], args[31]
    scale, softcap = np.float32(number(args[32])), np.float32(number(args[33]))
    packed_k, packed_v, zero, room = args[34], args[35], args[36], args[37]
    panels_k, blocks_v = (keys + PANEL - 1) // PANEL, (keys + KEYS - 1) // KEYS
    panels_v = (width + PANEL - 1) // PANEL
    wide = panels_v * PANEL
    wanted = room + part * 4 * (QUERIES * (size + KEYS + 2 * wide + 4) + ROWS * PANEL)
    scores = wanted + 4 * QUERIES * size
    product = scores + 4 * QUERIES * KEYS
    sums = product + 4 * QUERIES * wide
    tops = f32(sums + 4 * QUERIES * wide)
    totals = f32(sums + 4 * QUERIES * (wide + 1))
    sights = i32(sums + 4 * QUERIES * (wide + 2))
    spare = sums + 4 * QUERIES * (wide + 4)
    count = (queries + QUERIES - 1) // QUERIES
    minus, infinite = np.float32(-np.inf), np.float32(np.inf)
    for unit in range(part, batch * heads * count, parts):
        image, head, start = unit % (batch * heads) // heads, unit % heads, (count - 1 - unit // (batch * heads)) * QUERIES
        rows = min(QUERIES, queries - start)
        group = image * groups + head // (heads // groups)
        length = keys_of(lengths, length_width, more, keys, image)
        offset = before if lengths == 0 else length - queries
        lowest: Any = np.int64(keys)
        highest: Any = np.int64(0)
        for i in range(rows):
            widen(q_kind, q + image * q_batch + head * q_head + (start + i) * q_row, wanted + 4 * size * i, size, scale)
            first, last = sight_of(offset + start + i, length, causal, left, right)
            if form == HIDING:
                last = max(first, min(last, masked))
                first, last = shown(mask + image * mask_batch + head * mask_head + (start + i) * mask_row, first, last)
            sights[2 * i], sights[2 * i + 1] = first, last
            lowest, highest = min(lowest, first), max(highest, last)
            tops[i], totals[i] = minus, np.float32(0)
            if sink != 0:
                tops[i] = load_one(sink_kind, sink + head * (4 if sink_kind == 0 else 2))
                totals[i] = np.float32(1) if tops[i] > minus else np.float32(0)
            for j in range(0, wide, LANES):
                store_single(sums + 4 * (wide * i + j), load_single(zero))
        for block in range(lowest // KEYS, (highest + KEYS - 1) // KEYS):
            begin = block * KEYS
            depth = min(KEYS, highest - begin)
            for panel in range((depth + PANEL - 1) // PANEL):
                column_of_tiles(
                    wanted, 4 * size, 4, packed_k + (group * panels_k + begin // PANEL + panel) * size * PANEL * 4, size,
                    scores + panel * PANEL * 4, 4 * KEYS, 0, rows, PANEL, zero, 0, zero, minus, infinite, spare,
                )
            for i in range(rows):
                first, last = np.int64(sights[2 * i]), np.int64(sights[2 * i + 1])
                line = mask + image * mask_batch + head * mask_head + (start + i) * mask_row + begin * (1 if form == 1 else 4)
                top, power = weigh(scores + 4 * KEYS * i, depth, first - begin, last - begin, softcap, form, line, masked - begin, tops[i])
                factor = _power(tops[i], top)
                tops[i], totals[i] = top, totals[i] * factor + power
                if factor != np.float32(1):
                    for j in range(0, wide, LANES):
                        place = sums + 4 * (wide * i + j)
                        store_single(place, load_single(place) * factor)
            for panel in range(panels_v):
                column_of_tiles(
                    scores, 4 * KEYS, 4, packed_v + ((group * blocks_v + block) * panels_v + panel) * KEYS * PANEL * 4, depth,
                    product + panel * PANEL * 4, 4 * wide, 0, rows, PANEL, zero, 0, zero, minus, infinite, spare,
                )
            for j in range(0, rows * wide, LANES):
                store_single(sums + 4 * j, load_single(sums + 4 * j) + load_single(product + 4 * j))
        for i in range(rows):
            part_of_one = np.float32(1) / totals[i] if totals[i] != np.float32(0) else np.float32(0)
            narrow(y_kind, sums + 4 * wide * i, y + image * y_batch + head * y_head + (start + i) * y_row, width, part_of_one)


@inner
def _power(before: Any, after: Any) -> Any:
    """What sums of powers less the score `before` are multiplied with to be those less `after`."""
    if before == after:
        return np.float32(1)
    return exp(before - after) if before > np.float32(-np.inf) else np.float32(0)
