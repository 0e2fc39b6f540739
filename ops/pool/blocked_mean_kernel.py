"""Native means of planes in NCHW16c layout."""

# mypy: disable-error-code="untyped-decorator"
from __future__ import annotations

import numpy as np

from ...runtime.jit.address import share
from ...runtime.jit.kernel_arguments import Address
from ...runtime.jit.range_kernel import range_kernel
from ...runtime.plan.kernel_api import Launch, Planned, Step, native
from ...runtime.simd.memory import load_f32, store_f32
from ...runtime.simd.vector import LANES, splat
from .blocked_mean import blocked_mean

VECTOR = 4 * LANES
"""Bytes of a vector."""


@range_kernel
def block_means(x: Address, y: Address, blocks: int, positions: int, part: int, parts: int) -> None:
    """Means of `positions` vectors of each block, in four sums."""
    first, last = share(blocks, part, parts)
    even = positions - positions % 4
    for block in range(first, last):
        source = x + VECTOR * positions * block
        a, b, c, d = splat(np.float32(0)), splat(np.float32(0)), splat(np.float32(0)), splat(np.float32(0))
        for at in range(source, source + VECTOR * even, 4 * VECTOR):
            a, b = a + load_f32(at), b + load_f32(at + VECTOR)
            c, d = c + load_f32(at + 2 * VECTOR), d + load_f32(at + 3 * VECTOR)
        for at in range(source + VECTOR * even, source + VECTOR * positions, VECTOR):
            a = a + load_f32(at)
        store_f32(y + VECTOR * block, ((a + b) + (c + d)) / np.float32(positions))


@native(blocked_mean)
def plan_blocked_mean(step: Step) -> Planned:
    """Plan f32 in the blocked layout."""
    x = step.inputs[0]
    if x is None or x.dtype != np.float32 or len(x.shape) != 5 or x.shape[4] != LANES:
        return None
    blocks, positions = x.shape[0] * x.shape[1], x.shape[2] * x.shape[3]
    return Launch(block_means, step.parts(blocks, x.count), x=x, y=step.output(), blocks=blocks, positions=positions)
