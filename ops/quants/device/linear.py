"""One scale for a block, and for some types a smallest value: Q1_0 to Q8_K, and the types of old files."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ....runtime.cuda.bits import inlined
from . import Element
from .fields import bit, half, nibble, paired, signed, single


def _symmetric(scale: Callable[..., Any], code: Callable[..., Any], at: int, zero: int, fifth: int = -1) -> Element:
    """``(q - zero) * d``, the codes from byte `at` on, their fifth bits from `fifth` on."""

    @inlined
    def element(blocks: Any, block: int, index: int, table: Any) -> Any:
        found = code(blocks, block + at, index)
        if fifth >= 0:
            found = found | (bit(blocks, block + fifth, index) << np.int32(4))
        return np.float32(found - np.int32(zero)) * scale(blocks, block)

    return Element(element)


def _affine(scale: Callable[..., Any], least: int, code: Callable[..., Any], at: int, fifth: int = -1) -> Element:
    """``q * d + m``, m at byte `least`."""

    @inlined
    def element(blocks: Any, block: int, index: int, table: Any) -> Any:
        found = code(blocks, block + at, index)
        if fifth >= 0:
            found = found | (bit(blocks, block + fifth, index) << np.int32(4))
        return np.float32(found) * scale(blocks, block) + scale(blocks, block + least)

    return Element(element)


@inlined
def _halves(blocks: Any, at: int, index: int) -> Any:
    return nibble(blocks, at, index, 16)


@inlined
def _bytes(blocks: Any, at: int, index: int) -> Any:
    return signed(blocks, at + index)


@inlined
def _two(blocks: Any, at: int, index: int) -> Any:
    return (np.int32(blocks[at + index // 4]) >> np.int32(2 * (index % 4))) & np.int32(3)


@inlined
def _q1_0(blocks: Any, block: int, index: int, table: Any) -> Any:
    scale = half(blocks, block)
    return scale if bit(blocks, block + 2, index) != 0 else -scale


ELEMENTS = {
    "q1_0": Element(_q1_0), "q2_0": _symmetric(half, _two, 2, 1),
    "q4_0": _symmetric(half, _halves, 2, 8), "q4_1": _affine(half, 2, _halves, 4),
    "q5_0": _symmetric(half, _halves, 6, 16, 2), "q5_1": _affine(half, 2, _halves, 8, 4),
    "q8_0": _symmetric(half, _bytes, 2, 0), "q8_1": _symmetric(half, _bytes, 4, 0), "q8_k": _symmetric(single, _bytes, 4, 0),
    "q4_0_v1": _symmetric(single, paired, 4, 8), "q4_1_v1": _affine(single, 4, paired, 8),
    "q4_2": _symmetric(half, paired, 2, 8), "q4_3": _affine(half, 2, paired, 4),
    "q5_0_v1": _symmetric(half, paired, 6, 16, 2), "q5_1_v1": _affine(half, 2, paired, 8, 4), "q8_0_v1": _symmetric(single, _bytes, 4, 0),
    "q4_0_v2": _symmetric(single, _halves, 4, 8), "q4_1_v2": _affine(single, 4, _halves, 8),
}
