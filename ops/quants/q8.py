"""Q8_0, Q8_1 and Q8_K: 8-bit elements with one scale; the last two also hold sums for dot products. Source: ggml-quants.c."""

from __future__ import annotations

import numpy as np

from ...runtime.quant import Codec, Scaled, block_type
from .encoders import compiled
from .layout import native
from .layout.fields import Blocks, Values, half


def q8_0(blocks: Blocks) -> Scaled:
    """``q * d``; block: d f16, q 32 signed bytes."""
    return Scaled(blocks[:, None, 2:].view(np.int8), half(blocks, 0))


def decode_q8_1(blocks: Blocks) -> Values:
    """``q * d``; block: d f16, d times the sum of q as f16, q 32 signed bytes."""
    return blocks[:, 4:].view(np.int8) * half(blocks, 0)


def decode_q8_k(blocks: Blocks) -> Values:
    """``q * d``; block: d f32, q 256 signed bytes, sums of 16 q each as i16."""
    scale = np.ascontiguousarray(blocks[:, :4]).view("<f4").astype(np.float32)
    return blocks[:, 4:260].view(np.int8) * scale


CODECS = (
    Codec.of("q8_0", q8_0, compiled("plain.encode_q8_0"), decoder=native("decode_q8_0")),
    Codec(block_type("q8_1"), decode_q8_1, compiled("q8.encode_q8_1")),
    Codec(block_type("q8_k"), decode_q8_k, compiled("q8.encode_q8_k")),
)
