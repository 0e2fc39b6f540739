"""Value tables of 4-bit codes and 8-bit scales. Sources: OCP Microscaling Formats 1.0; ggml-common.h; QLoRA (arXiv
2305.14314), appendix E."""

from __future__ import annotations

import numpy as np

from .fields import Values

E2M1 = (0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12)
"""Twice the values of E2M1 floats (MXFP4, NVFP4), so that they are integers; `e8m0_half` and `ue4m3_half` halve their
scales."""
IQ4_NL = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)
"""Values of the codes of IQ4_NL and IQ4_XS."""
NF4 = np.array(
    (
        -1.0,
        -0.6961928009986877,
        -0.5250730514526367,
        -0.39491748809814453,
        -0.28444138169288635,
        -0.18477343022823334,
        -0.09105003625154495,
        0.0,
        0.07958029955625534,
        0.16093020141124725,
        0.24611230194568634,
        0.33791524171829224,
        0.44070982933044434,
        0.5626170039176941,
        0.7229568362236023,
        1.0,
    ),
    np.float32,
)
"""Values of bitsandbytes' NF4 codes."""
IQ1_DELTA = 0.125
"""Shift of the grid points of IQ1_S and IQ1_M."""


def e8m0_half() -> Values:
    """Half of two to the power ``code - 127`` for all 256 codes; there is no NaN."""
    return np.ldexp(np.float32(1), np.arange(256) - 128).astype(np.float32)


def ue4m3_half() -> Values:
    """Half of the unsigned 8-bit floats with 4 exponent and 3 mantissa bits, for all 256 codes; bit 7 is ignored, 0x7F
    is zero."""
    codes = np.arange(256)
    exponent, mantissa = codes >> 3 & 15, (codes & 7).astype(np.float32)
    values = np.where(exponent == 0, np.ldexp(mantissa, -9), np.ldexp(1 + mantissa / 8, exponent - 7))
    values[0x7F] = 0
    return (values * np.float32(0.5)).astype(np.float32)
