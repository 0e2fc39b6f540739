"""Block types whose layouts are data: Q4_0 to Q8_K, Q1_0, Q2_0, TQ2_0, IQ4_NL, IQ4_XS, MXFP4 and NVFP4. Sources:
ggml-quants.c; OCP Microscaling Formats 1.0."""

from __future__ import annotations

from ...runtime.jit.code_cache import CachedKernel
from ...runtime.tensor.block_codec import Decoder
from .encoders import compiled
from .layout.block_layout import (
    SIX_BIT_MINIMA,
    SIX_BIT_SCALES,
    Layout,
    Scale,
    bits,
    codes,
    f16,
    f32,
    nibbles,
    packed,
    planes,
    signed_bytes,
)
from .layout.numpy_decoder import codec
from .layout.value_tables import E2M1, IQ4_NL

LAYOUTS = {
    "q1_0": Layout(codes(packed(1, 2, 128), table=(-1, 1)), f16(0), products=False),
    "q2_0": Layout(codes(packed(2, 2, 64), zero=1), f16(0), products=False),
    "q4_0": Layout(codes(nibbles(2), zero=8), f16(0)),
    "q4_1": Layout(codes(nibbles(4)), f16(0), f16(2, sign=-1)),
    "q5_0": Layout(codes(nibbles(6), packed(1, 2, 32), zero=16), f16(0)),
    "q5_1": Layout(codes(nibbles(8), packed(1, 4, 32)), f16(0), f16(2, sign=-1)),
    "q8_0": Layout(signed_bytes(2, 32), f16(0)),
    "q8_1": Layout(signed_bytes(4, 32), f16(0), products=False),
    "q8_k": Layout(signed_bytes(4, 256), f32(0), products=False),
    "q2_k": Layout(codes(planes(2, 16)), f16(80, codes(bits(4, 0, (16, 8)))), f16(82, codes(bits(4, 4, (16, 8))))),
    "q3_k": Layout(
        codes(planes(2, 32), planes(1, 0, repeat=1), zero=4),
        f16(108, codes(nibbles(96, 8), planes(2, 104, 4, 1), zero=32)),
    ),
    "q4_k": Layout(codes(nibbles(16, 32, 4)), f16(0, SIX_BIT_SCALES), f16(2, SIX_BIT_MINIMA)),
    "q5_k": Layout(codes(nibbles(48, 32, 4), planes(1, 16, repeat=1)), f16(0, SIX_BIT_SCALES), f16(2, SIX_BIT_MINIMA)),
    "q6_k": Layout(codes(nibbles(0, 64, 2), planes(2, 128), zero=32), f16(208, signed_bytes(192, 16))),
    "tq2_0": Layout(codes(planes(2, 0), zero=1), f16(64), products=False),
    "iq4_nl": Layout(codes(nibbles(2), table=IQ4_NL), f16(0)),
    "iq4_xs": Layout(codes(nibbles(8, 16, 8), table=IQ4_NL), f16(0, codes(packed(4, 4, 8), packed(2, 2, 8), zero=32))),
    "mxfp4": Layout(codes(nibbles(1), table=E2M1), Scale("e8m0", 0)),
    "nvfp4": Layout(codes(nibbles(4, 8, 4), table=E2M1), Scale("ue4m3", 0, count=4)),
}
"""Sizes and offsets are in bytes, except those of `bits`, which are in bits."""

ENCODERS = {
    "q1_0_q2_0": ("q1_0", "q2_0"),
    "q8_1_q8_k": ("q8_1", "q8_k"),
    "k_affine": ("q2_k", "q4_k", "q5_k"),
    "k_symmetric": ("q3_k", "q6_k"),
    "ternary": ("tq2_0",),
    "iq4": ("iq4_nl", "iq4_xs"),
    "fp4": ("mxfp4", "nvfp4"),
    "q4_q5_q8_0": ("q8_0", "q4_0", "q4_1", "q5_0", "q5_1"),
}
"""The module of each type's encoder."""
IMPORTANCE = ("q4_0", "q4_1", "q5_0", "q5_1")
"""Types with a separate encoder for rows with an importance matrix."""
COMPILED = ("q4_0", "q8_0", "q4_k", "q6_k")
"""Types with a compiled decoder for large tensors."""

CODECS = tuple(
    codec(
        name,
        LAYOUTS[name],
        compiled(f"{module}.encode_{name}", f"q4_q5_importance.encode_{name}" if name in IMPORTANCE else None),
        decoder=Decoder(CachedKernel(f"{__package__}.llvm.block_decoder", f"decode_{name}"))
        if name in COMPILED
        else None,
    )
    for module, names in ENCODERS.items()
    for name in names
)
