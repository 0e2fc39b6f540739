"""Encoders of Q1_0 and Q2_0: the mean magnitude or the largest one is the scale. Source: ggml-quants.c."""

from __future__ import annotations

from typing import Any

import numpy as np

from ....runtime.jit.range_kernel import inner
from ....runtime.simd.ggml_rounding import rounded, to_f16
from ....runtime.simd.vector import LANES, load, select, splat, store
from .simd.block_per_lane import lane_encoder
from .simd.packed_fields import put_half
from .simd.scale_search import extreme


@inner
def _q1_0(x: Any, importance: Any, means: Any, lattice: Any, y: Any) -> None:
    total = splat(np.float32(0))
    for i in range(128):
        total += abs(load(x, i * LANES))
    put_half(y, 0, to_f16(total / np.float32(128)))
    for byte in range(16):
        packed = splat(np.int32(0))
        for i in range(8):
            packed = packed | select(load(x, (8 * byte + i) * LANES) >= 0, 1 << i, 0)
        store(y, (2 + byte) * LANES, packed)


@inner
def _q2_0(x: Any, importance: Any, means: Any, lattice: Any, y: Any) -> None:
    _, magnitude = extreme(x, 0, 64)
    inverse = select(magnitude > 0, 1.0 / magnitude, 0.0)
    put_half(y, 0, to_f16(magnitude))
    for byte in range(16):
        packed = splat(np.int32(0))
        for i in range(4):
            code = rounded(load(x, (4 * byte + i) * LANES) * inverse) + 1
            code = select(code < 0, 0, select(code > 3, 3, code))
            packed = packed | (code << 2 * i)
        store(y, (2 + byte) * LANES, packed)


encode_q1_0 = lane_encoder(_q1_0, 128, 18, weighted=False)
encode_q2_0 = lane_encoder(_q2_0, 64, 18, weighted=False)
