"""TQ1_0: elements -1, 0, 1 with one scale, five to a byte as digits of a base-3 fraction. Source: ggml-quants.c."""

from __future__ import annotations

import numpy as np

from ...runtime.tensor.block_codec import Codec, block_type
from .encoders import compiled
from .layout.fields import Blocks, Values, half


def _trits(packed: Blocks, count: int) -> Blocks:
    """The first `count` digits of base-3 fractions ``[n, k]`` out of 256, ``[n, count * k]``: first digits, then second
    ones."""
    powers = np.array((1, 3, 9, 27, 81), dtype=np.uint8)[:count, None]
    shifted = (packed[:, None, :] * powers).astype(np.uint16)
    return (shifted * np.uint16(3) >> np.uint16(8)).astype(np.uint8).reshape(len(packed), -1)


def decode_tq1_0(blocks: Blocks) -> Values:
    """``(q - 1) * d``; block: five digits in each of 32 and 16 bytes, four in each of 4 bytes, d f16."""
    digits = (_trits(blocks[:, :32], 5), _trits(blocks[:, 32:48], 5), _trits(blocks[:, 48:52], 4))
    return (np.concatenate(digits, axis=1).astype(np.int8) - np.int8(1)) * half(blocks, 52)


CODECS = (Codec(block_type("tq1_0"), decode_tq1_0, compiled("ternary.encode_tq1_0")),)
