"""Encoders of MXFP4 and NVFP4: scale from the largest magnitude, then the nearest of 16 values. Source:
ggml-quants.c, ggml-impl.h."""

from __future__ import annotations

from typing import Any

import numpy as np

from ....runtime.jit.range_kernel import inner
from ....runtime.simd.vector import LANES, bits, from_bits, gather, load, select, splat, stack_array, store, to_int
from ..layout.value_tables import E2M1, ue4m3_half
from .simd.block_per_lane import lane_encoder
from .simd.packed_fields import put_nibbles
from .simd.scale_search import extreme

SMALLEST = -149
_UE4M3 = ue4m3_half()


def _rounds_up() -> np.ndarray:
    """For each binade from ``2**-149``, the bits of its first float whose base-2 logarithm rounds to the next integer
    in float32."""
    powers = np.arange(SMALLEST + 1, 129, dtype=np.float32)
    gaps = (powers.astype(np.float64) - np.nextafter(powers, np.float32(-1000))) / 2
    exact = np.exp2(powers - np.where(powers == 0, 0, gaps))
    with np.errstate(over="ignore"):
        first = exact.astype(np.float32)
    first = np.where(first < exact, np.nextafter(first, np.float32(np.inf)), first)
    return first.view(np.int32)


_ROUNDS_UP = _rounds_up()


@inner
def _put_codes(x: Any, at: int, count: int, scale: Any, codes: Any) -> None:
    """For each element the index of the nearest of the 16 values, the first one on ties."""
    for i in range(at, at + count):
        element = load(x, i * LANES)
        found, best = splat(np.int32(0)), abs(np.float32(E2M1[0]) * scale - element)
        for k in range(1, 16):
            error = abs(np.float32(E2M1[k]) * scale - element)
            closer = error < best
            found, best = select(closer, k, found), select(closer, error, best)
        store(codes, i * LANES, found)


@inner
def _floor_log2(value: Any) -> Any:
    """``floor(log2f(value))`` of positive values; the logarithm is rounded to f32 before floor."""
    pattern = bits(value)
    small = pattern < 0x00800000
    exponent = select(small, (bits(value * 16777216.0) >> 23) - 151, (pattern >> 23) - 127)
    at = exponent - SMALLEST
    at = select(at < 0, 0, select(at > 276, 276, at))
    return exponent + select(pattern >= gather(_ROUNDS_UP, at), 1, 0)


@inner
def _mxfp4(x: Any, importance: Any, means: Any, lattice: Any, y: Any) -> None:
    codes = stack_array(np.int32, 32)
    _, largest = extreme(x, 0, 32)
    exponent = select(largest > 0, _floor_log2(largest) + 125, 0) & 255
    scale = select(exponent < 2, select(exponent == 0, 0x00200000, 0x00400000), (exponent - 1) << 23)
    _put_codes(x, 0, 32, from_bits(scale), codes)
    store(y, 0, exponent)
    put_nibbles(y, 1, codes, 0, 16)


@inner
def _to_ue4m3(value: Any) -> Any:
    """The unsigned 8-bit float nearest to `value`, ties upwards; at most 0x7E."""
    positive = value > 0
    value = select(value > 448.0, 448.0, value)
    pattern = bits(value)
    exponent = (pattern >> 23) - 120
    small = to_int(select(positive & (exponent <= 0), value * 512.0 + 0.5, 0.0))
    small = select(small > 7, 7, small)
    normal = ((exponent << 3) | ((pattern >> 20) & 7)) + ((pattern >> 19) & 1)
    normal = select(normal > 0x7E, 0x7E, select(exponent >= 15, 0x7E, normal))
    normal = select(normal >= 0x78, 0x7E, normal)
    return select(positive, select(exponent <= 0, small, normal), 0)


@inner
def _nvfp4(x: Any, importance: Any, means: Any, lattice: Any, y: Any) -> None:
    codes = stack_array(np.int32, 64)
    for group in range(4):
        _, largest = extreme(x, 16 * group, 16)
        scale = _to_ue4m3(largest / np.float32(6))
        store(y, group * LANES, scale)
        _put_codes(x, 16 * group, 16, gather(_UE4M3, scale), codes)
        put_nibbles(y, 4 + 8 * group, codes, 16 * group, 8)


encode_mxfp4 = lane_encoder(_mxfp4, 32, 17, weighted=False)
encode_nvfp4 = lane_encoder(_nvfp4, 64, 36, weighted=False)
