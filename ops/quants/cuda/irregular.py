"""Device decoders of block types without a layout: IQ1, IQ2, IQ3 and TQ1_0. Layouts: ops/quants/iq*.py, ternary.py."""

from __future__ import annotations

from typing import Any

import numpy as np

from ....runtime.cuda.element.bits import half as of_half
from ....runtime.cuda.element.bits import inlined
from ..layout import iq_grids
from . import Element
from .fields import bit, byte, double_word, even_sign, half, paired, sign, word

EIGHTH = np.float32(0.125)


@inlined
def _scaled(blocks: Any, block: int, steps: Any, unit: Any) -> Any:
    return half(blocks, block) * (np.float32(0.5) + np.float32(steps)) * unit


@inlined
def _iq2_xxs(blocks: Any, block: int, index: int, table: Any) -> Any:
    pair, place = block + 2 + 8 * (index // 32), (index % 32) // 8
    tail = double_word(blocks, pair + 4)
    scale = _scaled(blocks, block, tail >> np.int64(28), np.float32(0.25))
    return (
        scale
        * np.float32(table[byte(blocks, pair + place) * 8 + index % 8])
        * even_sign(tail >> np.int64(7 * place), index % 8)
    )


@inlined
def _iq2_xs(blocks: Any, block: int, index: int, table: Any) -> Any:
    code = word(blocks, block + 2 + 2 * (index // 8))
    scale = _scaled(blocks, block, paired(blocks, block + 66, index // 16), np.float32(0.25))
    return scale * np.float32(table[(code & np.int32(511)) * 8 + index % 8]) * even_sign(code >> np.int32(9), index % 8)


@inlined
def _iq2_s(blocks: Any, block: int, index: int, table: Any) -> Any:
    place = index // 8
    high = (byte(blocks, block + 66 + place // 4) >> np.int32(2 * (place % 4))) & np.int32(3)
    point = byte(blocks, block + 2 + place) | (high << np.int32(8))
    scale = _scaled(blocks, block, paired(blocks, block + 74, index // 16), np.float32(0.25))
    return scale * np.float32(table[point * 8 + index % 8]) * sign(blocks, block + 34, index)


@inlined
def _iq3_xxs(blocks: Any, block: int, index: int, table: Any) -> Any:
    tail = double_word(blocks, block + 66 + 4 * (index // 32))
    scale = _scaled(blocks, block, tail >> np.int64(28), np.float32(0.5))
    value = np.float32(table[byte(blocks, block + 2 + index // 4) * 4 + index % 4])
    return scale * value * even_sign(tail >> np.int64(7 * ((index % 32) // 8)), index % 8)


@inlined
def _iq3_s(blocks: Any, block: int, index: int, table: Any) -> Any:
    place = index // 4
    point = byte(blocks, block + 2 + place) | (bit(blocks, block + 66, place) << np.int32(8))
    scale = half(blocks, block) * (np.float32(paired(blocks, block + 106, index // 32)) * np.float32(2) + np.float32(1))
    return scale * np.float32(table[point * 4 + index % 4]) * sign(blocks, block + 74, index)


@inlined
def _shifted(point: Any, negative: Any) -> Any:
    return np.float32(point) - EIGHTH if negative else np.float32(point) + EIGHTH


@inlined
def _iq1_s(blocks: Any, block: int, index: int, table: Any) -> Any:
    place = index // 8
    tail = word(blocks, block + 34 + 2 * (index // 32))
    high = (tail >> np.int32(3 * (place % 4))) & np.int32(7)
    scale = half(blocks, block) * np.float32(2 * ((tail >> np.int32(12)) & np.int32(7)) + 1)
    point = byte(blocks, block + 2 + place) | (high << np.int32(8))
    return scale * _shifted(table[point * 8 + index % 8], tail >= 0x8000)


@inlined
def _iq1_m(blocks: Any, block: int, index: int, table: Any) -> Any:
    place, group = index // 8, index // 16
    pattern = np.int32(0)
    for part in range(4):
        pattern |= (word(blocks, block + 48 + 2 * part) >> np.int32(12)) << np.int32(4 * part)
    steps = (word(blocks, block + 48 + 2 * (group // 4)) >> np.int32(3 * (group % 4))) & np.int32(7)
    scale = of_half(np.uint16(pattern)) * np.float32(2 * steps + 1)
    high = paired(blocks, block + 32, place)
    point = byte(blocks, block + place) | ((high & np.int32(7)) << np.int32(8))
    return scale * _shifted(table[point * 8 + index % 8], high >= 8)


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


def _points(grid: iq_grids.Grid, function: Any) -> Element:
    return Element(function, lambda: grid.points)


ELEMENTS = {
    "tq1_0": Element(_tq1_0),
    "iq2_xxs": _points(iq_grids.IQ2_XXS, _iq2_xxs),
    "iq2_xs": _points(iq_grids.IQ2_XS, _iq2_xs),
    "iq2_s": _points(iq_grids.IQ2_S, _iq2_s),
    "iq3_xxs": _points(iq_grids.IQ3_XXS, _iq3_xxs),
    "iq3_s": _points(iq_grids.IQ3_S, _iq3_s),
    "iq1_s": _points(iq_grids.IQ1, _iq1_s),
    "iq1_m": _points(iq_grids.IQ1, _iq1_m),
}
