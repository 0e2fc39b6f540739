"""NumPy decoders of block layouts."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from ....runtime.tensor.block_codec import Codec, Decoder, Encoder, Scaled, block_type
from .block_layout import Bits, Codes, Layout, Scale
from .fields import Blocks, Values, half
from .fields import bits as single_bits
from .value_tables import e8m0_half, ue4m3_half

_BYTE_SCALES = {"e8m0": e8m0_half(), "ue4m3": ue4m3_half()}


def integers(blocks: Blocks, codes: Codes) -> npt.NDArray[np.int8]:
    """The integers, or the values that they stand for, as int8 ``[n, count]``."""
    found, width = _bits(blocks, codes.parts[0]), codes.parts[0].width
    for part in codes.parts[1:]:
        high = _bits(blocks, part)
        found = np.bitwise_or(found, np.left_shift(high, np.uint8(width), out=high), out=high)
        width += part.width
    if codes.table:
        return np.array(codes.table, np.int8)[found]
    values = found.view(np.int8)
    return np.subtract(values, np.int8(codes.zero)) if codes.zero else values


def _bits(blocks: Blocks, part: Bits) -> Blocks:
    """Some bits of each integer, as uint8 ``[n, count]``."""
    axes = [*part.axes()][::-1]
    if [size for _, size, _ in axes] == [1] and part.width == 8:
        return blocks[:, part.at // 8 : part.at // 8 + part.count]
    if part.width == 1 and part.strides == ((part.count, 1),):
        return single_bits(blocks[:, part.at // 8 : (part.at + part.count) // 8])
    shape = (len(blocks), *(count for count, _, _ in axes))
    strides = (blocks.strides[0], *(size * blocks.strides[1] for _, size, _ in axes))
    bytes_of = np.lib.stride_tricks.as_strided(blocks[:, part.at // 8 :], shape, strides, writeable=False)
    found = np.empty(shape, np.uint8)
    for index in itertools.product(*(range(count) if bits else (None,) for count, _, bits in axes)):
        shift = part.at % 8 + sum(digit * bits for digit, (_, _, bits) in zip(index, axes, strict=True) if digit)
        where = (slice(None), *(slice(None) if digit is None else digit for digit in index))
        np.right_shift(bytes_of[where], np.uint8(shift), out=found[where])
    found &= np.uint8((1 << part.width) - 1)
    return found.reshape(len(blocks), part.count)


def factors(blocks: Blocks, scale: Scale) -> Values:
    """The factors of groups, f32 ``[n, groups]``."""
    if scale.form in _BYTE_SCALES:
        found = _BYTE_SCALES[scale.form][blocks[:, scale.at : scale.at + scale.count]]
    elif scale.form == "f32":
        found = np.ascontiguousarray(blocks[:, scale.at : scale.at + 4 * scale.count]).view("<f4").astype(np.float32)
    else:
        found = half(blocks, scale.at)
    if scale.codes is not None:
        found = found * integers(blocks, scale.codes).astype(np.float32)
    return found if scale.sign > 0 else -found


def scaled(layout: Layout) -> Callable[[Blocks], Scaled]:
    """The decoder of blocks to codes, scales and minima."""

    def decode(blocks: Blocks) -> Scaled:
        found = integers(blocks, layout.codes).reshape(len(blocks), layout.scale.groups, layout.group)
        minima = None if layout.minimum is None else factors(blocks, layout.minimum)
        return Scaled(found, factors(blocks, layout.scale), minima)

    return decode


def codec(name: str, layout: Layout, encoder: Encoder | None = None, *, decoder: Decoder | None = None) -> Codec:
    """The codec of a block type that is decoded by its layout."""
    parts, values = scaled(layout), {*layout.codes.values()}
    return Codec(
        block_type(name),
        lambda blocks: parts(blocks).values(),
        encoder,
        decoder=decoder,
        scaled=parts if layout.products else None,
        code_bits=4 if values <= {*range(-8, 8)} or values <= {*range(16)} else 8,
        layout=layout,
    )
