"""Attention within concatenated sequences.

A block of queries becomes a panel, and keys are rows: scores [keys, QUERIES] have a query in each lane, so that the
softmax needs no sums within a vector.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ....runtime.jit.address import f32, i64
from ....runtime.jit.kernel_arguments import Address
from ....runtime.jit.range_kernel import inner, range_kernel
from ....runtime.simd.memory import exp16, load_f32, load_masked, maximum, store_f32, store_masked
from ....runtime.simd.transpose import load_columns
from ....runtime.simd.vector import LANES, splat
from ..gemm.microkernel_f32 import ROWS, column_of_tiles
from ..gemm.register_tile import PANEL

QUERIES = PANEL
"""Queries of a block."""
VECTOR = 4 * LANES
"""Bytes of a vector."""
LINE = 4 * PANEL
"""Bytes of a line of a panel."""


class PackedTokens(NamedTuple):
    """Queries, keys, values and outputs f32 [tokens, heads x size]: addresses and bytes of a row."""

    q: Address
    q_row: int
    k: Address
    k_row: int
    v: Address
    v_row: int
    y: Address
    y_row: int


class PackedProblem(NamedTuple):
    """Lengths of an attention within sequences.

    Attributes:
        ends, sequences: the index after the last token of each sequence, i64 [sequences].
        size, width: of a head's keys and values.
    """

    tokens: int
    heads: int
    groups: int
    size: int
    width: int
    ends: Address
    sequences: int
    scale: float


def scratch_nbytes(tokens: int, size: int, width: int) -> int:
    """Scratch bytes of a part: sums, a panel of queries, scores, values, and a tile."""
    deep, panels = -(-size // LANES) * LANES, -(-width // PANEL)
    return 4 * PANEL * (1 + deep + tokens + panels * tokens + ROWS)


@inner
def _pack_queries(source: Any, row: Any, count: Any, size: Any, scale: Any, target: Any) -> None:
    """Rows times `scale` as a panel [size, PANEL], zeros after the last row. The panel has room for whole vectors of a
    row."""
    for first in range(0, PANEL, LANES):
        rows = max(0, min(LANES, count - first))
        for j in range(0, size, LANES):
            lanes = (1 << min(LANES, size - j)) - 1
            place = target + 4 * first + j * LINE
            load_columns(source + first * row + 4 * j, row, place, LINE, rows, lanes)
    for j in range(0, size * LINE, VECTOR):
        store_f32(target + j, load_f32(target + j) * scale)


@inner
def _pack_values(source: Any, row: Any, count: Any, width: Any, target: Any) -> None:
    """Rows as panels [panels, count, PANEL], zeros after the last column."""
    for j in range(0, (width + PANEL - 1) // PANEL * PANEL, LANES):
        column = target + (j // PANEL * count * PANEL + j % PANEL) * 4
        lanes = (1 << max(0, min(LANES, width - j))) - 1
        for i in range(count):
            store_f32(column + i * LINE, load_masked(source + i * row + 4 * j, lanes))


@inner
def _softmax_columns(scores: Any, count: Any, sums: Any) -> None:
    """Replace a column of `count` scores in each lane by exp(score - maximum), and store the sums of these."""
    most = load_f32(scores)
    for i in range(1, count):
        most = maximum(most, load_f32(scores + i * LINE))
    total = splat(np.float32(0))
    for i in range(count):
        power = exp16(load_f32(scores + i * LINE) - most)
        store_f32(scores + i * LINE, power)
        total = total + power
    store_f32(sums, total)


@inner
def _scale_row(row: Any, width: Any, factor: Any) -> None:
    whole = width - width % LANES
    for j in range(0, whole, LANES):
        store_f32(row + 4 * j, load_f32(row + 4 * j) * factor)
    if whole < width:
        lanes = (1 << (width - whole)) - 1
        store_masked(row + 4 * whole, load_masked(row + 4 * whole, lanes) * factor, lanes)


@range_kernel
def attend_packed(
    rows: PackedTokens,
    problem: PackedProblem,
    zero: Address,
    bailout: Address,
    scratch: Address,
    scratch_step: int,
    part: int,
    parts: int,
) -> None:
    """Outputs of all queries. Sets `bailout` unless the ends ascend and are at most the number of tokens."""
    tokens, heads, groups, size, width = problem.tokens, problem.heads, problem.groups, problem.size, problem.width
    ends, sequences = i64(problem.ends), problem.sequences
    q, q_row, k, k_row, v, v_row, y, y_row = (
        rows.q, rows.q_row, rows.k, rows.k_row, rows.v, rows.v_row, rows.y, rows.y_row,
    )  # fmt: skip
    deep, panels = (size + LANES - 1) // LANES * LANES, (width + PANEL - 1) // PANEL
    minus, infinite, scale = np.float32(-np.inf), np.float32(np.inf), np.float32(problem.scale)
    sums = scratch + part * scratch_step
    packed_q = sums + LINE
    scores = packed_q + deep * LINE
    packed_v = scores + tokens * LINE
    spare = packed_v + panels * tokens * LINE
    unit, begin = np.int64(0), np.int64(0)
    for sequence in range(sequences + 1):
        end = ends[sequence] if sequence < sequences else np.int64(tokens)
        if end < begin or end > tokens:
            i64(bailout)[0] = 1
            return
        count = end - begin
        if count == 0:
            continue
        for head in range(heads):
            unit += 1
            if unit % parts != part:
                continue
            group = head // (heads // groups)
            _pack_values(v + begin * v_row + group * 4 * width, v_row, count, width, packed_v)
            for first in range(begin, end, QUERIES):
                queries = min(np.int64(QUERIES), end - first)
                wide = LANES if queries <= LANES else PANEL
                _pack_queries(q + first * q_row + head * 4 * size, q_row, queries, size, scale, packed_q)
                column_of_tiles(
                    k + begin * k_row + group * 4 * size,
                    k_row,
                    4,
                    packed_q,
                    size,
                    scores,
                    LINE,
                    0,
                    count,
                    wide,
                    zero,
                    0,
                    zero,
                    minus,
                    infinite,
                    spare,
                )
                for lane in range(0, wide, LANES):
                    _softmax_columns(scores + 4 * lane, count, sums + 4 * lane)
                output = y + first * y_row + head * 4 * width
                for panel in range(panels):
                    column_of_tiles(
                        scores,
                        4,
                        LINE,
                        packed_v + panel * count * LINE,
                        count,
                        output + panel * LINE,
                        y_row,
                        0,
                        queries,
                        min(PANEL, width - panel * PANEL),
                        zero,
                        0,
                        zero,
                        minus,
                        infinite,
                        spare,
                    )
                for i in range(queries):
                    _scale_row(output + i * y_row, width, np.float32(1) / f32(sums)[i])
        begin = end
