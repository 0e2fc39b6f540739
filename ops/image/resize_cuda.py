"""Resize on the device: one axis after another, by tables of source indices and weights."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...runtime.cuda.element.element import compute_dtype
from ...runtime.cuda.kernel.elementwise import copy_launch, elementwise_chain, unchanged
from ...runtime.cuda.kernel.kernel import Launch
from ...runtime.cuda.kernel.operand import Lookup, Operand, over
from ...runtime.cuda.kernel.reduce import Result, reduce_rows
from ...runtime.cuda.plan.kernel_api import Planned, Step, cuda
from ...runtime.plan.kernel_api import Buffer, Chain, View
from ...runtime.plan.rows import Fold, add
from ..elementwise.unary import _round as to_even
from .interpolation import NEAREST, POSITIONS, taps
from .resize import axes_to_resample, resize


def _product(x: float, weight: float) -> float:
    return x * weight


def _sum(total: float) -> float:
    return total


def _chosen(x: float, value: float, outside: bool) -> float:
    return value if outside else x


def _whole(x: float, low: float, high: float) -> float:
    found = to_even(x)
    return low if found < low else high if found > high else found


def _along(rank: int, dim: int, stride: int = 1) -> tuple[int, ...]:
    return tuple(stride if axis == dim else 0 for axis in range(rank))


def nearest(step: Step, x: Buffer, target: Buffer, dim: int, places: np.ndarray) -> Launch:
    """One axis by a table of indices."""
    strides = tuple(0 if axis == dim else item for axis, item in enumerate(x.strides))
    table = Lookup(
        step.constant_buffer(places.astype(np.int64)), _along(len(x.shape), dim), x.strides[dim], x.shape[dim]
    )
    return copy_launch(target.shape, Operand(x, strides, lookups=(table,)), over(target, target.shape))


def weighted(
    step: Step, x: Buffer, target: Buffer, dim: int, indices: np.ndarray, weights: np.ndarray, compute: np.dtype[Any]
) -> Launch:
    """One axis by sums of a few elements; `indices` and `weights` are [out, taps]."""
    rank, count = len(x.shape), indices.shape[1]
    strides = (*(0 if axis == dim else item for axis, item in enumerate(x.strides)), 0)
    table = Lookup(
        step.constant_buffer(indices.astype(np.int64)), (*_along(rank, dim, count), 1), x.strides[dim], x.shape[dim]
    )
    operands = {
        "x": Operand(x, strides, lookups=(table,)),
        "weight": Operand(step.constant_buffer(weights.astype(compute)), (*_along(rank, dim, count), 1)),
    }
    result = Result(_sum, Operand(target, (*target.strides, 0)), per_row=True)
    return reduce_rows(target.shape, [count], operands, [Fold("total", _product, add)], [result], compute)


@cuda(resize)
def resize_on_device(step: Step) -> Planned:
    """Plan regions, scales and sizes that are known."""
    x, attributes = step.input(0), step.attributes
    given = [step.constant(index) for index in (1, 2, 3)]
    if any(
        item is None and step.optional_input(index) is not None and step.input(index).count
        for index, item in enumerate(given, 1)
    ):
        return "its scales or sizes are not constants"
    mode = "linear" if attributes["mode"] == "bilinear" else attributes["mode"]
    plan = axes_to_resample(
        x.shape, given[0], given[1], given[2], attributes["axes"], attributes["keep_aspect_ratio_policy"]
    )
    place = POSITIONS[attributes["coordinate_transformation_mode"]]
    crops = attributes["coordinate_transformation_mode"] == "tf_crop_and_resize"
    wide = (
        x.dtype
        if mode == "nearest" or x.dtype == np.float32
        else np.dtype(np.float64 if x.dtype.itemsize > 2 else np.float32)
    )
    launches: list[Launch | Chain] = []
    now, outside = x, []
    for dim, axis in sorted(plan.items(), key=lambda item: item[1].out / max(1, item[1].size)):
        if axis.scale == 1 and axis.out == axis.size and (not crops or (axis.start, axis.end) == (0, 1)):
            continue
        position = np.asarray(place(np.arange(axis.out, dtype=np.float32), axis))
        if crops:
            outside.append((dim, (position < 0) | (position > axis.size - 1)))
        target = step.temporary(wide, (*now.shape[:dim], axis.out, *now.shape[dim + 1 :]))
        if mode == "nearest":
            near = np.clip(NEAREST[attributes["nearest_mode"]](position), 0, axis.size - 1)
            launches.append(nearest(step, now, target, dim, near))
        else:
            found = taps(
                position,
                axis,
                mode,
                attributes["cubic_coeff_a"],
                bool(attributes["antialias"]),
                bool(attributes["exclude_outside"]),
            )
            launches.append(weighted(step, now, target, dim, *found, compute_dtype(wide)))
        now = target
    if not launches:
        return View(x)
    y = step.output()
    if y.dtype.kind in "iu" and wide != y.dtype:
        bounds = np.iinfo(y.dtype)
        launches.append(elementwise_chain(_whole, [now], y, bounds.min, bounds.max))
    else:
        launches.append(elementwise_chain(unchanged, [now], y))
    for dim, mask in outside:
        if mask.any():
            shape = mask.reshape(-1, *(1,) * (len(y.shape) - 1 - dim))
            value = step.constant_buffer(np.asarray(attributes["extrapolation_value"]).astype(y.dtype))
            launches.append(
                elementwise_chain(_chosen, [y, value, step.constant_buffer(shape)], y, compute=compute_dtype(y.dtype))
            )
    return launches
