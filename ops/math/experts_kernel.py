"""Native MatMulExperts: rows are grouped by the experts that they are sent to, so that a weight is read for several rows at once."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...runtime.kernel import RangeKernel, range_kernel
from ...runtime.launch import Launch, Planned, Step, native
from ...runtime.native import i32, i64
from .linear_kernel import FEW, prepared, weight_of
from .matmul_experts import matmul_experts
from .rows_kernel import few
from .whole_kernel import RUN


def _grouping(pointer: Any) -> RangeKernel:
    @range_kernel
    def group(args: Any, part: Any, parts: Any) -> None:
        """Jobs for `rows_kernel.few`: ids, pairs of token and expert, experts, weight, bytes of an expert, x, bytes of a row of x, pairs of such a
        row, y, elements of a row of y, jobs, number of jobs, rows of a job, scratch, refusal of experts that there are not."""
        ids, pairs, experts, weight, expert_bytes = pointer(args[0]), args[1], args[2], args[3], args[4]
        x, x_bytes, each, y, y_row, jobs, number, batch = args[5], args[6], args[7], args[8], args[9], i64(args[10]), i64(args[11]), args[12]
        ends, order = i64(args[13]), i64(args[13] + 8 * (experts + 1))
        for expert in range(experts + 1):
            ends[expert] = 0
        for pair in range(pairs):
            expert = ids[pair] + (experts if ids[pair] < 0 else 0)
            if 0 <= expert < experts:
                ends[expert + 1] += 1
            else:
                i64(args[14])[0] = 1
        for expert in range(experts):
            ends[expert + 1] += ends[expert]
        total = ends[experts]
        for pair in range(pairs - 1, -1, -1):
            expert = ids[pair] + (experts if ids[pair] < 0 else 0)
            if 0 <= expert < experts:
                ends[expert + 1] -= 1
                order[ends[expert + 1]] = pair
        made = 0
        for expert in range(experts):
            start = ends[expert + 1]
            stop = ends[expert + 2] if expert + 1 < experts else total
            for first in range(start, stop, batch):
                job = made * (1 + 2 * batch)
                jobs[job] = weight + expert * expert_bytes
                for index in range(batch):
                    pair = order[min(first + index, stop - 1)]
                    jobs[job + 1 + index] = x + pair // each * x_bytes
                    jobs[job + 1 + batch + index] = y + 4 * y_row * pair
                made += 1
        number[0] = made

    return group


GROUPINGS = {np.dtype(np.int64): _grouping(i64), np.dtype(np.int32): _grouping(i32)}


@native(matmul_experts)
def plan_experts(step: Step) -> Planned:
    """Activations of f32; one row of an expert at a time for a single token, up to `FEW` for more."""
    x, found, ids = step.inputs[0], weight_of(step), step.inputs[2]
    if x is None or ids is None or x.dtype != np.float32 or found is None or ids.dtype not in GROUPINGS:
        return None
    (name, row_bytes), weight, y = found, step.inputs[1], step.output()
    assert weight is not None
    experts, count = weight.shape[:2]
    length, pairs, chosen = x.shape[-1], ids.count, ids.shape[-1]
    batch = 1 if pairs == chosen else FEW
    if step.attributes["activations"] == "q8" and length % RUN:
        return None
    before, x, x_bytes, products = prepared(step, x, name)
    jobs, number = step.scratch(8 * pairs * (1 + 2 * batch)), step.scratch(8)
    scratch = step.scratch(8 * (experts + 1 + pairs))
    grouped = (
        ids, pairs, experts, weight, count * row_bytes, x, x_bytes, 1 if step.attributes["each"] else chosen, y, count, jobs, number, batch, scratch,
        step.refusal,
    )
    parts = step.parts(pairs * count, 3 * math.prod((pairs, count, length)) / 16)
    kernel = few(name, batch, experts=True, products=products)
    return [*before, Launch(GROUPINGS[ids.dtype], grouped), Launch(kernel, (jobs, jobs, number, 0, count, row_bytes, length, x, y), parts)]
