"""Q6_K: 16 groups of 16 elements of 6 bits, each with an 8-bit scale. Source: ggml-quants.c."""

from __future__ import annotations

import numpy as np

from ...runtime.quant import Codec, Scaled
from .encoders import compiled
from .layout import native
from .layout.fields import Blocks, half, nibbles, planes


def q6_k(blocks: Blocks) -> Scaled:
    """``d * scale * (q - 32)``; block: low bits 128 bytes, high bits 64 bytes, scales 16 signed bytes, d f16."""
    low = nibbles(blocks[:, :128].reshape(-1, 2, 64)).reshape(-1, 2, 4, 32)
    high = planes(blocks[:, 128:192].reshape(-1, 2, 32), 2)
    codes = (low | high << np.uint8(4)).astype(np.int8).reshape(-1, 16, 16) - np.int8(32)
    return Scaled(codes, half(blocks, 208) * blocks[:, 192:208].view(np.int8))


CODECS = (Codec.of("q6_k", q6_k, compiled("symmetric_k.encode_q6_k"), decoder=native("decode_q6_k")),)
