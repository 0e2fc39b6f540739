"""Native layer, RMS, group and instance normalization: statistics of each row, then scale and shift."""

# mypy: disable-error-code="untyped-decorator"
from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...runtime.base.dataclass import dataclass
from ...runtime.base.process_cache import process_cache
from ...runtime.jit.address import share
from ...runtime.jit.kernel_arguments import Address
from ...runtime.jit.range_kernel import RangeKernel, inlined, range_kernel
from ...runtime.plan.kernel_api import Buffer, Planned, Step, native
from ...runtime.plan.kernel_api import Launch as Launched
from ...runtime.simd.element import ELEMENTS, Element, element
from ...runtime.simd.reduce import add, along
from ...runtime.simd.vector import stack_array
from ..cast.cast_kernel import conversion
from .group_norm import group_normalization, instance_normalization
from .layer_norm import layer_normalization, rms_normalization
from .scaled_row import scaled_elements, scaled_groups


@inlined
def _element(x: Any, mean: Any, j: Any) -> Any:
    return x[j]


@inlined
def _square(x: Any, mean: Any, j: Any) -> Any:
    return (x[j] - mean) * (x[j] - mean)


@process_cache
def _kernel(dtype: np.dtype[Any], grouped: bool) -> RangeKernel:
    kind = element(dtype)
    assert kind is not None
    return _normalizing(kind, scaled_groups(kind) if grouped else scaled_elements(kind))


def _normalizing(kind: Element, scaled: Any) -> RangeKernel:
    pointer, numbers = kind.pointer, kind.compute_pointer
    read, written, real = kind.widen, kind.narrow, kind.compute_type
    total, squares = along(_element, real, np.float64, 0, add), along(_square, real, np.float64, 0, add)
    stored, nbytes = kind.stored, np.dtype(kind.compute_type).itemsize

    @range_kernel(fastmath={"contract"}, unroll=False)
    def normalized(
        source: Address,
        target: Address,
        rows: int,
        count: int,
        centred: int,
        epsilon: float,
        scales: Address,
        shifts: Address,
        entries: int,
        period: int,
        mean_of_rows: Address,
        inverse_of_rows: Address,
        residuals: Address,
        biases: Address,
        totals: Address,
        repeat: int,
        scratch: Address,
        part: int,
        parts: int,
    ) -> None:
        """Rows of `count` elements, from which the mean is taken off where they are `centred`.

        There are so many entries of scales and shifts for a row, which repeat after `period` rows, residuals after
        `repeat` rows; totals are sums with residuals and biases. Addresses of what is absent are 0.
        """
        x = pointer(source)
        means, inverses = numbers(mean_of_rows), numbers(inverse_of_rows)
        residual, bias, sums = pointer(residuals), numbers(biases), pointer(totals)
        spare = scratch + part * count * nbytes
        lanes = stack_array(real, 4)
        first, last = share(rows, part, parts)
        for row in range(first, last):
            base = row * count
            place = source + base * nbytes
            if residuals != 0 or not stored:
                place = spare
                line = numbers(spare)
                if residuals != 0:
                    other = row % repeat * count
                    for j in range(count):
                        line[j] = read(x[base + j]) + read(residual[other + j])
                else:
                    for j in range(count):
                        line[j] = read(x[base + j])
                if biases != 0:
                    for j in range(count):
                        line[j] += bias[j]
                if totals != 0:
                    for j in range(count):
                        sums[base + j] = written(line[j])
            line = numbers(place)
            mean = real(0)
            if centred != 0:
                mean = real(total(line, mean, count, lanes) / count)
            inverse = real(1 / math.sqrt(squares(line, mean, count, lanes) / count + epsilon))
            if mean_of_rows != 0:
                means[row] = mean
            if inverse_of_rows != 0:
                inverses[row] = inverse
            begin = row % period * entries
            scaled(place, target, base, count, entries, begin, scales, shifts, mean, inverse)

    return normalized


def _numbers(step: Step, buffer: Buffer | None, dtype: np.dtype[Any], before: list[Any]) -> Buffer | int:
    """A scale or a shift as numbers of `dtype`, which launches in `before` make where it is not known; 0 for none."""
    if buffer is None or buffer.dtype == dtype:
        return buffer if buffer is not None else 0
    index = step.inputs.index(buffer)
    if step.is_constant(index):
        return step.packed(index, ("numbers", dtype.name), lambda array: array.astype(dtype))
    made = step.scratch(buffer.count * dtype.itemsize).view(buffer.shape, dtype=dtype)
    before.append(conversion(buffer, made))
    return made


