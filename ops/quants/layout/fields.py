"""Fields of blocks: half-precision scales and packed integers, for uint8 arrays ``[n, block_nbytes]``."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Blocks = npt.NDArray[np.uint8]
Values = npt.NDArray[np.float32]


def half(blocks: Blocks, at: int, count: int = 1) -> Values:
    """`count` little-endian f16 numbers from byte `at`, as float32 ``[n, count]``."""
    return np.ascontiguousarray(blocks[:, at : at + 2 * count]).view("<f2").astype(np.float32)


def nibbles(packed: Blocks) -> Blocks:
    """``[n, k]`` bytes to ``[n, 2 k]`` 4-bit numbers: all low halves, then all high halves."""
    return np.concatenate((packed & np.uint8(15), packed >> np.uint8(4)), axis=1)


def bits(packed: Blocks) -> Blocks:
    """``[n, k]`` bytes to ``[n, 8 k]`` single bits, lowest first."""
    return np.unpackbits(packed, axis=1, bitorder="little")
