"""IQ2_XXS, IQ2_XS and IQ2_S: grid points of eight magnitudes, with separate signs. Source: ggml-quants.c."""

from __future__ import annotations

import numpy as np

from ...runtime.tensor.block_codec import Codec, block_type
from .encoders import compiled
from .encoders.iq_lattices import lattice_of
from .layout import iq_grids
from .layout.fields import Blocks, Values, even_signs, half, nibbles, planes, signs, words


def _scale(blocks: Blocks, scales: Blocks) -> Values:
    return half(blocks, 0) * (np.float32(0.5) + scales.astype(np.float32)) * np.float32(0.25)


def decode_iq2_xxs(blocks: Blocks) -> Values:
    """``d * (scale + 1/2) / 4 * point * sign``; block: d f16, 8 times 4 points, then four 7-bit sign codes and a 4-bit
    scale."""
    pairs = blocks[:, 2:].reshape(-1, 8, 8)
    tails = words(pairs[..., 4:].reshape(-1, 32), 0, 8, 4)
    scale = _scale(blocks, (tails >> np.uint32(28)).astype(np.uint8))
    magnitudes: Values = scale[..., None, None] * iq_grids.IQ2_XXS.points[pairs[..., :4]]
    return (magnitudes * even_signs(tails[..., None] >> np.arange(0, 28, 7, dtype=np.uint32))).reshape(-1, 256)


def decode_iq2_xs(blocks: Blocks) -> Values:
    """``d * (scale + 1/2) / 4 * point * sign``; block: d f16, 32 u16 of 9-bit point and 7-bit sign code, 4-bit scales 8
    bytes."""
    codes = words(blocks, 2, 32, 2)
    scale = _scale(blocks, nibbles(blocks[:, 66:74, None]).reshape(-1, 16))
    magnitudes: Values = scale[..., None, None] * iq_grids.IQ2_XS.points[codes & np.uint32(511)].reshape(-1, 16, 2, 8)
    return (magnitudes * even_signs(codes >> np.uint32(9)).reshape(-1, 16, 2, 8)).reshape(-1, 256)


def decode_iq2_s(blocks: Blocks) -> Values:
    """``d * (scale + 1/2) / 4 * point * sign``; block: d f16, points 32 bytes, signs 32, high point bits 8, 4-bit
    scales 8."""
    high = planes(blocks[:, 66:74, None], 2).reshape(-1, 32).astype(np.uint16)
    points = blocks[:, 2:34] | high << np.uint16(8)
    scale = _scale(blocks, nibbles(blocks[:, 74:82, None]).reshape(-1, 16))
    magnitudes: Values = scale[..., None, None] * iq_grids.IQ2_S.points[points].reshape(-1, 16, 2, 8)
    return (magnitudes * signs(blocks[:, 34:66]).reshape(-1, 16, 2, 8)).reshape(-1, 256)


CODECS = (
    Codec(
        block_type("iq2_xxs"),
        decode_iq2_xxs,
        compiled("iq2.encode_iq2_xxs", lattice=lambda: lattice_of(iq_grids.IQ2_XXS, 2)),
        needs_importance=True,
    ),
    Codec(
        block_type("iq2_xs"),
        decode_iq2_xs,
        compiled("iq2.encode_iq2_xs", lattice=lambda: lattice_of(iq_grids.IQ2_XS, 2)),
        needs_importance=True,
    ),
    Codec(
        block_type("iq2_s"), decode_iq2_s, compiled("iq2.encode_iq2_s", lattice=lambda: lattice_of(iq_grids.IQ2_S, 1))
    ),
)
