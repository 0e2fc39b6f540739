"""Where encoders take their numbers from: rows of float32, half precision or bfloat16 in memory, widened while they are read."""

from __future__ import annotations

from typing import Any

import numpy as np

from ....runtime.flat import flat, load_half
from ....runtime.kernel import inlined
from ....runtime.quant import KINDS, LARGEST
from ....runtime.simd import LANES, bits, from_bits, load, room, select, store

HALF, BRAIN = KINDS["f16"], KINDS["bf16"]
SOURCE, KIND, COLUMNS, ROWS, IMPORTANCE, OUT = range(6)
LATTICE = LARGEST + 1
"""Words of an encoder's argument block: addresses of the rows, of the importance (0 for none) and of the blocks, and the bits of the largest
magnitude, which the encoder fills in. From `LATTICE` on stand the addresses of a lattice's arrays."""


@inlined
def _kept(value: Any, tile: Any, at: int, largest: Any) -> Any:
    store(tile, at, value)
    magnitude = bits(value) & 0x7FFFFFFF
    return select(magnitude > largest, magnitude, largest)


@inlined
def take(source: int, kind: int, first: int, count: int, tile: Any, at: int, largest: Any) -> Any:
    """Put `count` elements from `first`, a multiple of the lanes, into `tile` from `at`; the lanes' largest magnitude so far, as bits."""
    if kind == HALF:
        halves = flat(np.uint16, source, first + count)
        for i in range(0, count, LANES):
            largest = _kept(load_half(halves, first + i), tile, at + i, largest)
    elif kind == BRAIN:
        brains = flat(np.uint16, source, first + count)
        for i in range(0, count, LANES):
            largest = _kept(from_bits(load(brains, first + i) << 16), tile, at + i, largest)
    else:
        values = flat(np.float32, source, first + count)
        for i in range(0, count, LANES):
            largest = _kept(load(values, first + i), tile, at + i, largest)
    return largest


@inlined
def report(args: Any, largest: Any) -> None:
    """Say what the largest magnitude of all lanes is."""
    lanes, greatest = room(np.int32, 1), np.int32(0)
    store(lanes, 0, largest)
    for lane in range(LANES):
        greatest = max(greatest, lanes[lane])
    args[LARGEST] = greatest
