"""IQ1_S and IQ1_M: grid points of eight elements from -1, 0, 1, shifted by 1/8. Source: ggml-quants.c."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ...runtime.tensor.block_codec import Codec, block_type
from .encoders import compiled
from .encoders.iq_lattices import lattice_of
from .layout import iq_grids
from .layout.fields import Blocks, Values, half, planes, words
from .layout.value_tables import IQ1_DELTA


def _values(scale: Values, points: npt.NDArray[np.uint16], negative: npt.NDArray[np.bool_]) -> Values:
    """``scale * (point +- IQ1_DELTA)`` for groups of eight: all three ``[n, 32]``."""
    delta = np.where(negative, np.float32(-IQ1_DELTA), np.float32(IQ1_DELTA))
    return (scale[..., None] * (iq_grids.IQ1.points[points] + delta[..., None])).reshape(-1, 256)


def decode_iq1_s(blocks: Blocks) -> Values:
    """``d * (2 scale + 1) * (point +- 1/8)``; block: d f16, points 32 bytes, 8 u16 of four 3-bit highs, 3-bit scale and
    the shift's sign."""
    tails = words(blocks, 34, 8, 2)
    high = (tails[..., None] >> np.arange(0, 12, 3, dtype=np.uint32) & np.uint32(7)).astype(np.uint16).reshape(-1, 32)
    scale = half(blocks, 0) * (2 * (tails >> np.uint32(12) & np.uint32(7)) + 1).astype(np.float32)
    return _values(scale.repeat(4, axis=1), blocks[:, 2:34] | high << np.uint16(8), (tails >= 0x8000).repeat(4, axis=1))


def decode_iq1_m(blocks: Blocks) -> Values:
    """As IQ1_S with a scale for 16 elements; block: points 32 bytes, highs and shift signs 16, four u16 of four 3-bit
    scales and 4 bits of d."""
    tails = words(blocks, 48, 4, 2)
    d = np.zeros((len(blocks), 1), dtype=np.uint16)
    for index in range(4):
        d[:, 0] |= (tails[:, index] >> np.uint32(12) << np.uint32(4 * index)).astype(np.uint16)
    scales = (tails[..., None] >> np.arange(0, 12, 3, dtype=np.uint32) & np.uint32(7)).reshape(-1, 16)
    scale = half(d.view(np.uint8), 0) * (2 * scales + 1).astype(np.float32)
    high = planes(blocks[:, 32:48, None], 4).reshape(-1, 32)
    points = blocks[:, :32] | (high & np.uint8(7)).astype(np.uint16) << np.uint16(8)
    return _values(scale.repeat(2, axis=1), points, high >= 8)


CODECS = (
    Codec(
        block_type("iq1_s"),
        decode_iq1_s,
        compiled("iq1.encode_iq1_s", lattice=lambda: lattice_of(iq_grids.IQ1, 3)),
        needs_importance=True,
    ),
    Codec(block_type("iq1_m"), decode_iq1_m, compiled("iq1.encode_iq1_m", lattice=lambda: lattice_of(iq_grids.IQ1, 3))),
)
