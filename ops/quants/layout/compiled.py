"""Compiled decoders of Q4_0, Q8_0, Q4_K and Q6_K, for amounts that NumPy takes long for. Source: ggml-quants.c.

Each is a range kernel with the argument block ``[blocks, values, elements]``, in the order of operations of the decoders in NumPy.
"""

# mypy: disable-error-code="untyped-decorator"
from __future__ import annotations

from typing import Any

import numpy as np

from ....runtime.flat import flat
from ....runtime.kernel import inlined, range_kernel
from ....runtime.simd import LANES, load, room, splat, store, to_float
from ..encoders.rounding import from_half


@inlined
def _arrays(args: Any) -> Any:
    """Blocks and values; that there are no more bytes of blocks than of values is true of all types."""
    return flat(np.uint8, args[0], 4 * args[2]), flat(np.float32, args[1], args[2])


@inlined
def _half(y: Any, at: int) -> Any:
    """The half-precision number at a byte, in all lanes."""
    return from_half(splat(np.int32(y[at]) | (np.int32(y[at + 1]) << 8)))


@range_kernel(_nrt=False)
def decode_q4_0(args: Any, part: int, parts: int) -> None:
    y, values = _arrays(args)
    for block in range(len(values) // 32):
        at, to = 18 * block, 32 * block
        scale, packed = _half(y, at), load(y, at + 2)
        store(values, to, to_float((packed & 15) - 8) * scale)
        store(values, to + LANES, to_float((packed >> 4) - 8) * scale)


@range_kernel(_nrt=False)
def decode_q8_0(args: Any, part: int, parts: int) -> None:
    y, values = _arrays(args)
    signed = flat(np.int8, args[0], len(values))
    for block in range(len(values) // 32):
        at, to = 34 * block, 32 * block
        scale = _half(y, at)
        store(values, to, to_float(load(signed, at + 2)) * scale)
        store(values, to + LANES, to_float(load(signed, at + 2 + LANES)) * scale)


@inlined
def _six_bits(y: Any, at: int, group: int) -> Any:
    """Scale and minimum of a group among the twelve bytes of Q4_K's and Q5_K's."""
    if group < 4:
        return y[at + group] & 63, y[at + group + 4] & 63
    low, high, both = y[at + group - 4], y[at + group], y[at + group + 4]
    return (both & 15) | ((low >> 6) << 4), (both >> 4) | ((high >> 6) << 4)


@range_kernel(_nrt=False)
def decode_q4_k(args: Any, part: int, parts: int) -> None:
    y, values = _arrays(args)
    for block in range(len(values) // 256):
        at = 144 * block
        d, dmin = _half(y, at), _half(y, at + 2)
        for group in range(8):
            one, two = _six_bits(y, at + 4, group)
            scale, minimum = d * np.float32(one), dmin * np.float32(two)
            for i in range(0, 32, LANES):
                packed = load(y, at + 16 + 32 * (group >> 1) + i) >> 4 * (group & 1)
                store(values, 256 * block + 32 * group + i, to_float(packed & 15) * scale - minimum)


@range_kernel(_nrt=False)
def decode_q6_k(args: Any, part: int, parts: int) -> None:
    y, values = _arrays(args)
    scales = room(np.float32, 1)
    signed = flat(np.int8, args[0], len(values))
    for block in range(len(values) // 256):
        at = 210 * block
        store(scales, 0, _half(y, at + 208) * to_float(load(signed, at + 192)))
        for group in range(16):
            half, quarter, i = group >> 3, (group >> 1) & 3, LANES * (group & 1)
            low = (load(y, at + 64 * half + 32 * (quarter & 1) + i) >> 4 * (quarter >> 1)) & 15
            high = (load(y, at + 128 + 32 * half + i) >> 2 * quarter) & 3
            store(values, 256 * block + LANES * group, to_float((low | (high << 4)) - 32) * scales[group])
