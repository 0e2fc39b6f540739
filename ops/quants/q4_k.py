"""Q4_K and Q5_K: 8 groups of 32 elements of 4 or 5 bits, each with a 6-bit scale and a 6-bit minimum. Source: ggml-quants.c."""

from __future__ import annotations

import numpy as np

from ...runtime.quant import Codec, Scaled
from .encoders import compiled
from .layout import native
from .layout.fields import Blocks, half, nibbles, planes


def _affine(blocks: Blocks, codes: Blocks) -> Scaled:
    """``d * scale * q - dmin * min`` with d f16, dmin f16 and 12 bytes of scales and minima at the start of a block."""
    low, high, rest = blocks[:, 4:8], blocks[:, 8:12], blocks[:, 12:16]
    scales = np.concatenate((low & np.uint8(63), rest & np.uint8(15) | low >> np.uint8(6) << np.uint8(4)), axis=1)
    minima = np.concatenate((high & np.uint8(63), rest >> np.uint8(4) | high >> np.uint8(6) << np.uint8(4)), axis=1)
    scale, minimum = half(blocks, 0) * scales.astype(np.float32), half(blocks, 2) * minima.astype(np.float32)
    return Scaled(codes.view(np.int8), scale, minimum)


def q4_k(blocks: Blocks) -> Scaled:
    """Block: d, dmin, scales and minima, q 128 bytes: 32 low halves, then their 32 high halves, four times."""
    return _affine(blocks, nibbles(blocks[:, 16:].reshape(-1, 4, 32)).reshape(-1, 8, 32))


def q5_k(blocks: Blocks) -> Scaled:
    """Block: d, dmin, scales and minima, fifth bits 32 bytes, low bits 128 bytes as in Q4_K."""
    low = nibbles(blocks[:, 48:].reshape(-1, 4, 32)).reshape(-1, 8, 32)
    return _affine(blocks, low | planes(blocks[:, 16:48], 1) << np.uint8(4))


CODECS = (
    Codec.of("q4_k", q4_k, compiled("affine_k.encode_q4_k"), decoder=native("decode_q4_k"), code_bits=4),
    Codec.of("q5_k", q5_k, compiled("affine_k.encode_q5_k")),
)
