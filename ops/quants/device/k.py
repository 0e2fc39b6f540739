"""Groups with scales of a few bits under one of half precision: Q2_K to Q6_K, and the ternary types. Layouts: ops/quants/q*_k.py, ternary.py."""

from __future__ import annotations

from typing import Any

import numpy as np

from ....runtime.cuda.bits import inlined
from . import Element
from .fields import byte, half, signed


@inlined
def plane(blocks: Any, at: int, index: int) -> Any:
    """2 bits of 128 numbers in 32 bytes: the lowest bits of all bytes, then the next."""
    return (byte(blocks, at + index % 32) >> np.int32(2 * (index // 32))) & np.int32(3)


@inlined
def six_bit_scale(blocks: Any, at: int, group: int) -> Any:
    """The scale of one of eight groups in Q4_K's and Q5_K's twelve bytes."""
    if group < 4:
        return byte(blocks, at + group) & np.int32(63)
    return (byte(blocks, at + group + 4) & np.int32(15)) | ((byte(blocks, at + group - 4) >> np.int32(6)) << np.int32(4))


@inlined
def six_bit_least(blocks: Any, at: int, group: int) -> Any:
    """The minimum of a group there."""
    if group < 4:
        return byte(blocks, at + group + 4) & np.int32(63)
    return (byte(blocks, at + group + 4) >> np.int32(4)) | ((byte(blocks, at + group) >> np.int32(6)) << np.int32(4))


@inlined
def _q2_k(blocks: Any, block: int, index: int, table: Any) -> Any:
    code = plane(blocks, block + 16 + 32 * (index // 128), index % 128)
    both = byte(blocks, block + index // 16)
    return half(blocks, block + 80) * np.float32(both & np.int32(15)) * np.float32(code) - half(blocks, block + 82) * np.float32(both >> np.int32(4))


@inlined
def _q3_k(blocks: Any, block: int, index: int, table: Any) -> Any:
    low = plane(blocks, block + 32 + 32 * (index // 128), index % 128)
    high = (byte(blocks, block + index % 32) >> np.int32(index // 32)) & np.int32(1)
    group = index // 16
    scale = (byte(blocks, block + 96 + group % 8) >> np.int32(4 * (group // 8))) & np.int32(15)
    scale |= ((byte(blocks, block + 104 + group % 4) >> np.int32(2 * (group // 4))) & np.int32(3)) << np.int32(4)
    return half(blocks, block + 108) * np.float32(scale - np.int32(32)) * np.float32((low | (high << np.int32(2))) - np.int32(4))


@inlined
def affine_code(blocks: Any, at: int, index: int) -> Any:
    """4 bits of 256 numbers: 32 low halves, then their 32 high halves, four times."""
    return (byte(blocks, at + 32 * (index // 64) + index % 32) >> np.int32(4 * ((index // 32) % 2))) & np.int32(15)


@inlined
def _q4_k(blocks: Any, block: int, index: int, table: Any) -> Any:
    group = index // 32
    scale = half(blocks, block) * np.float32(six_bit_scale(blocks, block + 4, group))
    least = half(blocks, block + 2) * np.float32(six_bit_least(blocks, block + 4, group))
    return scale * np.float32(affine_code(blocks, block + 16, index)) - least


@inlined
def _q5_k(blocks: Any, block: int, index: int, table: Any) -> Any:
    group = index // 32
    scale = half(blocks, block) * np.float32(six_bit_scale(blocks, block + 4, group))
    least = half(blocks, block + 2) * np.float32(six_bit_least(blocks, block + 4, group))
    fifth = (byte(blocks, block + 16 + index % 32) >> np.int32(group)) & np.int32(1)
    return scale * np.float32(affine_code(blocks, block + 48, index) | (fifth << np.int32(4))) - least


@inlined
def _q6_k(blocks: Any, block: int, index: int, table: Any) -> Any:
    side, rest = index // 128, index % 128
    low = (byte(blocks, block + 64 * side + rest % 64) >> np.int32(4 * (rest // 64))) & np.int32(15)
    high = plane(blocks, block + 128 + 32 * side, rest)
    scale = half(blocks, block + 208) * np.float32(signed(blocks, block + 192 + index // 16))
    return scale * np.float32((low | (high << np.int32(4))) - np.int32(32))


@inlined
def _tq1_0(blocks: Any, block: int, index: int, table: Any) -> Any:
    if index < 160:
        packed, power = byte(blocks, block + index % 32), index // 32
    elif index < 240:
        packed, power = byte(blocks, block + 32 + (index - 160) % 16), (index - 160) // 16
    else:
        packed, power = byte(blocks, block + 48 + (index - 240) % 4), (index - 240) // 4
    for _ in range(power):
        packed = (packed * np.int32(3)) & np.int32(255)
    return np.float32(((packed * np.int32(3)) >> np.int32(8)) - np.int32(1)) * half(blocks, block + 52)


@inlined
def _tq2_0(blocks: Any, block: int, index: int, table: Any) -> Any:
    return np.float32(plane(blocks, block + 32 * (index // 128), index % 128) - np.int32(1)) * half(blocks, block + 64)


ELEMENTS = {
    "q2_k": Element(_q2_k), "q3_k": Element(_q3_k), "q4_k": Element(_q4_k), "q5_k": Element(_q5_k), "q6_k": Element(_q6_k),
    "tq1_0": Element(_tq1_0), "tq2_0": Element(_tq2_0),
}
