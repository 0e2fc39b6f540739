"""IQ4_NL and IQ4_XS: 4-bit codes into a table of 16 unevenly spaced values. Source: ggml-quants.c."""

from __future__ import annotations

import numpy as np

from ...runtime.quant import Codec, Scaled
from .encoders import compiled
from .layout.fields import Blocks, half, nibbles, words

VALUES = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)
_VALUES = np.array(VALUES, dtype=np.int8)


def iq4_nl(blocks: Blocks) -> Scaled:
    """``d * VALUES[q]``; block: d f16, q 16 bytes."""
    return Scaled(_VALUES[nibbles(blocks[:, None, 2:])], half(blocks, 0))


def iq4_xs(blocks: Blocks) -> Scaled:
    """``d * (scale - 32) * VALUES[q]``; block: d f16, high scale bits u16, low scale bits 4 bytes, q 128 bytes."""
    groups = np.arange(8, dtype=np.uint32)
    low = blocks[:, 4:8].repeat(2, axis=1) >> (groups % 2 * 4).astype(np.uint8) & np.uint8(15)
    high = (words(blocks, 2, 1, 2) >> 2 * groups & np.uint32(3)).astype(np.uint8)
    scale = half(blocks, 0) * ((low | high << np.uint8(4)).astype(np.float32) - np.float32(32))
    return Scaled(_VALUES[nibbles(blocks[:, 8:].reshape(-1, 8, 16))], scale)


CODECS = (
    Codec.of("iq4_nl", iq4_nl, compiled("iq4.encode_iq4_nl")),
    Codec.of("iq4_xs", iq4_xs, compiled("iq4.encode_iq4_xs")),
)
