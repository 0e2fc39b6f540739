"""Native LayerNormGrad and RMSNormGrad of f32: a row is read from the first cache after its first pass, and sums over
rows are made for blocks of rows, which are added in order."""

# mypy: disable-error-code="untyped-decorator"
from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...runtime.jit.address import share
from ...runtime.jit.kernel_arguments import Address
from ...runtime.jit.range_kernel import inner, range_kernel
from ...runtime.plan.kernel_api import Buffer, Launch, Planned, Step, native
from ...runtime.simd.memory import lane_sum, load_n, store_n
from ...runtime.simd.vector import LANES, lane_indices, select, splat
from .layer_norm_grad import layer_norm_grad, rms_norm_grad

BLOCK = 32
"""Rows whose gradients of scale and bias are summed at a time."""
COST = 6.0
"""Scalar operations for each element."""
COLUMNS = 64
"""Columns of sums that a part adds at a time."""


@inner
def _inside(vector: Any, count: int) -> Any:
    """Zero after `count` elements."""
    return vector if count >= LANES else select(lane_indices() < count, vector, np.float32(0))


@inner
def _moments(x: int, columns: int, epsilon: Any, centred: int) -> Any:
    """Mean, or zero, and reciprocal of the deviation from it of a row."""
    length = np.float32(columns)
    mean = np.float32(0)
    if centred != 0:
        total = splat(np.float32(0))
        for at in range(0, columns, LANES):
            total = total + load_n(x + 4 * at, columns - at)
        mean = lane_sum(total) / length
    squares = splat(np.float32(0))
    for at in range(0, columns, LANES):
        moved = _inside(load_n(x + 4 * at, columns - at) - mean, columns - at)
        squares = squares + moved * moved
    return mean, np.float32(1) / np.float32(math.sqrt(lane_sum(squares) / length + np.float32(epsilon)))


@range_kernel
def norm_grad_rows(
    grad: Address,
    x: Address,
    scale: Address,
    by_x: Address,
    sums: Address,
    rows: int,
    columns: int,
    epsilon: float,
    centred: int,
    summed: int,
    part: int,
    parts: int,
) -> None:
    """The gradient by x, and where `summed` is set, sums for each block of `BLOCK` rows: columns for the scale, then
    columns for the bias."""
    length = np.float32(columns)
    first, last = share((rows + BLOCK - 1) // BLOCK, part, parts)
    for block in range(first, last):
        by_scale = sums + block * 8 * columns
        by_bias = by_scale + 4 * columns
        if summed != 0:
            for at in range(0, columns, LANES):
                store_n(by_scale + 4 * at, splat(np.float32(0)), columns - at)
                store_n(by_bias + 4 * at, splat(np.float32(0)), columns - at)
        for row in range(block * BLOCK, min(rows, block * BLOCK + BLOCK)):
            start = 4 * row * columns
            mean, inverse = _moments(x + start, columns, epsilon, centred)
            total, along = splat(np.float32(0)), splat(np.float32(0))
            for at in range(0, columns, LANES):
                left, place = columns - at, start + 4 * at
                given = load_n(grad + place, left)
                normal = (load_n(x + place, left) - mean) * inverse
                scaled = given * load_n(scale + 4 * at, left)
                total, along = total + scaled, along + scaled * normal
                if summed != 0:
                    store_n(by_scale + 4 * at, load_n(by_scale + 4 * at, left) + given * normal, left)
                    store_n(by_bias + 4 * at, load_n(by_bias + 4 * at, left) + given, left)
            share_of_mean = lane_sum(total) / length if centred != 0 else np.float32(0)
            share_along = lane_sum(along) / length
            for at in range(0, columns, LANES):
                left, place = columns - at, start + 4 * at
                normal = (load_n(x + place, left) - mean) * inverse
                scaled = load_n(grad + place, left) * load_n(scale + 4 * at, left)
                store_n(by_x + place, (scaled - share_of_mean - normal * share_along) * inverse, left)


@range_kernel
def blocks_added(sums: Address, result: Address, blocks: int, columns: int, apart: int, part: int, parts: int) -> None:
    """The sum of blocks of `columns` elements that begin `apart` bytes from each other."""
    first, last = share((columns + COLUMNS - 1) // COLUMNS, part, parts)
    for at in range(first * COLUMNS, min(last * COLUMNS, columns), LANES):
        total = load_n(sums + 4 * at, columns - at)
        for block in range(1, blocks):
            total = total + load_n(sums + block * apart + 4 * at, columns - at)
        store_n(result + 4 * at, total, columns - at)


def _planned(step: Step, centred: int) -> Planned:
    grad, x, scale = (step.input(index) for index in range(3))
    axis = step.attributes["axis"]
    if any(each.dtype != np.float32 for each in (grad, x, scale)) or not -len(x.shape) <= axis < len(x.shape):
        return None
    last = x.shape[axis % len(x.shape) :]
    if grad.shape != x.shape or scale.shape != last:
        return None
    columns = math.prod(last)
    rows, used = x.count // columns, [index for index in (1, 2) if step.is_used(index)]
    blocks = -(-rows // BLOCK)
    sums = step.temporary(np.float32, (blocks, 2, columns) if used else (1,))
    by_x = step.output() if step.is_used(0) else step.temporary(np.float32, x.shape)
    launches = [
        Launch(
            norm_grad_rows,
            step.parts(blocks, COST * x.count),
            grad=grad,
            x=x,
            scale=scale,
            by_x=by_x,
            sums=sums,
            rows=rows,
            columns=columns,
            epsilon=step.attributes["epsilon"],
            centred=centred,
            summed=int(bool(used)),
        )
    ]
    return [*launches, *(_added(step, sums, index) for index in used)]


def _added(step: Step, sums: Buffer, index: int) -> Launch:
    blocks, _, columns = sums.shape
    return Launch(
        blocks_added,
        step.parts(-(-columns // COLUMNS), blocks * columns / 4),
        sums=sums.view((sums.count - (index - 1) * columns,), (index - 1) * columns),
        result=step.output(index),
        blocks=blocks,
        columns=columns,
        apart=8 * columns,
    )


@native(layer_norm_grad)
def plan_layer_norm_grad(step: Step) -> Planned:
    """Plan f32 with a scale of the shape of the normalized axes."""
    return _planned(step, 1)


@native(rms_norm_grad)
def plan_rms_norm_grad(step: Step) -> Planned:
    """Plan f32 as LayerNormGrad does."""
    return _planned(step, 0)
