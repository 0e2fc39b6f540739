"""Q4_0 and Q4_1: 32 elements of 4 bits with one half-precision scale, and for Q4_1 the smallest value. Source: ggml-quants.c."""

from __future__ import annotations

import numpy as np

from ...runtime.quant import Codec, block_type
from .encoders import compiled
from .layout import native
from .layout.fields import Blocks, Values, half, nibbles


def decode_q4_0(blocks: Blocks) -> Values:
    """``(q - 8) * d``; block: d f16, q 16 bytes."""
    return (nibbles(blocks[:, 2:]).astype(np.int8) - np.int8(8)) * half(blocks, 0)


def decode_q4_1(blocks: Blocks) -> Values:
    """``q * d + m``; block: d f16, m f16, q 16 bytes."""
    return nibbles(blocks[:, 4:]) * half(blocks, 0) + half(blocks, 2)


CODECS = (
    Codec(block_type("q4_0"), decode_q4_0, compiled("plain.encode_q4_0", "linear.encode_q4_0"), decoder=native("decode_q4_0")),
    Codec(block_type("q4_1"), decode_q4_1, compiled("plain.encode_q4_1", "linear.encode_q4_1")),
)
