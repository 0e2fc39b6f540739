"""Zeros: large ones pass by the caches, which they would empty."""

# mypy: disable-error-code="untyped-decorator"
from __future__ import annotations

import numpy as np

from ...runtime.jit.address import share, u8
from ...runtime.jit.kernel_arguments import Address
from ...runtime.jit.range_kernel import range_kernel
from ...runtime.plan.kernel_api import Buffer, Launch, Step
from ...runtime.simd.memory import STREAM_ALIGNMENT, STREAMED, store_f32, stream_f32
from ...runtime.simd.vector import LANES, splat

PIECE = 1 << 14
"""Bytes that a part fills at a time."""


@range_kernel
def zero_fill(target: Address, nbytes: int, part: int, parts: int) -> None:
    """Zeros in all bytes."""
    first, last = share((nbytes + PIECE - 1) // PIECE, part, parts)
    begin, end = first * PIECE, min(last * PIECE, nbytes)
    streams, width = nbytes >= STREAMED and target % STREAM_ALIGNMENT == 0, 4 * LANES
    whole = end - (end - begin) % width
    for at in range(begin, whole, width):
        if streams:
            stream_f32(target + at, splat(np.float32(0)))
        else:
            store_f32(target + at, splat(np.float32(0)))
    for at in range(whole, end):
        u8(target)[at] = 0


def zeros(step: Step, target: Buffer) -> Launch:
    """A launch that fills a buffer with zeros."""
    return Launch(
        zero_fill, step.parts(-(-target.nbytes // PIECE), target.nbytes / 8), target=target, nbytes=target.nbytes
    )
