"""Native Pad: an index table per axis selects an input element or the fill value."""

# mypy: disable-error-code="untyped-decorator"
from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...runtime.jit.address import i64, share, u8, u16, u32, u64
from ...runtime.jit.kernel_arguments import Address, Words
from ...runtime.jit.range_kernel import RangeKernel, range_kernel
from ...runtime.plan.kernel_api import Buffer, Launch, Planned, Step, View, native
from ..kernels.strided_copy import COPIES
from .pad import MODES, pad, source_places

LONGEST_TABLE = 1 << 24
"""Positions of an axis from which listing them takes more memory and time than the kernel saves."""
LONGEST_ROW = 1 << 14
"""Positions of a row of several axes: one row has one table, and rows are shared among threads."""


def _mapping(pointer: Any) -> RangeKernel:
    @range_kernel
    def mapped(
        source: Address,
        target: Address,
        fill: Address,
        rows: int,
        count: int,
        table: Address,
        begin: int,
        end: int,
        place: int,
        outer: int,
        lengths: Words,
        tables: Words,
        part: int,
        parts: int,
    ) -> None:
        """Elements of rows by a table of offsets in the input, -1 for the fill; those from `begin` to `end` lie
        together, from `place` on.

        Outer dims, the last one first, have lengths and tables too.
        """
        source, target, fill = pointer(source), pointer(target), pointer(fill)[0]
        table = i64(table)
        first, last = share(rows, part, parts)
        for row in range(first, last):
            rest, base, inside = row, 0, True
            for axis in range(outer):
                length = lengths[axis]
                offset = i64(tables[axis])[rest % length]
                rest = rest // length
                inside = inside and offset >= 0
                base += offset
            to = row * count
            if not inside:
                for j in range(count):
                    target[to + j] = fill
                continue
            for j in range(begin):
                target[to + j] = source[base + table[j]] if table[j] >= 0 else fill
            for j in range(end - begin):
                target[to + begin + j] = source[base + place + j]
            for j in range(end, count):
                target[to + j] = source[base + table[j]] if table[j] >= 0 else fill

    return mapped


MAPPED = {1: _mapping(u8), 2: _mapping(u16), 4: _mapping(u32), 8: _mapping(u64)}


def _run(table: np.ndarray) -> tuple[int, int, int]:
    """The longest part of a table whose positions follow each other: begin, end, first position."""
    breaks = np.flatnonzero((np.diff(table) != 1) | (table[:-1] < 0)) + 1
    starts, stops = np.concatenate([[0], breaks]), np.concatenate([breaks, [len(table)]])
    longest = int(np.argmax(np.where(table[starts] >= 0, stops - starts, 0)))
    begin, end = int(starts[longest]), int(stops[longest])
    return (begin, end, int(table[begin])) if table[begin] >= 0 else (0, 0, 0)


def mapping(step: Step, x: Buffer, y: Buffer, places: Sequence[np.ndarray], fill: Buffer) -> Launch:
    """The launch that puts elements of `x`, by their positions along each axis (-1 for the fill), into `y`."""
    axes: list[tuple[np.ndarray, bool]] = []
    for table, length, stride in zip(places, x.shape, x.strides, strict=True):
        offsets = np.where(table < 0, -1, table * stride).astype(np.int64)
        whole = len(table) == length and bool((table == np.arange(length)).all())
        if (
            axes
            and whole
            and (axes[-1][1] or length == 1 or (stride == 1 and len(axes[-1][0]) * length <= LONGEST_ROW))
        ):
            before, whole = axes.pop()
            offsets = np.where(before[:, None] < 0, -1, before[:, None] + offsets[None, :]).reshape(-1)
        axes.append((offsets, whole))
    *outer, (table, _) = axes
    rows = math.prod(len(offsets) for offsets, _ in outer)
    tables = [step.constant_buffer(offsets) for offsets, _ in outer[::-1]]
    begin, end, place = _run(table)
    return Launch(
        MAPPED[x.dtype.itemsize],
        step.parts(rows, y.count * 0.7),
        source=x,
        target=y,
        fill=fill,
        rows=rows,
        count=len(table),
        table=step.constant_buffer(table),
        begin=begin,
        end=end,
        place=place,
        outer=len(outer),
        lengths=[len(offsets) for offsets, _ in outer[::-1]],
        tables=tables,
    )


@native(pad, empty=True)
def plan_pad(step: Step) -> Planned:
    """Plan pads that are known."""
    x, y = step.inputs[0], step.output()
    given, chosen = step.constant(1), step.constant(3)
    mode = step.attributes["mode"]
    if x is None or not x.count or not x.shape or x.dtype.itemsize not in COPIES or given is None or mode not in MODES:
        return None
    if chosen is None and len(step.inputs) > 3 and step.inputs[3] is not None:
        return None
    value = step.inputs[2] if len(step.inputs) > 2 else None
    if value is not None and (value.dtype != x.dtype or value.count != 1):
        return None
    if not given.any():
        return View(x)
    axes = [int(axis) % len(x.shape) for axis in (range(len(x.shape)) if chosen is None else chosen.reshape(-1))]
    pads = [int(item) for item in given.reshape(-1)]
    befores, afters = [0] * len(x.shape), [0] * len(x.shape)
    for index, axis in enumerate(axes):
        befores[axis], afters[axis] = pads[index], pads[index + len(axes)]
    lengths = tuple(length + before + after for length, before, after in zip(x.shape, befores, afters, strict=True))
    if lengths != y.shape or max(lengths) > LONGEST_TABLE:
        return None
    places = [
        source_places(mode, length, before, after)
        for length, before, after in zip(x.shape, befores, afters, strict=True)
    ]
    fill = value if value is not None else step.constant_buffer(np.zeros(1, x.dtype))
    return mapping(step, x, y, places, fill)
