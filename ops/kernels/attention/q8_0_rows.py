"""Rows of Q8_0 blocks: 32 elements as an f16 scale and signed bytes, quantized and dequantized."""

# mypy: disable-error-code="untyped-decorator"
from __future__ import annotations

from typing import Any

import numpy as np

from ....runtime.jit.address import f32, i8, share
from ....runtime.jit.kernel_arguments import Address
from ....runtime.jit.range_kernel import inner, range_kernel
from ....runtime.simd.memory import F16_CODE, load_i8, load_one, store_f32, store_one
from ....runtime.simd.vector import LANES

Q8_0_CODE = 3
"""Code of the blocks, after those of dtypes."""
BLOCK_LENGTH, BLOCK_NBYTES = 32, 34
CHUNK = 32
"""Rows that are dequantized at a time."""


@inner
def load_quantized(row: Any, k: Any) -> Any:
    """Element `k` of a row as f32."""
    block = row + k // BLOCK_LENGTH * BLOCK_NBYTES
    return np.float32(i8(block + 2)[k % BLOCK_LENGTH]) * load_one(F16_CODE, block)


@inner
def widen_blocks(source: Any, target: Any, count: Any) -> None:
    """Convert whole blocks of `count` elements to f32."""
    for block in range(count // BLOCK_LENGTH):
        at, to = source + block * BLOCK_NBYTES, target + 4 * block * BLOCK_LENGTH
        scale = load_one(F16_CODE, at)
        for j in range(0, BLOCK_LENGTH, LANES):
            store_f32(to + 4 * j, load_i8(at + 2 + j) * scale)


@inner
def widen_rows(source: Any, step: Any, rows: Any, target: Any, size: Any) -> None:
    """Convert rows `step` bytes apart to f32 [rows, size]."""
    for row in range(rows):
        widen_blocks(source + row * step, target + 4 * size * row, size)


@range_kernel
def quantize_blocks(x: Address, y: Address, blocks: int, part: int, parts: int) -> None:
    """Blocks of f32, as ggml's reference rounds them."""
    first, last = share(blocks, part, parts)
    for block in range(first, last):
        source, target = f32(x + 4 * BLOCK_LENGTH * block), y + BLOCK_NBYTES * block
        largest, check = np.float32(0), np.float32(0)
        for j in range(BLOCK_LENGTH):
            largest = max(largest, abs(source[j]))
            check += source[j] * np.float32(0)
        scale = largest / np.float32(127)
        inverse = np.float32(1) / scale if scale > np.float32(0) else np.float32(0)
        store_one(F16_CODE, target, scale + check)
        codes = i8(target + 2)
        if check != check:
            for j in range(BLOCK_LENGTH):
                codes[j] = 0
            continue
        for j in range(BLOCK_LENGTH):
            ratio = source[j] * inverse
            rounded = np.int64(abs(ratio) + np.float32(0.5))
            codes[j] = rounded if ratio >= np.float32(0) else -rounded
