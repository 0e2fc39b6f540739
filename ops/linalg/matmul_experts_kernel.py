"""Native MatMulExperts: rows are grouped by expert, so that each weight is read once for all its rows."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...runtime.jit.address import i32, i64
from ...runtime.jit.kernel_arguments import Address
from ...runtime.jit.range_kernel import RangeKernel, range_kernel
from ...runtime.plan.kernel_api import Buffer, Launch, Planned, Step, native
from ..kernels.gemm import packed_gemm
from ..kernels.gemm.dispatch import rounding_variant
from ..kernels.gemm.gemv import gemv
from ..kernels.gemm.gemv_int8 import RUN
from ..kernels.gemm.grouped_gemm import grouped_gemm, max_tiles, pack_slots
from ..kernels.gemm.panel import COLUMNS
from .linear_kernel import MAX_GEMV_ROWS, prepare_rows, stored_weight
from .matmul_experts import matmul_experts


def _ordering(pointer: Any) -> RangeKernel:
    @range_kernel
    def order(
        ids: Address, pairs: int, experts: int, ends: Address, order: Address, bailout: Address, part: int, parts: int
    ) -> None:
        """Sort pairs of token and expert by expert: the pairs of expert e are ``order[ends[e + 1] : ends[e + 2]]``. An
        expert out of range sets the word at `refusal`."""
        ids, ends, order = pointer(ids), i64(ends), i64(order)
        for expert in range(experts + 1):
            ends[expert] = 0
        for pair in range(pairs):
            expert = ids[pair] + (experts if ids[pair] < 0 else 0)
            if 0 <= expert < experts:
                ends[expert + 1] += 1
            else:
                i64(bailout)[0] = 1
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
def gemv_jobs(
    experts: int,
    ends: Address,
    order: Address,
    weight: Address,
    expert_bytes: int,
    x: Address,
    x_bytes: int,
    each: int,
    y: Address,
    y_row: int,
    jobs: Address,
    number: Address,
    batch: int,
    part: int,
    parts: int,
) -> None:
    """Jobs of `batch` rows for `gemv`, from what `_ordering` makes: `each` pairs have a row of x, `y_row` is
    elements of a row of y."""
    ends, order, jobs, number = i64(ends), i64(order), i64(jobs), i64(number)
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
def tile_jobs(
    experts: int,
    ends: Address,
    order: Address,
    weight: Address,
    expert_bytes: int,
    x: Address,
    x_bytes: int,
    each: int,
    y: Address,
    y_row: int,
    jobs: Address,
    number: Address,
    rows: int,
    sources: Address,
    targets: Address,
    part: int,
    parts: int,
) -> None:
    """Jobs and slots for `grouped_gemm`, like `gemv_jobs`; also writes the number of tiles of `rows` rows, and the
    tables of x and y."""
    ends, order, jobs, number = i64(ends), i64(order), i64(jobs), i64(number)
    from_, to = i64(sources), i64(targets)
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
MIN_TILED_ROWS = 8
"""Average rows per expert from which weights are decoded into panels."""


@native(matmul_experts)
def plan_experts(step: Step) -> Planned:
    """Plan f32 activations: GEMV of one row per expert for a single token, of up to `MAX_GEMV_ROWS` rows for more
    tokens, and grouped GEMM for prompts with 8-bit activations."""
    x, weight_type, ids = step.inputs[0], stored_weight(step), step.inputs[2]
    if x is None or ids is None or x.dtype != np.float32 or weight_type is None or ids.dtype not in ORDERINGS:
        return None
    (name, row_bytes), weight, y = weight_type, step.inputs[1], step.output()
    assert weight is not None
    experts, count = weight.shape[:2]
    length, pairs, chosen = x.shape[-1], ids.count, ids.shape[-1]
    int8_activations = step.attributes["activations"] == "q8"
    if int8_activations and length % RUN:
        return None
    ends, order, number = step.scratch(8 * (experts + 2)), step.scratch(8 * pairs), step.scratch(16)
    ordering = Launch(
        ORDERINGS[ids.dtype], ids=ids, pairs=pairs, experts=experts, ends=ends, order=order, bailout=step.bailout
    )
    sorted_pairs = {
        "experts": experts,
        "ends": ends,
        "order": order,
        "weight": weight,
        "expert_bytes": count * row_bytes,
    }
    each = 1 if step.attributes["each"] else chosen
    variant = rounding_variant(name) if int8_activations and pairs >= MIN_TILED_ROWS * experts else None
    if variant is not None:
        return [ordering, *_quantized_gemm(step, name, variant, sorted_pairs, number, (x, each, y, pairs))]
    batch = 1 if pairs == chosen else MAX_GEMV_ROWS
    before, x, x_bytes, products = prepare_rows(step, x, name, step.attributes["activations"])
    jobs = step.scratch(8 * pairs * (1 + 2 * batch))
    grouping = Launch(
        gemv_jobs,
        **sorted_pairs,
        x=x,
        x_bytes=x_bytes,
        each=each,
        y=y,
        y_row=count,
        jobs=jobs,
        number=number,
        batch=batch,
    )
    parts = step.parts(pairs * count, 3 * math.prod((pairs, count, length)) / 16)
    kernel = gemv(name, batch, experts=True, products=products)
    return [
        *before,
        ordering,
        grouping,
        Launch(kernel, parts, jobs=jobs, number=number, x=x, y=y, count=count, row_bytes=row_bytes, length=length),
    ]


def _quantized_gemm(
    step: Step,
    name: str,
    variant: str,
    sorted_pairs: dict[str, Any],
    number: Buffer,
    rows_of: tuple[Buffer, int, Buffer, int],
) -> list[Launch]:
    """Grouped quantized GEMM; `rows_of` are x, pairs per row of x, y, and the number of pairs."""
    x, each, y, pairs = rows_of
    length, count = x.shape[-1], y.shape[-1]
    tiles, rows = (
        max_tiles(name, variant, pairs, sorted_pairs["experts"]),
        packed_gemm.tile_layout(name, variant).rows,
    )
    jobs, sources, targets = (
        step.scratch(8 * size) for size in (3 * sorted_pairs["experts"], tiles * rows, tiles * rows)
    )
    made = step.scratch(packed_gemm.tiles_nbytes(name, variant, tiles * rows, length))
    parts = step.parts(-(-count // COLUMNS), pairs * count * length / 32)
    scratch = step.scratch(parts * packed_gemm.scratch_nbytes(name, variant, pairs))
    tiling_parts = step.parts(tiles, pairs * length / 4)
    return [
        Launch(
            tile_jobs,
            **sorted_pairs,
            x=x,
            x_bytes=4 * length,
            each=each,
            y=y,
            y_row=count,
            jobs=jobs,
            number=number,
            rows=rows,
            sources=sources,
            targets=targets,
        ),
        Launch(
            pack_slots(name, variant),
            tiling_parts,
            table=sources,
            target=made,
            number=number.view((8,), 8),
            length=length,
        ),
        Launch(
            grouped_gemm(name, variant),
            parts,
            jobs=jobs,
            number=number,
            table=targets,
            tiles=made,
            count=count,
            row_bytes=sorted_pairs["expert_bytes"] // count,
            length=length,
            max_rows=pairs,
            scratch=scratch,
        ),
    ]
