"""Native MatMulExperts: rows are grouped by the experts that they are sent to, so that a weight is read for several rows at once."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...runtime.kernel import RangeKernel, range_kernel
from ...runtime.launch import Buffer, Launch, Planned, Step, native
from ...runtime.native import i32, i64
from . import dot_kernel
from .dot_experts_kernel import expert_dots, most_tiles, slots_tiling
from .dot_panel_kernel import COLUMNS
from .linear_kernel import FEW, prepared, weight_of
from .matmul_experts import matmul_experts
from .rows_kernel import few
from .whole_kernel import RUN


def _ordering(pointer: Any) -> RangeKernel:
    @range_kernel
    def order(args: Any, part: Any, parts: Any) -> None:
        """Pairs of token and expert by their expert: ids, pairs, experts, where those of each expert begin and after two words end, the pairs, and
        refusal of experts that there are not. The first of the words is not used."""
        ids, pairs, experts, ends, order = pointer(args[0]), args[1], args[2], i64(args[3]), i64(args[4])
        for expert in range(experts + 1):
            ends[expert] = 0
        for pair in range(pairs):
            expert = ids[pair] + (experts if ids[pair] < 0 else 0)
            if 0 <= expert < experts:
                ends[expert + 1] += 1
            else:
                i64(args[5])[0] = 1
        for expert in range(experts):
            ends[expert + 1] += ends[expert]
        ends[experts + 1] = ends[experts]
        for pair in range(pairs - 1, -1, -1):
            expert = ids[pair] + (experts if ids[pair] < 0 else 0)
            if 0 <= expert < experts:
                ends[expert + 1] -= 1
                order[ends[expert + 1]] = pair

    return order


@range_kernel
def few_jobs(args: Any, part: Any, parts: Any) -> None:
    """Jobs for `rows_kernel.few`: experts, ends and pairs of `_ordering`, weight, bytes of an expert, x, bytes of a row of x, pairs of such a row, y,
    elements of a row of y, jobs, number of jobs, rows of a job."""
    experts, ends, order, weight, expert_bytes = args[0], i64(args[1]), i64(args[2]), args[3], args[4]
    x, x_bytes, each, y, y_row, jobs, number, batch = args[5], args[6], args[7], args[8], args[9], i64(args[10]), i64(args[11]), args[12]
    made = 0
    for expert in range(experts):
        stop = ends[expert + 2]
        for first in range(ends[expert + 1], stop, batch):
            job = made * (1 + 2 * batch)
            jobs[job] = weight + expert * expert_bytes
            for index in range(batch):
                pair = order[min(first + index, stop - 1)]
                jobs[job + 1 + index] = x + pair // each * x_bytes
                jobs[job + 1 + batch + index] = y + 4 * y_row * pair
            made += 1
    number[0] = made


@range_kernel
def tile_jobs(args: Any, part: Any, parts: Any) -> None:
    """Jobs and slots for `dot_experts_kernel`: as `few_jobs`, the number of tiles behind that of jobs; rows of a tile, and tables of x and y."""
    experts, ends, order, weight, expert_bytes = args[0], i64(args[1]), i64(args[2]), args[3], args[4]
    x, x_bytes, each, y, y_row, jobs, number, rows = args[5], args[6], args[7], args[8], args[9], i64(args[10]), i64(args[11]), args[12]
    from_, to = i64(args[13]), i64(args[14])
    made, slot = 0, 0
    for expert in range(experts):
        start, stop = ends[expert + 1], ends[expert + 2]
        if start == stop:
            continue
        jobs[3 * made], jobs[3 * made + 1], jobs[3 * made + 2] = weight + expert * expert_bytes, slot, stop - start
        made += 1
        for place in range(start, start + (stop - start + rows - 1) // rows * rows):
            pair = order[place] if place < stop else np.int64(0)
            from_[slot] = x + pair // each * x_bytes if place < stop else np.int64(0)
            to[slot] = y + 4 * y_row * pair
            slot += 1
    number[0], number[1] = made, slot // rows


ORDERINGS = {np.dtype(np.int64): _ordering(i64), np.dtype(np.int32): _ordering(i32)}
MANY = 8
"""Rows of an expert, on average, from which on its weight is decoded into panels."""


@native(matmul_experts)
def plan_experts(step: Step) -> Planned:
    """Activations of f32; one row of an expert at a time for a single token, up to `FEW` for more, tiles of them for prompts in 8 bits."""
    x, found, ids = step.inputs[0], weight_of(step), step.inputs[2]
    if x is None or ids is None or x.dtype != np.float32 or found is None or ids.dtype not in ORDERINGS:
        return None
    (name, row_bytes), weight, y = found, step.inputs[1], step.output()
    assert weight is not None
    experts, count = weight.shape[:2]
    length, pairs, chosen = x.shape[-1], ids.count, ids.shape[-1]
    rounding_wanted = step.attributes["activations"] == "q8"
    if rounding_wanted and length % RUN:
        return None
    ends, order, number = step.scratch(8 * (experts + 2)), step.scratch(8 * pairs), step.scratch(16)
    ordering = Launch(ORDERINGS[ids.dtype], (ids, pairs, experts, ends, order, step.refusal))
    sorted_pairs = (experts, ends, order, weight, count * row_bytes)
    each = 1 if step.attributes["each"] else chosen
    if rounding_wanted and pairs >= MANY * experts and dot_kernel.available(name):
        return [ordering, *_in_tiles(step, name, sorted_pairs, number, (x, each, y, pairs))]
    batch = 1 if pairs == chosen else FEW
    before, x, x_bytes, products = prepared(step, x, name)
    jobs = step.scratch(8 * pairs * (1 + 2 * batch))
    grouping = Launch(few_jobs, (*sorted_pairs, x, x_bytes, each, y, count, jobs, number, batch))
    parts = step.parts(pairs * count, 3 * math.prod((pairs, count, length)) / 16)
    kernel = few(name, batch, experts=True, products=products)
    return [*before, ordering, grouping, Launch(kernel, (jobs, jobs, number, 0, count, row_bytes, length, x, y), parts)]


def _in_tiles(step: Step, name: str, sorted_pairs: tuple[Any, ...], number: Buffer, rows_of: tuple[Buffer, int, Buffer, int]) -> list[Launch]:
    """Products of many rows as whole numbers; `rows_of` are x, pairs of one of its rows, y, and the pairs."""
    x, each, y, pairs = rows_of
    experts, *_, expert_bytes = sorted_pairs
    length, count, way = x.shape[-1], y.shape[-1], dot_kernel.taken(name)
    tiles, rows = most_tiles(name, way, pairs, experts), dot_kernel.tile_of(name, way).rows
    jobs, sources, targets = (step.scratch(8 * size) for size in (3 * experts, tiles * rows, tiles * rows))
    made = step.scratch(dot_kernel.tiles_nbytes(name, way, tiles * rows, length))
    parts = step.parts(-(-count // COLUMNS), pairs * count * length / 32)
    room = step.scratch(parts * dot_kernel.scratch_nbytes(name, way, pairs))
    given = (jobs, number, targets, made, count, expert_bytes // count, length, pairs, room)
    return [
        Launch(tile_jobs, (*sorted_pairs, x, 4 * length, each, y, count, jobs, number, rows, sources, targets)),
        Launch(slots_tiling(name, way), (sources, made, number.view((8,), 8), length), step.parts(tiles, pairs * length / 4)),
        Launch(expert_dots(name, way), given, parts),
    ]
