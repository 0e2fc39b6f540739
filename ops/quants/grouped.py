"""Grouped integers: 128 integers of 4 or 8 bits with an f32 scale for each group, and in ``u`` types a minimum, as
MatMulNBits multiplies them.

A panel holds blocks of some rows side by side: scales of each group [groups, rows], minima, and the integers, counted
from 0, four neighbours of every row together. With 4 bits a byte has those of a row of the first half of the rows and
of one of the second half.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from .layout.block_layout import Layout, Scale, codes, nibbles, signed_bytes
from .layout.numpy_decoder import codec

LENGTH, GROUPS = 128, (16, 32, 64, 128)
BITS = (4, 8)


class Grouping(NamedTuple):
    """A type's bits of an integer, elements of a group, and whether groups have minima."""

    bits: int
    group: int
    minima: bool


def type_name(bits: int, group: int, minima: bool) -> str:
    """The block type with groups of `group` elements."""
    return f"{'u' if minima else 'i'}{bits}_g{group}"


def _layout(bits: int, group: int, minima: bool) -> Layout:
    count = LENGTH // group
    start = 4 * count * (1 + minima)
    integers = codes(nibbles(start, 32, 2), zero=8) if bits == 4 else signed_bytes(start, LENGTH)
    minimum = Scale("f32", 4 * count, count=count) if minima else None
    return Layout(integers, Scale("f32", 0, count=count), minimum)


_TYPES = {
    type_name(*each): each
    for each in (Grouping(bits, group, minima) for bits in BITS for group in GROUPS for minima in (False, True))
}
CODECS = tuple(codec(name, _layout(*each)) for name, each in _TYPES.items())


def grouping(name: str) -> Grouping:
    """The grouping of a block type, by name."""
    return _TYPES[name]


def pack_groups(integers: np.ndarray, bits: int, factors: list[np.ndarray]) -> np.ndarray:
    """Rows of blocks, u8 [rows, bytes], of the elements ``scale * (integer - 2 ** (bits - 1)) - minimum``.

    Args:
        integers: u8 [rows, elements], whole blocks.
        factors: scales, f32 [rows, groups], and minima for ``u`` types.
    """
    rows, count = len(integers), integers.shape[1] // LENGTH
    heads = [np.ascontiguousarray(each, np.float32).reshape(rows, count, -1).view(np.uint8) for each in factors]
    if bits == 4:
        low, high = integers.reshape(rows, count, 2, 2, 32).transpose(3, 0, 1, 2, 4)
        packed = (low | high << np.uint8(4)).reshape(rows, count, -1)
    else:
        packed = (integers ^ np.uint8(128)).reshape(rows, count, -1)
    return np.concatenate([*heads, packed], axis=-1).reshape(rows, -1)


def pack_panels(integers: np.ndarray, bits: int, factors: list[np.ndarray], height: int) -> np.ndarray:
    """The output of `pack_groups` in panels of `height` rows: u8 [rows of whole panels, bytes]."""
    spare, count = -len(integers) % height, integers.shape[1] // LENGTH
    integers, *factors = (np.pad(each, ((0, spare), (0, 0))) for each in (integers, *factors))
    heads = [each.reshape(-1, height, count, each.shape[1] // count).transpose(0, 2, 3, 1) for each in factors]
    quads = integers.reshape(-1, 2, height // 2, count, LENGTH // 4, 4).transpose(1, 0, 3, 4, 2, 5)
    packed = quads[0] | quads[1] << np.uint8(4) if bits == 4 else np.stack([*quads], 3)
    parts = [np.ascontiguousarray(each, np.float32) for each in heads] + [packed]
    parts = [each.reshape(len(packed), count, -1).view(np.uint8) for each in parts]
    return np.concatenate(parts, axis=-1).reshape(len(integers), -1)
