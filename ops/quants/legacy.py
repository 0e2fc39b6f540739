"""Block types that ggml dropped before GGUF: elements in pairs until May 2023, single-precision scales until GGJT 3.

Up to GGJT 1, byte ``j`` of the packed numbers holds elements ``2j`` and ``2j + 1`` and bit ``i`` of the fifth bits belongs to element ``i``;
GGJT 2 has today's order, elements ``j`` and ``j + 16``, but still single-precision scales. Whisper files count the same changes as
quantization versions 0, 1 and 2. Source: block structures and dequantize_row functions of ggml.c, 10 April to 20 May 2023.
"""

from __future__ import annotations

import numpy as np

from ...runtime.quant import Codec, block_type
from .layout.fields import Blocks, Values, bits, half, nibbles


def single(blocks: Blocks, at: int) -> Values:
    """The little-endian f32 number at byte `at`, as float32 ``[n, 1]``."""
    return np.ascontiguousarray(blocks[:, at : at + 4]).view("<f4").astype(np.float32)


def pairs(packed: Blocks) -> Blocks:
    """``[n, k]`` bytes to ``[n, 2 k]`` 4-bit numbers: low half, high half, next byte."""
    return np.stack((packed & np.uint8(15), packed >> np.uint8(4)), axis=-1).reshape(len(packed), -1)


def decode_q4_0_v1(blocks: Blocks) -> Values:
    """``(q - 8) * d``; block: d f32, q 16 bytes in pairs."""
    return _signed(pairs(blocks[:, 4:]), 8) * single(blocks, 0)


def decode_q4_1_v1(blocks: Blocks) -> Values:
    """``q * d + m``; block: d f32, m f32, q 16 bytes in pairs."""
    return pairs(blocks[:, 8:]) * single(blocks, 0) + single(blocks, 4)


def decode_q4_2(blocks: Blocks) -> Values:
    """``(q - 8) * d`` for 16 elements; block: d f16, q 8 bytes in pairs."""
    return _signed(pairs(blocks[:, 2:]), 8) * half(blocks, 0)


def decode_q4_3(blocks: Blocks) -> Values:
    """``q * d + m`` for 16 elements; block: d f16, m f16, q 8 bytes in pairs."""
    return pairs(blocks[:, 4:]) * half(blocks, 0) + half(blocks, 2)


def decode_q5_0_v1(blocks: Blocks) -> Values:
    """``(q - 16) * d``; block: d f16, fifth bits 4 bytes, low bits 16 bytes in pairs."""
    return _signed(pairs(blocks[:, 6:]) | bits(blocks[:, 2:6]) << np.uint8(4), 16) * half(blocks, 0)


def decode_q5_1_v1(blocks: Blocks) -> Values:
    """``q * d + m``; block: d f16, m f16, fifth bits 4 bytes, low bits 16 bytes in pairs."""
    return (pairs(blocks[:, 8:]) | bits(blocks[:, 4:8]) << np.uint8(4)) * half(blocks, 0) + half(blocks, 2)


def decode_q8_0_v1(blocks: Blocks) -> Values:
    """``q * d``; block: d f32, q 32 signed bytes."""
    return np.ascontiguousarray(blocks[:, 4:]).view(np.int8) * single(blocks, 0)


def decode_q4_0_v2(blocks: Blocks) -> Values:
    """``(q - 8) * d``; block: d f32, q 16 bytes."""
    return _signed(nibbles(blocks[:, 4:]), 8) * single(blocks, 0)


def decode_q4_1_v2(blocks: Blocks) -> Values:
    """``q * d + m``; block: d f32, m f32, q 16 bytes."""
    return nibbles(blocks[:, 8:]) * single(blocks, 0) + single(blocks, 4)


def _signed(codes: Blocks, zero: int) -> np.ndarray:
    return codes.astype(np.int8) - np.int8(zero)


CODECS = (
    Codec(block_type("q4_0_v1"), decode_q4_0_v1),
    Codec(block_type("q4_1_v1"), decode_q4_1_v1),
    Codec(block_type("q4_2"), decode_q4_2),
    Codec(block_type("q4_3"), decode_q4_3),
    Codec(block_type("q5_0_v1"), decode_q5_0_v1),
    Codec(block_type("q5_1_v1"), decode_q5_1_v1),
    Codec(block_type("q8_0_v1"), decode_q8_0_v1),
    Codec(block_type("q4_0_v2"), decode_q4_0_v2),
    Codec(block_type("q4_1_v2"), decode_q4_1_v2),
)
