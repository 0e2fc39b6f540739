"""Packed integers: codes of a few bits, lowest bits first, which may cross word boundaries."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from .fields import Blocks, Values


def scaled(codes: npt.NDArray[np.generic], zeros: Values, scales: Values, groups: int | npt.NDArray[np.intp]) -> Values:
    """``(code - zero) * scale``, float32 ``[n, k]``, for codes [n, k] and zeros and scales [n, groups].

    Args:
        groups: neighbouring codes of a group, or the group of each code.
    """
    values: Values = codes.astype(np.float32)
    if isinstance(groups, int) and values.shape[1] == groups * zeros.shape[1]:
        apart = values.reshape(len(values), -1, groups)
        apart -= zeros[:, :, None]
        apart *= scales[:, :, None]
        return values
    order = np.arange(values.shape[1]) // groups if isinstance(groups, int) else groups
    values -= zeros[:, order]
    values *= scales[:, order]
    return values


def numbers(words: npt.NDArray[np.generic], bits: int) -> Blocks:
    """All numbers of `bits` (1 to 8) in rows of little-endian words ``[n, k]``, as uint8
    ``[n, k * bits of a word // bits]``."""
    packed = np.ascontiguousarray(words).view(np.uint8).reshape(len(words), -1)
    if bits == 8:
        return packed
    if 8 % bits == 0:
        shifts = np.arange(0, 8, bits, dtype=np.uint8)
        return (packed[..., None] >> shifts & np.uint8((1 << bits) - 1)).reshape(len(packed), -1)
    flags = np.unpackbits(packed, axis=1, bitorder="little")
    whole = flags[:, : flags.shape[1] // bits * bits].reshape(len(packed), -1, bits)
    return np.packbits(whole, axis=2, bitorder="little").reshape(len(packed), -1)


def words(codes: npt.NDArray[np.generic], bits: int, axis: int = 1) -> npt.NDArray[np.int32]:
    """Codes [n, k] of 4 or 8 bits as words, of 32 / bits neighbours along an axis whose length is a multiple."""
    count = 32 // bits
    apart = codes.reshape(-1, count, codes.shape[1]) if axis == 0 else codes.reshape(len(codes), -1, count)
    whole = np.zeros(apart.shape[::2] if axis == 0 else apart.shape[:2], np.uint32)
    for place in range(count):
        part = apart[:, place] if axis == 0 else apart[..., place]
        whole |= part.astype(np.uint32) << np.uint32(bits * place)
    return whole.view(np.int32)
