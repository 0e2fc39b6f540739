"""Q1_0 and Q2_0: signs, or -1 to 2, times one half-precision scale. Source: ggml-quants.c."""

from __future__ import annotations

import numpy as np

from ...runtime.quant import Codec, block_type
from .encoders import compiled
from .layout.fields import Blocks, Values, bits, half


def decode_q1_0(blocks: Blocks) -> Values:
    """``d`` where a bit is set, else ``-d``, for 128 elements; block: d f16, 16 bytes of bits."""
    scale = half(blocks, 0)
    return np.where(bits(blocks[:, 2:]), scale, -scale)


def decode_q2_0(blocks: Blocks) -> Values:
    """``(q - 1) * d`` for 64 elements; block: d f16, 16 bytes of four 2-bit codes each, first in the lowest bits."""
    codes = blocks[:, 2:, None] >> np.arange(0, 8, 2, dtype=np.uint8) & np.uint8(3)
    return (codes.reshape(-1, 64).astype(np.float32) - np.float32(1)) * half(blocks, 0)


CODECS = (
    Codec(block_type("q1_0"), decode_q1_0, compiled("q1.encode_q1_0")),
    Codec(block_type("q2_0"), decode_q2_0, compiled("q1.encode_q2_0")),
)
