"""Normalizations on the device: statistics of each row, then scale and shift."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...runtime.cuda.element.element import compute_dtype
from ...runtime.cuda.kernel.axes import permuted, split
from ...runtime.cuda.kernel.elementwise import chain_step, elementwise_chain
from ...runtime.cuda.kernel.kernel import Launch
from ...runtime.cuda.kernel.operand import Operand
from ...runtime.cuda.kernel.reduce import Fold, Result, add, reduce_rows
from ...runtime.cuda.plan.kernel_api import Planned, Step, cuda
from ...runtime.plan.kernel_api import Buffer, Chain
from .batch_norm import batch_normalization
from .group_norm import group_normalization, instance_normalization, mean_variance_normalization
from .layer_norm import layer_normalization, rms_normalization
from .lp_norm import lp_normalization

F32, F64 = np.dtype(np.float32), np.dtype(np.float64)


def _element(x: float) -> float:
    return x


def _mean(total: float, count: int) -> float:
    return total / count


def _deviation(x: float, mean: float) -> float:
    return (x - mean) * (x - mean)


def _square(x: float) -> float:
    return x * x


def _inverse(total: float, count: int, epsilon: float) -> float:
    return 1 / math.sqrt(total / count + epsilon)


def _normal(x: float, mean: float, inverse: float) -> float:
    return (x - mean) * inverse


def _scaled(x: float, mean: float, inverse: float, scale: float) -> float:
    return (x - mean) * inverse * scale


def _shifted(x: float, mean: float, inverse: float, scale: float, bias: float) -> float:
    return (x - mean) * inverse * scale + bias


def rooted(x: float, inverse: float, scale: float) -> float:
    """An element of a row whose numbers are those of `ROOT`."""
    return x * inverse * scale


def _the_mean(mean: float) -> float:
    return mean


def _the_inverse(inverse: float) -> float:
    return inverse


MOMENTS = (Fold("mean", _element, add, _mean), Fold("inverse", _deviation, add, _inverse))
ROOT = (Fold("inverse", _square, add, _inverse),)
"""The reciprocal of a row's root mean square; `epsilon` is given."""


def normalized(
    shape: Sequence[int],
    axes: Sequence[int],
    operands: Mapping[str, Buffer],
    y: Buffer,
    form: Any,
    folds: Sequence[Fold],
    compute: np.dtype[Any],
    statistics: Sequence[tuple[Any, Buffer]] = (),
    **numbers: float,
) -> Launch:
    """Operands broadcast to `shape`; statistics are contiguous, one number a row."""
    order, kept, along = split(shape, axes)
    found = {name: permuted(buffer, shape, order) for name, buffer in operands.items()}
    results = [Result(form, permuted(y.view(shape), shape, order))]
    for function, buffer in statistics:
        rows = buffer.view((*kept, *[1] * len(along)))
        strides = tuple(0 if length == 1 else step for length, step in zip(rows.shape, rows.strides, strict=True))
        results.append(Result(function, Operand(buffer, strides), per_row=True))
    return reduce_rows(kept, along, found, folds, results, compute, **numbers)


