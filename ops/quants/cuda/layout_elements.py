"""Device decoders of block layouts: one element of a block, for every block type that has a layout."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ....runtime.cuda.element.bits import from_bits, inlined
from ....runtime.tensor.block_codec import codecs
from ..layout.block_layout import Bits, Codes, Layout, Scale
from . import NOTHING, Element
from .fields import byte, half, single

Field = Callable[[Any, int, int], Any]
"""Function of the bytes, the byte where a block starts, and an index."""


def part_of(part: Bits) -> Field:
    """Some bits of an integer."""
    at, low, mask = part.at // 8, part.at % 8, (1 << part.width) - 1
    axes = [*part.axes()]
    (n0, bytes0, bits0), (n1, bytes1, bits1), (_, bytes2, bits2) = [*axes, (1, 0, 0), (1, 0, 0)][:3]
    n01 = n0 * n1

    @inlined
    def run(blocks: Any, block: int, index: int) -> Any:
        held = byte(blocks, block + at + bytes0 * index)
        return (held >> np.int32(low + bits0 * index)) & np.int32(mask)

    @inlined
    def nested(blocks: Any, block: int, index: int) -> Any:
        first, second = index % n0, index // n0
        held = byte(blocks, block + at + bytes0 * first + bytes1 * second)
        return (held >> np.int32(low + bits0 * first + bits1 * second)) & np.int32(mask)

    @inlined
    def twice_nested(blocks: Any, block: int, index: int) -> Any:
        third, rest = index // n01, index % n01
        first, second = rest % n0, rest // n0
        held = byte(blocks, block + at + bytes0 * first + bytes1 * second + bytes2 * third)
        return (held >> np.int32(low + bits0 * first + bits1 * second + bits2 * third)) & np.int32(mask)

    return (run, nested, twice_nested)[len(axes) - 1]


def integers_of(codes: Codes) -> Field:
    """An integer, its zero subtracted."""
    zero, width = codes.zero, codes.parts[0].width
    if codes.signed:
        at = codes.parts[0].at // 8

        @inlined
        def signed(blocks: Any, block: int, index: int) -> Any:
            return (byte(blocks, block + at + index) ^ np.int32(128)) - np.int32(128)

        return signed
    low = part_of(codes.parts[0])
    if len(codes.parts) == 1:

        @inlined
        def integer(blocks: Any, block: int, index: int) -> Any:
            return low(blocks, block, index) - np.int32(zero)

        return integer
    (_, second), high_of = codes.parts, part_of(codes.parts[1])
    assert second.width + width <= 8

    @inlined
    def joined(blocks: Any, block: int, index: int) -> Any:
        return (low(blocks, block, index) | (high_of(blocks, block, index) << np.int32(width))) - np.int32(zero)

    return joined


@inlined
def _half_power(blocks: Any, at: int) -> Any:
    """``2 ** (e - 128)`` of a byte e."""
    exponent = byte(blocks, at)
    pattern = np.int32(0x200000) << exponent if exponent < 2 else (exponent - np.int32(1)) << np.int32(23)
    return from_bits(np.int32(pattern))


@inlined
def _half_byte_float(blocks: Any, at: int) -> Any:
    """Half of an unsigned float of 4 exponent and 3 mantissa bits."""
    code = byte(blocks, at)
    exponent, mantissa = (code >> np.int32(3)) & np.int32(15), code & np.int32(7)
    normal = from_bits(np.int32(((exponent + np.int32(119)) << np.int32(23)) | (mantissa << np.int32(20))))
    scale = np.float32(mantissa) * np.float32(0.0009765625) if exponent == 0 else normal
    return np.float32(0) if code == 127 else scale


NUMBERS = {"f16": half, "f32": single, "e8m0": _half_power, "ue4m3": _half_byte_float}


def factor_of(scale: Scale) -> Field:
    """The factor of a group, without its sign."""
    number, at, step = NUMBERS[scale.form], scale.at, (4 if scale.form == "f32" else 1) * (scale.count > 1)
    if scale.codes is None:

        @inlined
        def factor(blocks: Any, block: int, group: int) -> Any:
            return number(blocks, block + at + step * group)

        return factor
    codes = integers_of(scale.codes)

    @inlined
    def product(blocks: Any, block: int, group: int) -> Any:
        return number(blocks, block + at) * np.float32(codes(blocks, block, group))

    return product


def element_of(layout: Layout) -> Element:
    """The decoder of a layout."""
    codes, scale, group = integers_of(layout.codes), factor_of(layout.scale), layout.group
    values = np.array(layout.codes.table, np.int8) if layout.codes.table else NOTHING
    if layout.codes.table:
        assert layout.minimum is None, "tables have no minima"

        @inlined
        def looked_up(blocks: Any, block: int, index: int, table: Any) -> Any:
            return scale(blocks, block, index // group) * np.float32(table[codes(blocks, block, index)])

        return Element(looked_up, lambda: values)
    if layout.minimum is None:

        @inlined
        def scaled(blocks: Any, block: int, index: int, table: Any) -> Any:
            return scale(blocks, block, index // group) * np.float32(codes(blocks, block, index))

        return Element(scaled)
    minimum, sign = factor_of(layout.minimum), np.float32(layout.minimum.sign)

    @inlined
    def shifted(blocks: Any, block: int, index: int, table: Any) -> Any:
        value = scale(blocks, block, index // group) * np.float32(codes(blocks, block, index))
        return value - sign * minimum(blocks, block, index // group)

    return Element(shifted)


ELEMENTS = {dtype.name: element_of(codec.layout) for dtype, codec in codecs().items() if codec.layout is not None}
