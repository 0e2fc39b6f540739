"""Packed integers: numbers of a few bits in a run, lowest bits first, that may cross the words they are stored in."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from .fields import Blocks


def numbers(words: npt.NDArray[np.generic], bits: int) -> Blocks:
    """All numbers of `bits` (1 to 8) in rows of little-endian words ``[n, k]``, as uint8 ``[n, k * bits of a word // bits]``."""
    packed = np.ascontiguousarray(words).view(np.uint8).reshape(len(words), -1)
    if bits == 8:
        return packed
    if 8 % bits == 0:
        shifts = np.arange(0, 8, bits, dtype=np.uint8)
        return (packed[..., None] >> shifts & np.uint8((1 << bits) - 1)).reshape(len(packed), -1)
    flags = np.unpackbits(packed, axis=1, bitorder="little")
    whole = flags[:, : flags.shape[1] // bits * bits].reshape(len(packed), -1, bits)
    return np.packbits(whole, axis=2, bitorder="little").reshape(len(packed), -1)
