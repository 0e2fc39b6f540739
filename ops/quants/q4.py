"""Q4_0 and Q4_1: 32 elements of 4 bits with one half-precision scale, and for Q4_1 the smallest value. Source: ggml-quants.c."""

from __future__ import annotations

import numpy as np

from ...runtime.quant import Codec, Scaled
from .encoders import compiled
from .layout import native
from .layout.fields import Blocks, half, nibbles


def q4_0(blocks: Blocks) -> Scaled:
    """``(q - 8) * d``; block: d f16, q 16 bytes."""
    return Scaled((nibbles(blocks[:, 2:]).astype(np.int8) - np.int8(8))[:, None], half(blocks, 0))


def q4_1(blocks: Blocks) -> Scaled:
    """``q * d + m``; block: d f16, m f16, q 16 bytes."""
    return Scaled(nibbles(blocks[:, 4:]).view(np.int8)[:, None], half(blocks, 0), -half(blocks, 2))


CODECS = (
    Codec.of("q4_0", q4_0, compiled("plain.encode_q4_0", "linear.encode_q4_0"), decoder=native("decode_q4_0"), code_bits=4),
    Codec.of("q4_1", q4_1, compiled("plain.encode_q4_1", "linear.encode_q4_1"), code_bits=4),
)