def wide(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The dtype that statistics are computed in."""
    return F64 if dtype == F64 else F32


@cuda(layer_normalization)
def layer_norm_on_device(step: Step) -> Planned:
    """Mean and variance of the last axes."""
    x, scale, bias = step.input(0), step.input(1), step.optional_input(2)
    operands = {"x": x, "scale": scale} | ({"bias": bias} if bias is not None else {})
    statistics = [
        (function, step.output(index)) for index, function in ((1, _the_mean), (2, _the_inverse)) if step.is_used(index)
    ]
    axes = range(step.attributes["axis"] % len(x.shape), len(x.shape))
    form = _scaled if bias is None else _shifted
    y = step.output() if step.is_used(0) else step.temporary(x.dtype, x.shape)
    return normalized(
        x.shape, axes, operands, y, form, MOMENTS, wide(x.dtype), statistics, epsilon=step.attributes["epsilon"]
    )


@cuda(rms_normalization)
def rms_norm_on_device(step: Step) -> Planned:
    """The mean square of the last axes."""
    x, scale = step.input(0), step.input(1)
    axes = range(step.attributes["axis"] % len(x.shape), len(x.shape))
    operands = {"x": x, "scale": scale}
    return normalized(
        x.shape, axes, operands, step.output(), rooted, ROOT, wide(x.dtype), epsilon=step.attributes["epsilon"]
    )


@cuda(group_normalization, instance_normalization)
def group_norm_on_device(step: Step) -> Planned:
    """Mean and variance of groups of channels."""
    x, scale, bias = step.input(0), step.input(1), step.input(2)
    groups = step.attributes.get("num_groups", x.shape[1])
    shape = (x.shape[0], groups, x.shape[1] // groups, *x.shape[2:])
    channels = (groups, shape[2], *[1] * (len(x.shape) - 2))
    operands = {"x": x.view(shape), "scale": scale.view(channels), "bias": bias.view(channels)}
    axes = range(2, len(shape))
    return normalized(
        shape,
        axes,
        operands,
        step.output(),
        _shifted,
        MOMENTS,
        compute_dtype(x.dtype),
        epsilon=step.attributes["epsilon"],
    )


def _inverse_above(total: float, count: int) -> float:
    return 1 / (math.sqrt(total / count) + 1e-9)


@cuda(mean_variance_normalization)
def mean_variance_on_device(step: Step) -> Planned:
    """Zero mean and unit variance over any axes."""
    x = step.input(0)
    folds = (MOMENTS[0], Fold("inverse", _deviation, add, _inverse_above))
    return normalized(x.shape, step.attributes["axes"], {"x": x}, step.output(), _normal, folds, compute_dtype(x.dtype))


def _size(x: float) -> float:
    return abs(x)


def _root(total: float) -> float:
    return math.sqrt(total)


def _over(x: float, norm: float) -> float:
    return x / norm if norm != 0 else x * 0


@cuda(lp_normalization)
def lp_norm_on_device(step: Step) -> Planned:
    """Sums of absolute values or squares."""
    x, p = step.input(0), step.attributes["p"]
    fold = Fold("norm", _size, add) if p == 1 else Fold("norm", _square, add, _root)
    return normalized(
        x.shape, [step.attributes["axis"]], {"x": x}, step.output(), _over, [fold], compute_dtype(x.dtype)
    )


def _channel(x: float, scale: float, bias: float, mean: float, variance: float, epsilon: float) -> float:
    return (x - mean) / math.sqrt(variance + epsilon) * scale + bias


def _variance(total: float, count: int) -> float:
    return total / count


def _batch(x: float, mean: float, variance: float, scale: float, bias: float, epsilon: float) -> float:
    return (x - mean) / math.sqrt(variance + epsilon) * scale + bias


def _the_variance(variance: float) -> float:
    return variance


def _running(old: float, new: float, momentum: float) -> float:
    return old * momentum + new * (1 - momentum)


@cuda(batch_normalization)
def batch_norm_on_device(step: Step) -> Planned:
    """Given statistics, or those of the batch, which the running ones follow."""
    x = step.input(0)
    channels = x.shape[1] if len(x.shape) > 1 else 1
    along = (channels, *[1] * (len(x.shape) - 2))
    scale, bias, mean, variance = (step.input(index).view(along) for index in range(1, 5))
    compute = F64 if F64 in (x.dtype, mean.dtype) else F32
    epsilon = step.attributes["epsilon"]
    if not step.attributes["training_mode"]:
        return elementwise_chain(_channel, [x, scale, bias, mean, variance], step.output(), epsilon, compute=compute)
    now = [step.temporary(compute, (channels,)) for _ in range(2)]
    folds = (MOMENTS[0], Fold("variance", _deviation, add, _variance))
    axes = [axis for axis in range(len(x.shape)) if axis != 1]
    statistics = [(_the_mean, now[0]), (_the_variance, now[1])]
    operands = {"x": x, "scale": scale, "bias": bias}
    launches: list[Launch | Chain] = [
        normalized(x.shape, axes, operands, step.output(), _batch, folds, compute, statistics, epsilon=epsilon)
    ]
    for index, new in enumerate(now):
        if step.is_used(index + 1):
            y = step.output(index + 1)
            old = step.input(3 + index).view(y.shape)
            launches.append(
                Chain(
                    (
                        chain_step(
                            _running, [old, new.view(y.shape)], y.dtype, step.attributes["momentum"], compute=compute
                        ),
                    ),
                    y,
                )
            )
    return launches
