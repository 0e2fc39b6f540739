"""Fields of a block on the device: unsigned integers, single bits, f16 and f32, signs of the IQ types."""

from __future__ import annotations

from typing import Any

import numpy as np

from ....runtime.cuda.element.bits import from_bits, inlined
from ....runtime.cuda.element.bits import half as of_half


@inlined
def byte(blocks: Any, at: int) -> Any:
    """0 to 255."""
    return np.int32(blocks[at])


@inlined
def bit(blocks: Any, at: int, index: int) -> Any:
    """One bit of those from a byte on, lowest first."""
    return (np.int32(blocks[at + index // 8]) >> np.int32(index % 8)) & np.int32(1)


@inlined
def paired(blocks: Any, at: int, index: int) -> Any:
    """4 bits of a run in which neighbours share a byte."""
    return (np.int32(blocks[at + index // 2]) >> np.int32(4 * (index % 2))) & np.int32(15)


@inlined
def word(blocks: Any, at: int) -> Any:
    """16 bits, low byte first."""
    return np.int32(blocks[at]) | (np.int32(blocks[at + 1]) << np.int32(8))


@inlined
def double_word(blocks: Any, at: int) -> Any:
    """32 bits, low byte first, as a number that is not negative."""
    return np.int64(word(blocks, at)) | (np.int64(word(blocks, at + 2)) << np.int64(16))


@inlined
def half(blocks: Any, at: int) -> Any:
    """An f16."""
    return of_half(np.uint16(word(blocks, at)))


@inlined
def single(blocks: Any, at: int) -> Any:
    """An f32."""
    return from_bits(np.int32(word(blocks, at) | (word(blocks, at + 2) << np.int32(16))))


@inlined
def even_sign(code: Any, index: int) -> Any:
    """-1 or 1 for one of eight numbers by seven bits; the eighth sign makes the number of minus signs even."""
    low = np.int32(code & 127)
    parity = low ^ (low >> np.int32(4))
    parity ^= parity >> np.int32(2)
    parity ^= parity >> np.int32(1)
    whole = low | ((parity & np.int32(1)) << np.int32(7))
    return np.float32(1 - 2 * ((whole >> np.int32(index)) & np.int32(1)))


@inlined
def sign(blocks: Any, at: int, index: int) -> Any:
    """-1 where a bit is set, 1 elsewhere."""
    return np.float32(1 - 2 * bit(blocks, at, index))
