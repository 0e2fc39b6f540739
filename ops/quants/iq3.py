"""IQ3_XXS and IQ3_S: grid points of four magnitudes, with separate signs. Source: ggml-quants.c."""

from __future__ import annotations

import numpy as np

from ...runtime.tensor.block_codec import Codec, block_type
from .encoders import compiled
from .encoders.iq_lattices import lattice_of
from .layout import iq_grids
from .layout.fields import Blocks, Values, bits, even_signs, half, nibbles, signs, words


def decode_iq3_xxs(blocks: Blocks) -> Values:
    """``d * (scale + 1/2) / 2 * point * sign``; block: d f16, points 64 bytes, 8 words of four 7-bit sign codes and a
    4-bit scale."""
    tails = words(blocks, 66, 8, 4)
    scale = half(blocks, 0) * (np.float32(0.5) + (tails >> np.uint32(28)).astype(np.float32)) * np.float32(0.5)
    magnitudes: Values = scale[..., None, None] * iq_grids.IQ3_XXS.points[blocks[:, 2:66]].reshape(-1, 8, 4, 8)
    return (magnitudes * even_signs(tails[..., None] >> np.arange(0, 28, 7, dtype=np.uint32))).reshape(-1, 256)


def decode_iq3_s(blocks: Blocks) -> Values:
    """``d * (2 scale + 1) * point * sign``; block: d f16, points 64 bytes, ninth bits 8, signs 32, 4-bit scales 4."""
    points = blocks[:, 2:66] | bits(blocks[:, 66:74]).astype(np.uint16) << np.uint16(8)
    scales = nibbles(blocks[:, 106:110, None]).reshape(-1, 8)
    scale: Values = half(blocks, 0) * (scales.astype(np.float32) * np.float32(2) + np.float32(1))
    magnitudes: Values = scale[..., None, None] * iq_grids.IQ3_S.points[points].reshape(-1, 8, 4, 8)
    return (magnitudes * signs(blocks[:, 74:106]).reshape(-1, 8, 4, 8)).reshape(-1, 256)


CODECS = (
    Codec(
        block_type("iq3_xxs"),
        decode_iq3_xxs,
        compiled("iq3.encode_iq3_xxs", lattice=lambda: lattice_of(iq_grids.IQ3_XXS, 2)),
    ),
    Codec(
        block_type("iq3_s"), decode_iq3_s, compiled("iq3.encode_iq3_s", lattice=lambda: lattice_of(iq_grids.IQ3_S, 3))
    ),
)
