"""Native Resize: nearest elements by index tables, or weighted sums along one axis after another."""

# mypy: disable-error-code="untyped-decorator"
from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...runtime.base.errors import Error
from ...runtime.base.process_cache import process_cache
from ...runtime.jit.address import i64, share
from ...runtime.jit.kernel_arguments import Address
from ...runtime.jit.range_kernel import RangeKernel, range_kernel
from ...runtime.plan.kernel_api import Buffer, Launch, Planned, Step, native
from ...runtime.simd.element import element
from ...runtime.simd.vector import stack_array
from ..cast.cast_kernel import conversion
from ..elementwise.elementwise_kernel import computed, floating
from ..kernels.strided_copy import COPIES
from ..shape.pad_kernel import LONGEST_TABLE, mapping
from .interpolation import FILTERS, NEAREST, POSITIONS, Axis, chosen, taps
from .resize import axes_to_resample, resize

WIDTH = 256
"""Elements that are computed at a time."""


@process_cache
def _kernel(dtype: np.dtype[Any]) -> RangeKernel:
    kind = element(dtype)
    assert kind is not None
    pointer, compute_type = kind.pointer, kind.compute_type

    @range_kernel(fastmath={"contract"})
    def weighted(
        x: Address,
        y: Address,
        stacks: int,
        length: int,
        after: int,
        columns: int,
        count: int,
        places: Address,
        weights: Address,
        part: int,
        parts: int,
    ) -> None:
        """Elements along an axis of a length before and after, of `count` taps each, whose positions and weights are
        [count, after]."""
        x, y = pointer(x), pointer(y)
        places, weights = i64(places), pointer(weights)
        total = stack_array(compute_type, 16)
        if columns == 1:
            blocks = (after + WIDTH - 1) // WIDTH
            first, last = share(stacks * blocks, part, parts)
            for unit in range(first, last):
                stack, begin = unit // blocks, unit % blocks * WIDTH
                width, base = min(WIDTH, after - begin), stack * length
                for j in range(width):
                    total[j] = compute_type(0)
                for tap in range(count):
                    table = tap * after + begin
                    for j in range(width):
                        total[j] += weights[table + j] * x[base + places[table + j]]
                for j in range(width):
                    y[stack * after + begin + j] = total[j]
            return
        blocks = (columns + WIDTH - 1) // WIDTH
        first, last = share(stacks * after * blocks, part, parts)
        for unit in range(first, last):
            row, begin = unit // blocks, unit % blocks * WIDTH
            stack, line, width = row // after, row % after, min(WIDTH, columns - begin)
            for j in range(width):
                total[j] = compute_type(0)
            for tap in range(count):
                weight, base = (
                    weights[tap * after + line],
                    (stack * length + places[tap * after + line]) * columns + begin,
                )
                for j in range(width):
                    total[j] += weight * x[base + j]
            for j in range(width):
                y[row * columns + begin + j] = total[j]

    return weighted


def _along(step: Step, x: Buffer, y: Buffer, dim: int, indices: np.ndarray, weights: np.ndarray) -> Launch:
    """Weighted sums along one axis; taps without weight are left out."""
    used = (weights != 0).any(0)
    places, factors = step.constant_buffer(indices[:, used].T), step.constant_buffer(weights[:, used].T.astype(x.dtype))
    stacks, columns, after = math.prod(x.shape[:dim]), math.prod(x.shape[dim + 1 :]), y.shape[dim]
    blocks = -(-after // WIDTH) if columns == 1 else after * -(-columns // WIDTH)
    return Launch(
        _kernel(x.dtype),
        step.parts(stacks * blocks, y.count * (1.0 + used.sum() / 2)),
        x=x,
        y=y,
        stacks=stacks,
        length=x.shape[dim],
        after=after,
        columns=columns,
        count=int(used.sum()),
        places=places,
        weights=factors,
    )


def _axes(step: Step, x: Buffer) -> dict[int, Axis] | None:
    """How axes are resampled, None where that is not known or wrong."""
    given = [step.constant(index) if index < len(step.inputs) else None for index in (1, 2, 3)]
    if any(
        known is None and index < len(step.inputs) and step.inputs[index] is not None
        for index, known in enumerate(given, 1)
    ):
        return None
    try:
        roi, scales, sizes = given
        return axes_to_resample(
            x.shape, roi, scales, sizes, step.attributes["axes"], step.attributes["keep_aspect_ratio_policy"]
        )
    except Error:
        return None


def _as_numbers(step: Step, x: Buffer, made: list[Any]) -> Buffer:
    """A buffer in the dtype that it is computed in, which a launch in `made` fills where it is another one."""
    if computed(x.dtype) == x.dtype:
        return x
    wide = step.scratch(x.count * computed(x.dtype).itemsize).view(x.shape, dtype=computed(x.dtype))
    made.append(conversion(x, wide))
    return wide


@native(resize, empty=True)
def plan_resize(step: Step) -> Planned:
    """Plan known scales or sizes; NumPy computes crops and weighted sums of integers."""
    x, y = step.inputs[0], step.output()
    asked = step.attributes
    mode = "linear" if asked["mode"] == "bilinear" else asked["mode"]
    crops = (
        asked["coordinate_transformation_mode"] not in POSITIONS
        or asked["coordinate_transformation_mode"] == "tf_crop_and_resize"
    )
    axes = None if x is None or crops or not x.count else _axes(step, x)
    if (
        x is None
        or axes is None
        or any(axis.out != y.shape[dim] for dim, axis in axes.items())
        or max(y.shape) > LONGEST_TABLE
    ):
        return None
    place = chosen(POSITIONS, asked["coordinate_transformation_mode"], "coordinate_transformation_mode")
    moved = {dim: axis for dim, axis in axes.items() if axis.scale != 1 or axis.out != axis.size}
    positions = {dim: np.asarray(place(np.arange(axis.out, dtype=np.float32), axis)) for dim, axis in moved.items()}
    if mode == "nearest" and x.dtype.itemsize in COPIES and asked["nearest_mode"] in NEAREST:
        tables = [np.arange(length) for length in x.shape]
        for dim, axis in moved.items():
            tables[dim] = np.clip(NEAREST[asked["nearest_mode"]](positions[dim]), 0, axis.size - 1).astype(np.int64)
        return mapping(step, x, y, tables, step.constant_buffer(np.zeros(1, x.dtype)))
    if mode not in FILTERS or not floating(x.dtype) or not moved:
        return None
    made: list[Any] = []
    seen = _as_numbers(step, x, made)
    order = sorted(moved, key=lambda dim: moved[dim].out / moved[dim].size)
    for dim in order:
        shape = (*seen.shape[:dim], moved[dim].out, *seen.shape[dim + 1 :])
        direct = dim == order[-1] and seen.dtype == y.dtype
        target = y if direct else step.scratch(math.prod(shape) * seen.dtype.itemsize).view(shape, dtype=seen.dtype)
        found = taps(
            positions[dim],
            moved[dim],
            mode,
            asked["cubic_coeff_a"],
            bool(asked["antialias"]),
            bool(asked["exclude_outside"]),
        )
        made.append(_along(step, seen, target, dim, *found))
        seen = target
    if seen is not y:
        made.append(conversion(seen, y))
    return made
