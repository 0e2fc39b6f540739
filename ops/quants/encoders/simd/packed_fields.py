"""Packed fields of transposed blocks: byte `at` of sixteen blocks is the vector at ``16 * at``; likewise int32
codes."""

from __future__ import annotations

from typing import Any

import numpy as np

from .....runtime.jit.range_kernel import inner
from .....runtime.simd.vector import LANES, load, splat, store


@inner
def put_half(y: Any, at: int, pattern: Any) -> None:
    """A 16-bit integer, low byte first."""
    store(y, at * LANES, pattern)
    store(y, (at + 1) * LANES, pattern >> 8)


@inner
def put_nibbles(y: Any, at: int, codes: Any, first: int, count: int) -> None:
    """`count` bytes: the low 4 bits of codes from `first`, and above them those of the codes `count` later."""
    for i in range(count):
        low, high = load(codes, (first + i) * LANES), load(codes, (first + count + i) * LANES)
        store(y, (at + i) * LANES, (low & 15) | (high << 4))


@inner
def put_bits(y: Any, at: int, codes: Any, first: int, count: int, bit: int) -> None:
    """One bit of each of `count` codes, eight codes to a byte, lowest first."""
    for byte in range(count // 8):
        packed = splat(np.int32(0))
        for i in range(8):
            packed = packed | (((load(codes, (first + 8 * byte + i) * LANES) >> bit) & 1) << i)
        store(y, (at + byte) * LANES, packed)


@inner
def put_pairs(y: Any, at: int, codes: Any) -> None:
    """64 bytes with the low 2 bits of 256 codes: four codes, 32 apart, in a byte."""
    for half in range(2):
        for i in range(32):
            first = 128 * half + i
            packed = load(codes, first * LANES) & 3
            for plane in range(1, 4):
                packed = packed | ((load(codes, (first + 32 * plane) * LANES) & 3) << 2 * plane)
            store(y, (at + 32 * half + i) * LANES, packed)


@inner
def put_planes(y: Any, at: int, codes: Any, bit: int) -> None:
    """32 bytes with one bit of each of 256 codes: bit k of byte i belongs to code ``32 k + i``."""
    for i in range(32):
        packed = splat(np.int32(0))
        for plane in range(8):
            packed = packed | (((load(codes, (32 * plane + i) * LANES) >> bit) & 1) << plane)
        store(y, (at + i) * LANES, packed)