@dataclass(frozen=True)
class Normalization:
    """Normalization of rows of `count` elements, then scale and shift.

    Attributes:
        centred: whether the mean is subtracted first.
        entries: of scale and shift for a row, as many as elements where 0; they repeat after `period` rows.
        statistics, total: which outputs take the mean, the reciprocal deviation, and the sum with the residual.
        residual, bias: added before the statistics are taken; a residual may repeat as a whole.
    """

    count: int
    scale: Buffer
    shift: Buffer | None = None
    centred: bool = True
    entries: int = 0
    period: int = 1
    statistics: Sequence[int | None] = (None, None)
    residual: Buffer | None = None
    bias: Buffer | None = None
    total: int | None = None


def normalize(step: Step, x: Buffer, norm: Normalization) -> Planned:
    """Launches that normalize the rows of `x` into the first output."""
    kind, y = element(x.dtype), step.output()
    if (
        kind is None
        or kind.compute_type not in ELEMENT_OF
        or y.dtype != x.dtype
        or (norm.residual is not None and norm.residual.dtype != x.dtype)
    ):
        return None
    dtype, count = np.dtype(kind.compute_type), norm.count
    entries = norm.entries or count
    lengths = ((norm.scale, entries * norm.period), (norm.shift, entries * norm.period), (norm.bias, count))
    if any(item is not None and item.count != length for item, length in lengths):
        return None
    statistics = [step.output(index) if index is not None and step.is_used(index) else 0 for index in norm.statistics]
    if any(isinstance(item, Buffer) and item.dtype != dtype for item in statistics):
        return None
    launches: list[Any] = []
    scales, shifts, biases = (_numbers(step, item, dtype, launches) for item in (norm.scale, norm.shift, norm.bias))
    rows = x.count // count
    parts = step.parts(rows, x.count * 1.0)
    copied = norm.residual is not None or not kind.stored
    launches.append(
        Launched(
            _kernel(x.dtype, entries < count),
            parts,
            source=x,
            target=y,
            rows=rows,
            count=count,
            centred=int(norm.centred),
            epsilon=step.attributes["epsilon"],
            scales=scales,
            shifts=shifts,
            entries=entries,
            period=norm.period,
            mean_of_rows=statistics[0],
            inverse_of_rows=statistics[1],
            residuals=0 if norm.residual is None else norm.residual,
            biases=biases,
            totals=step.output(norm.total) if norm.total is not None and step.is_used(norm.total) else 0,
            repeat=norm.residual.count // count if norm.residual is not None else 1,
            scratch=step.scratch(parts * count * dtype.itemsize) if copied else 0,
        ).changed(in_place=[(x, y)] if entries < count and x.dtype == np.float32 else [])
    )
    return launches


ELEMENT_OF: dict[Any, Element] = {np.float32: ELEMENTS["float32"], np.float64: ELEMENTS["float64"]}
"""Compute type -> its storage."""


def over_last_axes(step: Step, *, centred: bool, statistics: Sequence[int | None] = (None, None)) -> Planned:
    """Launches for a node with input, scale, shift and the attribute `axis`; scales of all elements of a row, or of
    one."""
    x, scale = step.inputs[:2]
    shift = step.inputs[2] if len(step.inputs) > 2 else None
    if x is None or scale is None or not step.is_used(0):
        return None
    count = math.prod(x.shape[step.attributes["axis"] % len(x.shape) :])
    entries = 1 if scale.count == 1 and shift is None else 0
    return normalize(
        step, x, Normalization(count, scale, shift, centred=centred, entries=entries, statistics=statistics)
    )


@native(layer_normalization)
def plan_layer(step: Step) -> Planned:
    """Plan layer norm; the mean and the reciprocal deviation are outputs too."""
    return over_last_axes(step, centred=True, statistics=(1, 2))


@native(rms_normalization)
def plan_rms(step: Step) -> Planned:
    """Plan RMS norm, which subtracts no mean."""
    return over_last_axes(step, centred=False)


@native(instance_normalization, group_normalization)
def plan_channels(step: Step) -> Planned:
    """Plan norms of each channel, or group of channels, of each image."""
    x, scale, shift = step.inputs
    if x is None or scale is None or shift is None or len(x.shape) < 3:
        return None
    groups = step.attributes.get("num_groups", x.shape[1])
    if groups < 1 or x.shape[1] % groups:
        return None
    count = x.count // (x.shape[0] * groups)
    return normalize(step, x, Normalization(count, scale, shift, entries=x.shape[1] // groups, period=groups))
