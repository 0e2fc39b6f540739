"""Block types that ggml dropped before GGUF: elements in pairs until May 2023, f32 scales until GGJT 3.

Up to GGJT 1, byte ``j`` of the packed codes holds elements ``2j`` and ``2j + 1``, and bit ``i`` of the fifth bits
belongs to element ``i``. GGJT 2 has today's order, elements ``j`` and ``j + 16``, but still f32 scales. Whisper files
count the same changes as quantization versions 0, 1 and 2. Source: block structures and dequantize_row functions of
ggml.c, 10 April to 20 May 2023.
"""

from __future__ import annotations

from .layout.block_layout import Layout, codes, f16, f32, nibbles, packed, signed_bytes
from .layout.numpy_decoder import codec

LAYOUTS = {
    "q4_0_v1": Layout(codes(packed(4, 4, 32), zero=8), f32(0), products=False),
    "q4_1_v1": Layout(codes(packed(4, 8, 32)), f32(0), f32(4, sign=-1), products=False),
    "q4_2": Layout(codes(packed(4, 2, 16), zero=8), f16(0), products=False),
    "q4_3": Layout(codes(packed(4, 4, 16)), f16(0), f16(2, sign=-1), products=False),
    "q5_0_v1": Layout(codes(packed(4, 6, 32), packed(1, 2, 32), zero=16), f16(0), products=False),
    "q5_1_v1": Layout(codes(packed(4, 8, 32), packed(1, 4, 32)), f16(0), f16(2, sign=-1), products=False),
    "q8_0_v1": Layout(signed_bytes(4, 32), f32(0), products=False),
    "q4_0_v2": Layout(codes(nibbles(4), zero=8), f32(0), products=False),
    "q4_1_v2": Layout(codes(nibbles(8)), f32(0), f32(4, sign=-1), products=False),
}

CODECS = tuple(codec(name, layout) for name, layout in LAYOUTS.items())
