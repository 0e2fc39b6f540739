"""Encoders of Q8_0, and of Q4_0 to Q5_1 without importance: blocks are read row-major, ranges one block per lane.
Source: ggml-quants.c."""

# mypy: disable-error-code="untyped-decorator"
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ....runtime.jit.kernel_arguments import Address
from ....runtime.jit.range_kernel import RangeKernel, inlined, range_kernel
from ....runtime.simd.ggml_rounding import to_f16
from ....runtime.simd.pointer import flat
from ....runtime.simd.vector import (
    LANES,
    any_lane,
    bits,
    from_bits,
    lane_bits,
    load,
    select,
    splat,
    stack_array,
    store,
    to_int,
)
from .simd.row_source import report, take
from .simd.tile_transpose import row_greatest, row_least

LENGTH = 32
LARGEST = np.float32(np.finfo(np.float32).max)


@inlined
def _place(k: int, count: int) -> int:
    """The first element of block `k` of sixteen; beyond the last of `count` blocks, the last one is repeated."""
    return min(k, count - 1) * LENGTH


@inlined
def _ranges(x: Any, count: int) -> Any:
    """Minimum and maximum of sixteen blocks; the sign of a zero does not depend on the order."""
    least, greatest = stack_array(np.float32, LANES), stack_array(np.float32, LANES)
    for k in range(LANES):
        at = _place(k, count)
        low, high = load(x, at), load(x, at + LANES)
        store(least, k * LANES, select(low < high, low, high))
        store(greatest, k * LANES, select(low > high, low, high))
    return row_least(least), row_greatest(greatest)


@inlined
def _first_extremes(x: Any, count: int, wanted: Any, values: Any) -> None:
    """In the lanes of `wanted`, the first element of the largest magnitude; any of them in other lanes."""
    for k in range(LANES):
        if wanted >> k & 1:
            at = _place(k, count)
            value = np.float32(0)
            for i in range(at, at + LENGTH):
                value = x[i] if abs(x[i]) > abs(value) else value
            values[k] = value


@inlined
def _symmetric(x: Any, count: int, top: int, scales: Any, bases: Any, inverses: Any, offsets: Any) -> None:
    least, greatest = _ranges(x, count)
    value = select(greatest > -least, greatest, least)
    value = select(value == 0, 0.0, value)
    tied = (greatest == -least) & ~(value == 0)
    if any_lane(tied):
        values = stack_array(np.float32, 1)
        store(values, 0, value)
        _first_extremes(x, count, lane_bits(tied), values)
        value = load(values, 0)
    scale = value / np.float32(-top)
    inverse = select(scale == 0, 0.0, 1.0 / scale)
    lost = abs(inverse) > LARGEST
    store(scales, 0, to_f16(scale))
    store(inverses, 0, select(lost, 0.0, inverse))
    store(offsets, 0, select(lost, 0.0, np.float32(top) + np.float32(0.5)))


@inlined
def _first_zeros(x: Any, count: int, wanted: Any, least: Any, greatest: Any) -> None:
    """In the lanes of `wanted`, the range whose zeros have the sign of the first zero."""
    for k in range(LANES):
        if wanted >> k & 1:
            at = _place(k, count)
            low, high = x[at], x[at]
            for i in range(at + 1, at + LENGTH):
                low = x[i] if x[i] < low else low
                high = x[i] if x[i] > high else high
            least[k], greatest[k] = low, high


@inlined
def _affine(x: Any, count: int, top: int, scales: Any, bases: Any, inverses: Any, offsets: Any) -> None:
    least, greatest = _ranges(x, count)
    zero = (least == 0) | (greatest == 0)
    if any_lane(zero):
        lows, highs = stack_array(np.float32, 1), stack_array(np.float32, 1)
        store(lows, 0, least)
        store(highs, 0, greatest)
        _first_zeros(x, count, lane_bits(zero), lows, highs)
        least, greatest = load(lows, 0), load(highs, 0)
    scale = (greatest - least) / np.float32(top)
    inverse = select(scale == 0, 0.0, 1.0 / scale)
    lost = (scale > LARGEST) | (inverse > LARGEST)
    store(scales, 0, to_f16(scale) | (to_f16(least) << 16))
    store(bases, 0, select(lost, 0.0, least))
    store(inverses, 0, select(lost, 0.0, inverse))
    store(offsets, 0, select(lost, 0.0, splat(np.float32(0.5))))


