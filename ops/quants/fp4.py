"""MXFP4 and NVFP4: 4-bit floats (E2M1) with a shared 8-bit scale. Sources: OCP Microscaling Formats 1.0; ggml-quants.c."""

from __future__ import annotations

import numpy as np

from ...runtime.quant import Codec, Scaled
from .encoders import compiled
from .layout.fields import Blocks, Values, nibbles

VALUES = (0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12)
"""Twice the E2M1 values, so that they are integers; the scales below are halved."""

_VALUES = np.array(VALUES, dtype=np.int8)


def e8m0_half() -> Values:
    """Half of two to the power ``code - 127`` for all 256 codes; there is no NaN."""
    return np.ldexp(np.float32(1), np.arange(256) - 128).astype(np.float32)


def ue4m3_half() -> Values:
    """Half of the unsigned 8-bit floats with 4 exponent and 3 mantissa bits, for all 256 codes; bit 7 is ignored, 0x7F is zero."""
    codes = np.arange(256)
    exponent, mantissa = codes >> 3 & 15, (codes & 7).astype(np.float32)
    values = np.where(exponent == 0, np.ldexp(mantissa, -9), np.ldexp(1 + mantissa / 8, exponent - 7))
    values[0x7F] = 0
    return (values * np.float32(0.5)).astype(np.float32)


_E8M0, _UE4M3 = e8m0_half(), ue4m3_half()


def mxfp4(blocks: Blocks) -> Scaled:
    """``VALUES[q] * scale / 2`` for 32 elements; block: scale 1 byte, q 16 bytes."""
    return Scaled(_VALUES[nibbles(blocks[:, None, 1:])], _E8M0[blocks[:, :1]])


def nvfp4(blocks: Blocks) -> Scaled:
    """``VALUES[q] * scale / 2`` for four groups of 16 elements; block: 4 scales, then 8 bytes of q for each group."""
    return Scaled(_VALUES[nibbles(blocks[:, 4:].reshape(-1, 4, 8))], _UE4M3[blocks[:, :4]])


CODECS = (
    Codec.of("mxfp4", mxfp4, compiled("fp4.encode_mxfp4")),
    Codec.of("nvfp4", nvfp4, compiled("fp4.encode_nvfp4")),
)
