"""Q3_K: 16 groups of 16 elements of 3 bits, each with a 6-bit scale. Source: ggml-quants.c."""

from __future__ import annotations

import numpy as np

from ...runtime.quant import Codec, Scaled
from .encoders import compiled
from .layout.fields import Blocks, half, nibbles, planes


def q3_k(blocks: Blocks) -> Scaled:
    """``d * (scale - 32) * (q - 4)``; block: high bits 32 bytes, low bits 64 bytes, scales 12 bytes, d f16."""
    low = planes(blocks[:, 32:96].reshape(-1, 2, 32), 2)
    high = planes(blocks[:, :32], 1).reshape(-1, 2, 4, 32)
    codes = (low | high << np.uint8(2)).astype(np.int8).reshape(-1, 16, 16) - np.int8(4)
    scales = nibbles(blocks[:, 96:104]) | planes(blocks[:, 104:108], 2).reshape(-1, 16) << np.uint8(4)
    return Scaled(codes, half(blocks, 108) * (scales.astype(np.float32) - np.float32(32)))


CODECS = (Codec.of("q3_k", q3_k, compiled("symmetric_k.encode_q3_k"), code_bits=4),)
