"""Row source of encoders: f32, f16 or bf16 rows in memory, widened to f32 on load."""

from __future__ import annotations

from typing import Any

import numpy as np

from .....runtime.jit.range_kernel import inlined
from .....runtime.simd.pointer import flat, load_f16
from .....runtime.simd.vector import LANES, bits, from_bits, load, select, stack_array, store
from .....runtime.tensor.block_codec import KINDS

F16, BF16 = KINDS["f16"], KINDS["bf16"]


@inlined
def _kept(value: Any, tile: Any, at: int, largest: Any) -> Any:
    store(tile, at, value)
    magnitude = bits(value) & 0x7FFFFFFF
    return select(magnitude > largest, magnitude, largest)


@inlined
def take(source: int, kind: int, first: int, count: int, tile: Any, at: int, largest: Any) -> Any:
    """Copy `count` elements from `first`, a multiple of the lanes, into `tile` from `at`; returns the largest
    magnitudes per lane, as bits."""
    if kind == F16:
        patterns = flat(np.uint16, source, first + count)
        for i in range(0, count, LANES):
            largest = _kept(load_f16(patterns, first + i), tile, at + i, largest)
    elif kind == BF16:
        patterns = flat(np.uint16, source, first + count)
        for i in range(0, count, LANES):
            largest = _kept(from_bits(load(patterns, first + i) << 16), tile, at + i, largest)
    else:
        values = flat(np.float32, source, first + count)
        for i in range(0, count, LANES):
            largest = _kept(load(values, first + i), tile, at + i, largest)
    return largest


@inlined
def report(greatest_at: int, largest: Any) -> None:
    """Write the bits of the largest magnitude of all lanes, as an int64."""
    lanes, greatest = stack_array(np.int32, 1), np.int32(0)
    store(lanes, 0, largest)
    for lane in range(LANES):
        greatest = max(greatest, lanes[lane])
    flat(np.int64, greatest_at, 1)[0] = greatest
