"""Attention of few queries over a long cache, which is read once: blocks of keys for all queries of a group, then one sum of the blocks."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...runtime.kernel import inner, range_kernel
from ...runtime.native import f32, number, share, u8
from ...runtime.scalar_math import exp
from ...runtime.simd import LANES
from ..math.lane_kernel import BRAIN, HALF, SINGLE, load_one, narrow, widen
from .group_kernel import KEYS, dots_of, sums_of
from .score_kernel import HIDING, keys_of, sight_of, weigh

_dots_single, _dots_half, _dots_brain = dots_of(SINGLE), dots_of(HALF), dots_of(BRAIN)
_mixed_single, _mixed_half, _mixed_brain = sums_of(SINGLE), sums_of(HALF), sums_of(BRAIN)


@inner
def _products(kind: Any, keys: Any, step: Any, count: Any, queries: Any, rows: Any, size: Any, scores: Any) -> None:
    if kind == HALF:
        _dots_half(keys, step, count, queries, rows, size, scores)
    elif kind == BRAIN:
        _dots_brain(keys, step, count, queries, rows, size, scores)
    else:
        _dots_single(keys, step, count, queries, rows, size, scores)
    width = 4 if kind == 0 else 2
    for row in range(rows):
        line, query = f32(scores + 4 * KEYS * row), f32(queries + 4 * size * row)
        for k in range(size - size % LANES, size):
            for j in range(count):
                line[j] += query[k] * load_one(kind, keys + j * step + k * width)


@inner
def _add_values(kind: Any, values: Any, step: Any, count: Any, powers: Any, rows: Any, size: Any, sums: Any) -> None:
    if kind == HALF:
        _mixed_half(values, step, count, powers, rows, size, sums)
    elif kind == BRAIN:
        _mixed_brain(values, step, count, powers, rows, size, sums)
    else:
        _mixed_single(values, step, count, powers, rows, size, sums)
    width = 4 if kind == 0 else 2
    for row in range(rows):
        line, made = f32(powers + 4 * KEYS * row), f32(sums + 4 * size * row)
        for k in range(size - size % LANES, size):
            for j in range(count):
                made[k] += line[j] * load_one(kind, values + j * step + k * width)


@inner
def _seen(mask: Any, head_step: Any, heads: Any, row_step: Any, queries: Any, lowest: Any, highest: Any) -> Any:
    """What is left of a range of keys without those at its ends that no query sees."""
    first, last = highest, lowest
    for head in range(heads if head_step != 0 else 1):
        for query in range(queries if row_step != 0 else 1):
            line = u8(mask + head * head_step + query * row_step)
            begin, end = lowest, highest
            while begin < first and line[begin] == 0:
                begin += 1
            while end > last and line[end - 1] == 0:
                end -= 1
            first, last = min(first, begin), max(last, end)
    return first, last


@range_kernel
def attended_cache(args: Any, part: Any, parts: Any) -> None:
    """Sums over blocks of keys: queries, keys, values; lengths and steps as `attention_kernel` lists them; sums, scratch for each part."""
    q, q_kind, q_batch, q_head, q_row = args[0], args[1], args[2], args[3], args[4]
    batch, heads, groups, queries, keys, size, width = args[10], args[11], args[12], args[13], args[14], args[15], args[16]
    mask, form, mask_batch, mask_head, mask_row, masked = args[17], args[18], args[19], args[20], args[21], args[22]
    lengths, length_width, more, before = args[23], args[24], args[25], args[26]
    causal, left, right = args[27], args[28], args[29]
    scale, softcap = np.float32(number(args[32])), np.float32(number(args[33]))
    k, k_kind, k_batch, k_head, k_row = args[34], args[35], args[36], args[37], args[38]
    v, v_kind, v_batch, v_head, v_row = args[39], args[40], args[41], args[42], args[43]
    partial, room = args[44], args[45]
    each = heads // groups
    rows, blocks = each * queries, (keys + KEYS - 1) // KEYS
    wanted = room + part * 4 * rows * (size + KEYS)
    scores = wanted + 4 * rows * size
    for unit in range(part, batch * groups * blocks, parts):
        block, group, image = unit % blocks, unit // blocks % groups, unit // blocks // groups
        length = keys_of(lengths, length_width, more, keys, image)
        offset = before if lengths == 0 else length - queries
        made = partial + unit * 4 * rows * (width + 2)
        tops, totals = f32(made + 4 * rows * width), f32(made + 4 * rows * (width + 1))
        begin = block * KEYS
        lowest, highest = np.int64(keys), np.int64(0)
        for row in range(rows):
            tops[row], totals[row] = np.float32(-np.inf), np.float32(0)
            first, last = sight_of(offset + row % queries, length, causal, left, right)
            lowest, highest = min(lowest, first), max(highest, last)
        lowest, highest = max(lowest, begin), min(highest, begin + KEYS)
        if highest <= lowest:
            continue
        if form == HIDING:
            reach = mask + image * mask_batch + group * each * mask_head
            lowest, highest = _seen(reach, mask_head, each, mask_row, queries, lowest, min(highest, np.int64(masked)))
            if highest <= lowest:
                continue
        count = highest - lowest
        for row in range(rows):
            head, query = group * each + row // queries, row % queries
            widen(q_kind, q + image * q_batch + head * q_head + query * q_row, wanted + 4 * size * row, size, scale)
        _products(k_kind, k + image * k_batch + group * k_head + lowest * k_row, k_row, count, wanted, rows, size, scores)
        for row in range(rows):
            head, query = group * each + row // queries, row % queries
            first, last = sight_of(offset + query, length, causal, left, right)
            line = mask + image * mask_batch + head * mask_head + query * mask_row + lowest * (1 if form == 1 else 4)
            top, power = weigh(
                scores + 4 * KEYS * row, count, first - lowest, min(last, highest) - lowest, softcap, form, line, masked - lowest, np.float32(-np.inf)
            )
            tops[row], totals[row] = top, power
        sums = f32(made)
        for j in range(rows * width):
            sums[j] = np.float32(0)
        _add_values(v_kind, v + image * v_batch + group * v_head + lowest * v_row, v_row, count, scores, rows, width, made)


@range_kernel
def gathered_cache(args: Any, part: Any, parts: Any) -> None:
    """What the blocks of `attended_cache` add up to. Arguments as there."""
    y, y_kind, y_batch, y_head, y_row = args[5], args[6], args[7], args[8], args[9]
    batch, heads, groups, queries, keys, width = args[10], args[11], args[12], args[13], args[14], args[16]
    sink, sink_kind, partial = args[30], args[31], args[44]
    each = heads // groups
    rows, blocks = each * queries, (keys + KEYS - 1) // KEYS
    first, last = share(batch * groups * rows, part, parts)
    for unit in range(first, last):
        row, group, image = unit % rows, unit // rows % groups, unit // rows // groups
        head, query = group * each + row // queries, row % queries
        place = partial + (unit // rows) * blocks * 4 * rows * (width + 2)
        step = 4 * rows * (width + 2)
        most, whole = np.float32(-np.inf), np.float32(0)
        if sink != 0:
            most = load_one(sink_kind, sink + head * (4 if sink_kind == 0 else 2))
        alone = most
        for block in range(blocks):
            top = f32(place + block * step + 4 * rows * width)[row]
            most = top if top > most or top != top else most
        if most > np.float32(-np.inf) and sink != 0:
            whole = exp(alone - most)
        sums = f32(place + 4 * width * row)
        started = False
        for block in range(blocks):
            top = f32(place + block * step + 4 * rows * width)[row]
            if top == np.float32(-np.inf):
                continue
            factor = exp(top - most)
            whole += factor * f32(place + block * step + 4 * rows * (width + 1))[row]
            other = f32(place + block * step + 4 * width * row)
            if started or block > 0:
                for j in range(width):
                    sums[j] = (sums[j] if started else np.float32(0)) + factor * other[j]
            else:
                for j in range(width):
                    sums[j] = factor * other[j]
            started = True
        to = y + image * y_batch + head * y_head + query * y_row
        if not started:
            for j in range(width):
                sums[j] = np.float32(0)
        narrow(y_kind, place + 4 * width * row, to, width, np.float32(1) / whole if whole != np.float32(0) else np.float32(0))
