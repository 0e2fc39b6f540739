"""Q5_0 and Q5_1: 32 elements of 5 bits with one half-precision scale, and for Q5_1 the smallest value. Source: ggml-quants.c."""

from __future__ import annotations

import numpy as np

from ...runtime.quant import Codec, Scaled
from .encoders import compiled
from .layout.fields import Blocks, bits, half, nibbles


def q5_0(blocks: Blocks) -> Scaled:
    """``(q - 16) * d``; block: d f16, fifth bits 4 bytes, low bits 16 bytes."""
    codes = nibbles(blocks[:, 6:]) | bits(blocks[:, 2:6]) << np.uint8(4)
    return Scaled((codes.view(np.int8) - np.int8(16))[:, None], half(blocks, 0))


def q5_1(blocks: Blocks) -> Scaled:
    """``q * d + m``; block: d f16, m f16, fifth bits 4 bytes, low bits 16 bytes."""
    codes = nibbles(blocks[:, 8:]) | bits(blocks[:, 4:8]) << np.uint8(4)
    return Scaled(codes.view(np.int8)[:, None], half(blocks, 0), -half(blocks, 2))


CODECS = (
    Codec.of("q5_0", q5_0, compiled("plain.encode_q5_0", "linear.encode_q5_0")),
    Codec.of("q5_1", q5_1, compiled("plain.encode_q5_1", "linear.encode_q5_1")),
)
