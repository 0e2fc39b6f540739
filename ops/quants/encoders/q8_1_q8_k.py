"""Encoders of Q8_1 and Q8_K: the largest magnitude becomes the largest code. Source: ggml-quants.c."""

from __future__ import annotations

from typing import Any

import numpy as np

from ....runtime.jit.range_kernel import inner
from ....runtime.simd.ggml_rounding import nearest, rounded, signed_byte, to_f16
from ....runtime.simd.vector import LANES, bits, load, select, splat, store, to_int
from .simd.block_per_lane import lane_encoder
from .simd.packed_fields import put_half
from .simd.scale_search import extreme


@inner
def _codes(x: Any, y: Any, at: int) -> Any:
    """Write 32 codes from byte `at`; returns the scale and the sum of the codes."""
    _, magnitude = extreme(x, 0, 32)
    scale = magnitude / np.float32(127)
    inverse = select(scale == 0, 0.0, 1.0 / scale)
    total = splat(np.float32(0))
    for i in range(32):
        code = rounded(load(x, i * LANES) * inverse)
        store(y, (at + i) * LANES, code)
        total += signed_byte(code)
    return scale, total


@inner
def _q8_1(x: Any, importance: Any, means: Any, lattice: Any, y: Any) -> None:
    scale, total = _codes(x, y, 4)
    put_half(y, 0, to_f16(scale))
    put_half(y, 2, to_f16(total * scale))


@inner
def _q8_k(x: Any, importance: Any, means: Any, lattice: Any, y: Any) -> None:
    value, magnitude = extreme(x, 0, 256)
    empty = magnitude == 0
    inverse = np.float32(-127) / value
    scale = select(empty, 0, bits(1.0 / inverse))
    put_half(y, 0, scale)
    put_half(y, 2, scale >> 16)
    for group in range(16):
        total = splat(np.float32(0))
        for i in range(16 * group, 16 * group + 16):
            code = nearest(inverse * load(x, i * LANES))
            code = select(empty, 0, to_int(select(code < 127, code, 127.0)))
            store(y, (4 + i) * LANES, code)
            total += signed_byte(code)
        put_half(y, 260 + 2 * group, to_int(total))


encode_q8_1 = lane_encoder(_q8_1, 32, 36, weighted=False)
encode_q8_k = lane_encoder(_q8_k, 256, 292, weighted=False)
