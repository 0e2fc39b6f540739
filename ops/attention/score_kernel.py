"""One row of attention scores: softcap, mask and sight, and the numerators of its softmax."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...runtime.kernel import inner
from ...runtime.native import f32, i32, i64, u8
from ...runtime.simd import LANES, lane_bits, lane_numbers, load, room, select, splat
from ..math.lane_kernel import exp16, flags, larger, largest, load_single, store_single, tanh16, total

NO_MASK, HIDING, ADDED = 0, 1, 2
"""A mask of truth values hides keys, one of numbers is added."""


@inner
def keys_of(lengths: Any, width: Any, more: Any, keys: Any, index: Any) -> Any:
    """How many keys a sequence has: all, or as many as `lengths` (integers of `width` bytes) says and `more`."""
    if lengths == 0:
        return np.int64(keys)
    found = i64(lengths)[index] if width == 8 else np.int64(i32(lengths)[index])
    return min(np.int64(keys), found + more)


@inner
def sight_of(position: Any, keys: Any, causal: Any, left: Any, right: Any) -> Any:
    """The range of keys that the query at a position sees."""
    last = np.int64(keys)
    if causal != 0:
        last = min(last, position + 1)
    if right >= 0:
        last = min(last, position + right + 1)
    last = max(last, np.int64(0))
    first = min(last, max(np.int64(0), position - left)) if left >= 0 else np.int64(0)
    return first, last


@inner
def shown(mask: Any, first: Any, last: Any) -> Any:
    """The range of keys without those at its ends that a row of truth values hides."""
    while last - first >= LANES and lane_bits(flags(mask + last - LANES)) == 0:
        last -= LANES
    while last > first and u8(mask)[last - 1] == 0:
        last -= 1
    while last - first >= LANES and lane_bits(flags(mask + first)) == 0:
        first += LANES
    while last > first and u8(mask)[first] == 0:
        first += 1
    return first, last


@inner
def weigh(row: Any, count: Any, first: Any, last: Any, softcap: Any, form: Any, mask: Any, masked: Any, top: Any) -> Any:
    """Scores at address `row` become powers of e, less the largest score; keys outside of ``[first, last)`` become zero.

    Args:
        count: keys of the row, room is for the next multiple of `LANES`.
        form, mask, masked: kind of mask, address of its first element, and how many of them there are; keys behind these are hidden.
        top: the largest score of keys before.

    Returns:
        The largest score with those before, -inf where there is none, and the sum of the powers.
    """
    spare = room(np.float32, 1)
    lanes = lane_numbers()
    most = splat(np.float32(top))
    for j in range(0, count, LANES):
        scores = load_single(row + 4 * j)
        if softcap > np.float32(0):
            scores = tanh16(scores / softcap) * softcap
        if form == HIDING:
            if j + LANES <= masked:
                scores = select(flags(mask + j), scores, np.float32(-np.inf))
            else:
                for lane in range(LANES):
                    spare[lane] = np.float32(-np.inf)
                    if j + lane < masked and u8(mask)[j + lane] != 0:
                        spare[lane] = np.float32(0)
                scores = select(load(spare, 0) < np.float32(0), np.float32(-np.inf), scores)
        elif form == ADDED:
            if j + LANES <= masked:
                added = load_single(mask + 4 * j)
            else:
                for lane in range(LANES):
                    spare[lane] = f32(mask)[j + lane] if j + lane < masked else np.float32(-np.inf)
                added = load(spare, 0)
            scores = select(added == np.float32(-np.inf), np.float32(-np.inf), scores + added)
        if j < first or j + LANES > last:
            places = lanes + np.int32(j)
            seen = (places >= np.int32(first)) & (places < np.int32(last))
            scores = select(seen, scores, np.float32(-np.inf))
        store_single(row + 4 * j, scores)
        most = larger(most, scores)
    highest = largest(most)
    below = np.float32(0) if highest == np.float32(-np.inf) else highest
    powers = exp16(load_single(row) - below)
    store_single(row, powers)
    for j in range(LANES, count, LANES):
        made = exp16(load_single(row + 4 * j) - below)
        store_single(row + 4 * j, made)
        powers = powers + made
    return highest, total(powers)
