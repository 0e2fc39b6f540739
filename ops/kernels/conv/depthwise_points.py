"""Depthwise convolution of planes of one element: a product and a sum for each channel, in vectors of channels."""

# mypy: disable-error-code="untyped-decorator"
from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ....runtime.jit.address import share
from ....runtime.jit.range_kernel import range_kernel
from ....runtime.plan.kernel_api import Buffer, Launch
from ....runtime.simd.memory import fma, load_f32, load_masked, store_masked
from ....runtime.simd.vector import LANES, select
from ..gemm.epilogue import Epilogue, apply_epilogue
from .problem import Convolution, ConvPlan, Problem


@range_kernel
def scale_channels(conv: Convolution, part: int, parts: int) -> None:
    """Multiply each channel by the tap that meets it, and add its bias."""
    groups, low, high = conv.groups, np.float32(conv.epilogue.low), np.float32(conv.epilogue.high)
    vectors = (groups + LANES - 1) // LANES
    first, last = share(conv.images * vectors, part, parts)
    for unit in range(first, last):
        image, channel = unit // vectors, unit % vectors * LANES
        count, place = min(LANES, groups - channel), 4 * (image * groups + channel)
        x, factors = load_masked(conv.source + place, (1 << count) - 1), load_f32(conv.weights + 4 * channel)
        total = fma(x, factors, load_f32(conv.bias + 4 * channel))
        total = select(total < low, low, total)
        total = select(total > high, high, total)
        store_masked(conv.target + place, total, (1 << count) - 1)
        apply_epilogue(conv.epilogue, conv.target, place, 0, 1, count)


def plan_depthwise_points(problem: Problem) -> ConvPlan | None:
    """Launch for planes of one element, None for others."""
    geometry, step = problem.geometry, problem.step
    if problem.blocked or not problem.constant or not problem.x.count:
        return None
    if not problem.channels == problem.outputs == problem.positions == 1 or geometry[:3] != (1, 1, 1):
        return None
    kernel, taps = geometry[6:9], [*map(divmod, geometry[15:], geometry[12:15])]
    weights = step.packed(1, ("taps", geometry), lambda weights: _pad(_meeting(weights.reshape(-1, *kernel), taps)))
    stated = None if problem.bias is None else step.constant(2)
    bias = _pad(np.zeros(problem.groups, np.float32) if stated is None else stated)
    held = step.constant_buffer(bias)
    parts = step.parts(problem.images * -(-problem.groups // LANES), problem.work)

    def launch(epilogue: Epilogue, result: Buffer) -> Launch:
        arguments = problem.arguments(problem.x, weights, result, held, 1, 0, epilogue)
        return Launch(scale_channels, parts, conv=arguments)

    return [], launch


def _meeting(kernels: np.ndarray, taps: Sequence[tuple[int, int]]) -> np.ndarray:
    """The weight of each channel that meets the element, zeros where padding meets all; taps: quotient and rest of
    padding and dilation."""
    if any(rest or tap >= length for (tap, rest), length in zip(taps, kernels.shape[1:], strict=True)):
        return np.zeros(len(kernels), np.float32)
    index: tuple[slice | int, ...] = (slice(None), *(tap for tap, _ in taps))
    return kernels[index]


def _pad(channels: np.ndarray) -> np.ndarray:
    """A full number of vectors."""
    return np.pad(channels, (0, -len(channels) % LANES))
