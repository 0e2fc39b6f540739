"""Native normalization of rows: LayerNormalization and its relatives over the last axes, others over channels or groups of them."""

# mypy: disable-error-code="untyped-decorator"
from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...runtime.element import ELEMENTS, Element, element
from ...runtime.kernel import RangeKernel, range_kernel
from ...runtime.launch import Buffer, Planned, Step, native
from ...runtime.launch import Launch as Launched
from ...runtime.native import number, share
from ...runtime.simd import room
from ..contrib.norm import simplified_layer_normalization, skip_layer_normalization, skip_simplified_layer_normalization
from ..math.cast_kernel import conversion
from ..reduce.lanes_kernel import along, plain, plus, square
from .group_norm import group_normalization, instance_normalization
from .layer_norm import layer_normalization, rms_normalization


@functools.cache
def _kernel(dtype: np.dtype[Any]) -> RangeKernel:
    kind = element(dtype)
    assert kind is not None
    return _normalizing(kind)


def _normalizing(kind: Element) -> RangeKernel:
    pointer, numbers, read, written, real = kind.pointer, kind.pointer_to_numbers, kind.read, kind.written, kind.number
    wide = ELEMENT_OF[kind.number]
    total = along(wide.read, real, np.float64, 0, plain, plus)
    squares = along(wide.read, real, np.float64, 0, square, plus)
    stored, nbytes = kind.stored, np.dtype(kind.number).itemsize

    @range_kernel(fastmath={"contract"})
    def normalized(args: Any, part: Any, parts: Any) -> None:
        """From, to, rows, elements of a row, whether the mean is taken off, epsilon; scale and shift with their entries for a row and the rows
        after which they repeat; mean, reciprocal deviation; residual, bias, sum, rows after which the residual repeats, scratch.

        Addresses of what is absent are 0.
        """
        x, y, rows, count, centred, epsilon = pointer(args[0]), pointer(args[1]), args[2], args[3], args[4], number(args[5])
        scale, shift, entries, period = numbers(args[6]), numbers(args[7]), args[8], args[9]
        means, inverses = numbers(args[10]), numbers(args[11])
        residual, bias, sums, repeat = pointer(args[12]), numbers(args[13]), pointer(args[14]), args[15]
        spare = args[16] + part * count * nbytes
        lanes = room(real, 4)
        length = count // entries
        first, last = share(rows, part, parts)
        for row in range(first, last):
            base = row * count
            place = args[0] + base * nbytes
            if args[12] != 0 or not stored:
                place = spare
                line = numbers(spare)
                if args[12] != 0:
                    other = row % repeat * count
                    for j in range(count):
                        line[j] = read(x[base + j]) + read(residual[other + j])
                else:
                    for j in range(count):
                        line[j] = read(x[base + j])
                if args[13] != 0:
                    for j in range(count):
                        line[j] += bias[j]
                if args[14] != 0:
                    for j in range(count):
                        sums[base + j] = written(line[j])
            line = numbers(place)
            mean = real(0)
            if centred != 0:
                mean = real(total(line, 0, count, mean, lanes) / count)
            inverse = real(1 / math.sqrt(squares(line, 0, count, mean, lanes) / count + epsilon))
            if args[10] != 0:
                means[row] = mean
            if args[11] != 0:
                inverses[row] = inverse
            begin = row % period * entries
            if length == 1 and args[7] != 0:
                for j in range(count):
                    y[base + j] = written((line[j] - mean) * inverse * scale[begin + j] + shift[begin + j])
            elif length == 1:
                for j in range(count):
                    y[base + j] = written((line[j] - mean) * inverse * scale[begin + j])
            else:
                for entry in range(entries):
                    factor = inverse * scale[begin + entry]
                    added = shift[begin + entry] - mean * factor if args[7] != 0 else -mean * factor
                    for j in range(entry * length, entry * length + length):
                        y[base + j] = written(line[j] * factor + added)

    return normalized


def _numbers(step: Step, buffer: Buffer | None, dtype: np.dtype[Any], before: list[Any]) -> Buffer | int:
    """A scale or a shift as numbers of `dtype`, which launches in `before` make where it is not known; 0 for none."""
    if buffer is None or buffer.dtype == dtype:
        return buffer if buffer is not None else 0
    index = step.inputs.index(buffer)
    if step.known(index):
        return step.packed(index, ("numbers", dtype.name), lambda array: array.astype(dtype))
    made = step.scratch(buffer.count * dtype.itemsize).view(buffer.shape, dtype=dtype)
    before.append(conversion(buffer, made))
    return made


