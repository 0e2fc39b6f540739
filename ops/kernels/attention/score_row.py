"""One row of attention scores: softcap, mask, visible range, and the exponentials of its softmax."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ....runtime.jit.address import f32, i32, i64, u8
from ....runtime.jit.kernel_arguments import Address
from ....runtime.jit.range_kernel import inner
from ....runtime.simd.memory import exp16, flags, lane_max, lane_sum, load_f32, maximum, store_f32, tanh16
from ....runtime.simd.vector import LANES, lane_bits, lane_indices, load, select, splat, stack_array

NO_MASK, BOOL_MASK, ADDITIVE_MASK = 0, 1, 2
"""A boolean mask hides keys, a float mask is added to the scores."""


class HeadRows(NamedTuple):
    """[batch, heads, rows, size] in memory: address, dtype, and strides in bytes of batch, head and row."""

    at: Address
    kind: int
    batch: int
    head: int
    row: int


class AttentionArguments(NamedTuple):
    """Arguments that all attention kernels share.

    Attributes:
        mask, form, mask_batch, mask_head, mask_row, masked: address, kind, strides in bytes and keys of a mask.
        lengths, length_width, more: keys of each sequence are these integers of so many bytes, and `more`; all where
            the address is 0.
        before: position of the first query if `lengths` is 0.
        sink, sink_kind: address and dtype of a sink score per head.
    """

    batch: int
    heads: int
    groups: int
    queries: int
    keys: int
    size: int
    width: int
    mask: Address
    form: int
    mask_batch: int
    mask_head: int
    mask_row: int
    masked: int
    lengths: Address
    length_width: int
    more: int
    before: int
    causal: int
    left: int
    right: int
    sink: Address
    sink_kind: int
    scale: float
    softcap: float


@inner
def key_count(lengths: Any, width: Any, more: Any, keys: Any, index: Any) -> Any:
    """Number of keys of a sequence: all, or its entry of `lengths` (integers of `width` bytes) plus `more`."""
    if lengths == 0:
        return np.int64(keys)
    found = i64(lengths)[index] if width == 8 else np.int64(i32(lengths)[index])
    return min(np.int64(keys), found + more)


@inner
def visible_keys(position: Any, keys: Any, causal: Any, left: Any, right: Any) -> Any:
    """The range of keys that the query at a position attends to."""
    last = np.int64(keys)
    if causal != 0:
        last = min(last, position + 1)
    if right >= 0:
        last = min(last, position + right + 1)
    last = max(last, np.int64(0))
    first = min(last, max(np.int64(0), position - left)) if left >= 0 else np.int64(0)
    return first, last


@inner
def trim_mask(mask: Any, first: Any, last: Any) -> Any:
    """The range of keys without the hidden keys at its ends."""
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
def softmax_row(
    row: Any, count: Any, first: Any, last: Any, softcap: Any, form: Any, mask: Any, masked: Any, top: Any
) -> Any:
    """Replace the scores at address `row` by exp(score - maximum); keys outside ``[first, last)`` become zero.

    Args:
        count: keys of the row, room is for the next multiple of `LANES`.
        form, mask, masked: kind of mask, address of its first element, and how many of them there are; keys after
            these are hidden.
        top: the largest score of keys before.

    Returns:
        The maximum including `top`, -inf if all keys are hidden, and the sum of the exponentials.
    """
    spare = stack_array(np.float32, 1)
    lanes = lane_indices()
    most = splat(np.float32(top))
    for j in range(0, count, LANES):
        scores = load_f32(row + 4 * j)
        if softcap > np.float32(0):
            scores = tanh16(scores / softcap) * softcap
        if form == BOOL_MASK:
            if j + LANES <= masked:
                scores = select(flags(mask + j), scores, np.float32(-np.inf))
            else:
                for lane in range(LANES):
                    spare[lane] = np.float32(-np.inf)
                    if j + lane < masked and u8(mask)[j + lane] != 0:
                        spare[lane] = np.float32(0)
                scores = select(load(spare, 0) < np.float32(0), np.float32(-np.inf), scores)
        elif form == ADDITIVE_MASK:
            if j + LANES <= masked:
                added = load_f32(mask + 4 * j)
            else:
                for lane in range(LANES):
                    spare[lane] = f32(mask)[j + lane] if j + lane < masked else np.float32(-np.inf)
                added = load(spare, 0)
            scores = select(added == np.float32(-np.inf), np.float32(-np.inf), scores + added)
        if j < first or j + LANES > last:
            places = lanes + np.int32(j)
            seen = (places >= np.int32(first)) & (places < np.int32(last))
            scores = select(seen, scores, np.float32(-np.inf))
        store_f32(row + 4 * j, scores)
        most = maximum(most, scores)
    highest = lane_max(most)
    below = np.float32(0) if highest == np.float32(-np.inf) else highest
    powers = exp16(load_f32(row) - below)
    store_f32(row, powers)
    for j in range(LANES, count, LANES):
        made = exp16(load_f32(row + 4 * j) - below)
        store_f32(row + 4 * j, made)
        powers = powers + made
    return highest, lane_sum(powers)