def plain_encoder(scale: Callable[..., None], top: int, width: int, nbytes: int) -> RangeKernel:
    """An encoder without importance. `scale` returns the stored scales, and the base, inverse and offset that map
    elements to codes.

    If the inverse of a scale overflows, libggml writes zero codes; here the inverse and the offset are zero.
    """
    affine = scale is _affine
    highest = (1 << width) - 1

    @range_kernel(_nrt=False)
    def encode_plain(
        source: Address,
        kind: int,
        columns: int,
        rows: int,
        importance: Address,
        out: Address,
        greatest: Address,
        places: Address,
        starts: Address,
        stops: Address,
        neighbours: Address,
        part: int,
        parts: int,
    ) -> None:
        blocks = rows * (columns // LENGTH)
        x, y = stack_array(np.float32, LENGTH), flat(np.uint8, out, blocks * nbytes)
        scales, bases, inverses, offsets = (
            stack_array(np.int32, 1),
            stack_array(np.float32, 1),
            stack_array(np.float32, 1),
            stack_array(np.float32, 1),
        )
        largest = splat(np.int32(0))
        for first in range(0, blocks, LANES):
            count = min(LANES, blocks - first)
            largest = take(source, kind, first * LENGTH, count * LENGTH, x, 0, largest)
            scale(x, count, top, scales, bases, inverses, offsets)
            for k in range(LANES):
                at = _place(k, count)
                to = (first + min(k, count - 1)) * nbytes
                low, high = load(x, at), load(x, at + LANES)
                if affine:
                    low, high = low - bases[k], high - bases[k]
                one, two = to_int(low * inverses[k] + offsets[k]), to_int(high * inverses[k] + offsets[k])
                one, two = select(one < highest, one, highest), select(two < highest, two, highest)
                y[to], y[to + 1] = scales[k] & 255, (scales[k] >> 8) & 255
                if affine:
                    y[to + 2], y[to + 3] = (scales[k] >> 16) & 255, (scales[k] >> 24) & 255
                if width == 5:
                    fifth = lane_bits(one > 15) | (lane_bits(two > 15) << 16)
                    for i in range(4):
                        y[to + nbytes - 20 + i] = (fifth >> 8 * i) & 255
                store(y, to + nbytes - 16, (one & 15) | (two << 4))
        report(greatest, largest)

    return encode_plain


@inlined
def _rounded(value: Any) -> Any:
    """The nearest integer, ties away from zero, for magnitudes well inside int32: adds the float below one half to
    the magnitude."""
    return to_int(value + from_bits((bits(value) & -2147483648) | 0x3EFFFFFF))


@range_kernel(_nrt=False)
def encode_q8_0(
    source: Address,
    kind: int,
    columns: int,
    rows: int,
    importance: Address,
    out: Address,
    greatest: Address,
    places: Address,
    starts: Address,
    stops: Address,
    neighbours: Address,
    part: int,
    parts: int,
) -> None:
    blocks = rows * (columns // LENGTH)
    x, y = stack_array(np.float32, LENGTH), flat(np.uint8, out, blocks * 34)
    magnitudes, scales, inverses = stack_array(np.float32, LANES), stack_array(np.int32, 1), stack_array(np.float32, 1)
    largest = splat(np.int32(0))
    for first in range(0, blocks, LANES):
        count = min(LANES, blocks - first)
        largest = take(source, kind, first * LENGTH, count * LENGTH, x, 0, largest)
        for k in range(LANES):
            at = _place(k, count)
            low, high = abs(load(x, at)), abs(load(x, at + LANES))
            store(magnitudes, k * LANES, select(low > high, low, high))
        scale = row_greatest(magnitudes) / np.float32(127)
        inverse = select(scale == 0, 0.0, 1.0 / scale)
        store(scales, 0, to_f16(scale))
        store(inverses, 0, select(inverse > LARGEST, 0.0, inverse))
        for k in range(LANES):
            at = _place(k, count)
            to = (first + min(k, count - 1)) * 34
            y[to], y[to + 1] = scales[k] & 255, (scales[k] >> 8) & 255
            store(y, to + 2, _rounded(load(x, at) * inverses[k]))
            store(y, to + 2 + LANES, _rounded(load(x, at + LANES) * inverses[k]))
    report(greatest, largest)


encode_q4_0 = plain_encoder(_symmetric, 8, 4, 18)
encode_q4_1 = plain_encoder(_affine, 15, 4, 20)
encode_q5_0 = plain_encoder(_symmetric, 16, 5, 22)
encode_q5_1 = plain_encoder(_affine, 31, 5, 24)