def normalize(
    step: Step, x: Buffer, count: int, scale: Buffer, shift: Buffer | None, *, centred: bool = True, entries: int = 0, period: int = 1,
    statistics: Sequence[int | None] = (None, None), residual: Buffer | None = None, bias: Buffer | None = None, total: int | None = None,
) -> Planned:
    """Launches that normalize rows of `count` elements.

    Args:
        entries: of scale and shift for a row, as many as elements where 0; they repeat after `period` rows.
        statistics, total: which outputs take the mean, the reciprocal deviation, and the sum with the residual.
    """
    kind, y = element(x.dtype), step.output()
    if kind is None or kind.number not in ELEMENT_OF or y.dtype != x.dtype or (residual is not None and residual.dtype != x.dtype):
        return None
    dtype = np.dtype(kind.number)
    entries = entries or count
    if any(item is not None and item.count != length for item, length in ((scale, entries * period), (shift, entries * period), (bias, count))):
        return None
    taken = [step.output(index) if index is not None and step.wanted(index) else 0 for index in statistics]
    if any(isinstance(item, Buffer) and item.dtype != dtype for item in taken):
        return None
    before: list[Any] = []
    weights = [_numbers(step, item, dtype, before) for item in (scale, shift)]
    added = _numbers(step, bias, dtype, before)
    rows = x.count // count
    parts = step.parts(rows, x.count * 1.0)
    spare = step.scratch(parts * count * dtype.itemsize) if residual is not None or not kind.stored else 0
    whole = step.output(total) if total is not None and step.wanted(total) else 0
    repeat = residual.count // count if residual is not None else 1
    arguments = (
        x, y, rows, count, int(centred), float(step.attributes["epsilon"]), *weights, entries, period, *taken,
        residual if residual is not None else 0, added, whole, repeat, spare,
    )
    before.append(Launched(_kernel(x.dtype), arguments, parts))
    return before


ELEMENT_OF: dict[Any, Element] = {np.float32: ELEMENTS["float32"], np.float64: ELEMENTS["float64"]}
"""How numbers that are computed with are stored."""


@native(layer_normalization, rms_normalization, simplified_layer_normalization)
def plan_layer(step: Step) -> Planned:
    """Scales of all elements of a row, or of one."""
    x, scale = step.inputs[:2]
    shift = step.inputs[2] if len(step.inputs) > 2 else None
    if x is None or scale is None or not step.wanted(0):
        return None
    count = math.prod(x.shape[step.attributes["axis"] % len(x.shape) :])
    operator = step.node.op
    statistics = (1, 2) if operator is layer_normalization else (None, 1) if operator is simplified_layer_normalization else (None, None)
    entries = 1 if scale.count == 1 and shift is None else 0
    return normalize(step, x, count, scale, shift, centred=operator is layer_normalization, entries=entries, statistics=statistics)


@native(skip_layer_normalization, skip_simplified_layer_normalization)
def plan_skip(step: Step) -> Planned:
    """Residuals of the input's shape, or that repeat as a whole."""
    given = [*step.inputs, *[None] * (5 - len(step.inputs))]
    centred = step.node.op is skip_layer_normalization
    x, residual, scale = given[:3]
    shift, bias = (given[3], given[4]) if centred else (None, given[3])
    if x is None or residual is None or scale is None or not step.wanted(0) or (not centred and step.wanted(1)):
        return None
    tail = residual.shape[next((axis for axis, length in enumerate(residual.shape) if length != 1), len(residual.shape)) :]
    if len(tail) > len(x.shape) or x.shape[len(x.shape) - len(tail) :] != tail or residual.count % x.shape[-1]:
        return None
    return normalize(
        step, x, x.shape[-1], scale, shift, centred=centred, statistics=(1 if centred else None, 2), residual=residual, bias=bias, total=3,
    )


@native(instance_normalization, group_normalization)
def plan_channels(step: Step) -> Planned:
    """Each channel, or group of channels, of each image is a row."""
    x, scale, shift = step.inputs
    if x is None or scale is None or shift is None or len(x.shape) < 3:
        return None
    groups = step.attributes.get("num_groups", x.shape[1])
    if groups < 1 or x.shape[1] % groups:
        return None
    count = x.count // (x.shape[0] * groups)
    return normalize(step, x, count, scale, shift, entries=x.shape[1] // groups, period=groups)
