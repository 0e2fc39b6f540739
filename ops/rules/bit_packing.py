"""Packed integers of 1 to 8 bits: lowest bits first, rows padded to bytes."""

from __future__ import annotations

import numpy as np


def unpacked(data: np.ndarray, bits: int, count: int) -> np.ndarray:
    """The first `count` integers of each row of bytes [..., nbytes], as u8 [..., count]."""
    if bits == 8:
        return data[..., :count]
    if 8 % bits == 0:
        parts = data[..., None] >> np.arange(0, 8, bits, dtype=np.uint8) & np.uint8((1 << bits) - 1)
        return parts.reshape(*data.shape[:-1], -1)[..., :count]
    spread = np.unpackbits(data, axis=-1, bitorder="little")[..., : count * bits]
    return np.packbits(spread.reshape(*data.shape[:-1], count, bits), axis=-1, bitorder="little")[..., 0]


def row_nbytes(count: int, bits: int) -> int:
    """Bytes of a row."""
    return -(-count * bits // 8)
