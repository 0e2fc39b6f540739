"""Q2_K: 16 groups of 16 elements of 2 bits, each with a 4-bit scale and a 4-bit minimum. Source: ggml-quants.c."""

from __future__ import annotations

import numpy as np

from ...runtime.quant import Codec, Scaled
from .encoders import compiled
from .layout.fields import Blocks, half, planes


def q2_k(blocks: Blocks) -> Scaled:
    """``d * scale * q - dmin * min``; block: 16 bytes of scale and min, q 64 bytes, d f16, dmin f16."""
    codes = planes(blocks[:, 16:80].reshape(-1, 2, 32), 2).reshape(-1, 16, 16)
    scale = half(blocks, 80) * (blocks[:, :16] & np.uint8(15)).astype(np.float32)
    minimum = half(blocks, 82) * (blocks[:, :16] >> np.uint8(4)).astype(np.float32)
    return Scaled(codes.view(np.int8), scale, minimum)


CODECS = (Codec.of("q2_k", q2_k, compiled("affine_k.encode_q2_k"), code_bits=4),)
