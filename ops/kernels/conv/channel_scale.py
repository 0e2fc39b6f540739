"""Factors of an image's channels, applied to an input in NCHW16c layout or to the packed kernels that multiply it."""

# mypy: disable-error-code="untyped-decorator"
from __future__ import annotations

import numpy as np

from ....runtime.jit.address import f32, share
from ....runtime.jit.kernel_arguments import Address
from ....runtime.jit.range_kernel import range_kernel
from ....runtime.plan.kernel_api import Buffer, Launch
from ....runtime.simd.memory import load_f32, store_f32
from ....runtime.simd.vector import LANES, splat
from ..gemm.register_tile import PANEL, VECTOR
from .problem import Problem


@range_kernel
def scale_blocks(
    source: Address, factors: Address, target: Address, blocks: int, positions: int, part: int, parts: int
) -> None:
    """Multiply blocks of sixteen channels, `positions` vectors each, by a vector of factors."""
    first, last = share(blocks, part, parts)
    for block in range(first, last):
        factor, place = load_f32(factors + VECTOR * block), VECTOR * positions * block
        for at in range(place, place + VECTOR * positions, VECTOR):
            store_f32(target + at, load_f32(source + at) * factor)


@range_kernel
def scale_panels(
    source: Address, factors: Address, target: Address, images: int, panels: int, depth: int, part: int, parts: int
) -> None:
    """Multiply packed kernels [panels, depth, PANEL] by the factors [depth] of each image."""
    first, last = share(images * panels, part, parts)
    for unit in range(first, last):
        image, panel = unit // panels, unit % panels
        for k in range(depth):
            factor = splat(f32(factors)[image * depth + k])
            line = source + 4 * PANEL * (panel * depth + k)
            place = target + 4 * PANEL * (unit * depth + k)
            for at in range(0, 4 * PANEL, VECTOR):
                store_f32(place + at, load_f32(line + at) * factor)


def scaled_input(problem: Problem, scale: Buffer) -> tuple[Buffer, Launch]:
    """The input in NCHW16c layout times the factors [images, channels]."""
    step, x = problem.step, problem.x
    target = step.temporary(np.float32, x.shape)
    blocks = problem.images * problem.channels // LANES
    launch = Launch(
        scale_blocks,
        problem.parts(blocks, x.count / LANES),
        source=x,
        factors=scale,
        target=target,
        blocks=blocks,
        positions=x.count // blocks // LANES,
    )
    return target, launch


def scaled_panels(problem: Problem, panels: Buffer, scale: Buffer) -> tuple[Buffer, Launch]:
    """Packed 1 x 1 kernels [panels, channels, PANEL] for each image, times the factors [images, channels]."""
    images, channels = problem.images, problem.channels
    count = panels.count // (channels * PANEL)
    target = problem.step.temporary(np.float32, (images, count, channels, PANEL))
    launch = Launch(
        scale_panels,
        problem.parts(images * count, target.count / LANES),
        source=panels,
        factors=scale,
        target=target,
        images=images,
        panels=count,
        depth=channels,
    )
    return target, launch
