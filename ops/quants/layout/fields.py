"""Fields of blocks in NumPy: f16 scales and packed integers, for uint8 arrays ``[n, block_nbytes]``."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Blocks = npt.NDArray[np.uint8]
Values = npt.NDArray[np.float32]


def half(blocks: Blocks, at: int, count: int = 1) -> Values:
    """`count` little-endian f16 numbers from byte `at`, as float32 ``[n, count]``."""
    return np.ascontiguousarray(blocks[:, at : at + 2 * count]).view("<f2").astype(np.float32)


def words(blocks: Blocks, at: int, count: int, nbytes: int) -> npt.NDArray[np.uint32]:
    """`count` little-endian unsigned integers of `nbytes` bytes from byte `at`, as uint32 ``[n, count]``."""
    return np.ascontiguousarray(blocks[:, at : at + nbytes * count]).view(f"<u{nbytes}").astype(np.uint32)


def nibbles(packed: Blocks) -> Blocks:
    """``[..., k]`` bytes to ``[..., 2 k]`` 4-bit numbers: all low halves, then all high halves."""
    return np.concatenate((packed & np.uint8(15), packed >> np.uint8(4)), axis=-1)


def bits(packed: Blocks) -> Blocks:
    """``[..., k]`` bytes to ``[..., 8 k]`` single bits, lowest first."""
    return np.unpackbits(packed, axis=-1, bitorder="little")


def planes(packed: Blocks, width: int) -> Blocks:
    """``[..., k]`` bytes to ``[..., 8 / width, k]`` numbers of `width` bits: the lowest bits of all bytes, then the
    next."""
    shifts = np.arange(0, 8, width, dtype=np.uint8)[:, None]
    return packed[..., None, :] >> shifts & np.uint8((1 << width) - 1)


def signs(packed: Blocks) -> Values:
    """Sign bits ``[..., k]`` to factors ``[..., k, 8]``: -1 where a bit is set."""
    return np.where(bits(packed[..., None]), np.float32(-1), np.float32(1))


def even_signs(codes: npt.NDArray[np.uint32]) -> Values:
    """7-bit sign codes ``[..., k]`` to factors ``[..., k, 8]``; the eighth sign makes the number of minus signs
    even."""
    low = (codes & np.uint32(127)).astype(np.uint8)
    parity = np.bitwise_count(low) & np.uint8(1)
    return signs(low | parity << np.uint8(7))
