"""Prefill attention: blocks of queries over blocks of keys with a running softmax (Dao et al. 2022, arXiv:2205.14135).

Keys and values are packed into panels first, widened to f32; products are those of `tile_kernel`.
"""

# mypy: disable-error-code="untyped-decorator"
from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ....runtime.jit.address import f32, i32, share
from ....runtime.jit.kernel_arguments import Address
from ....runtime.jit.range_kernel import inner, range_kernel
from ....runtime.simd.branchless_math import exp
from ....runtime.simd.memory import load_f32, load_one, narrow, store_f32, widen
from ....runtime.simd.vector import LANES
from ..gemm.microkernel_f32 import ROWS, column_of_tiles
from ..gemm.register_tile import PANEL
from .q8_0_rows import BLOCK_LENGTH, BLOCK_NBYTES, Q8_0_CODE, load_quantized, widen_blocks
from .score_row import BOOL_MASK, AttentionArguments, HeadRows, key_count, softmax_row, trim_mask, visible_keys

QUERIES = 48
"""Queries of a block."""
KEYS = 256
"""Keys of a block."""


class Grid(NamedTuple):
    """Rows and columns of the grid in which keys lie, none for keys without a grid. After a query's elements stand the
    biases of rows, then those of columns."""

    rows: int = 0
    columns: int = 0

    @property
    def fills_vectors(self) -> bool:
        """Whether a vector of scores has keys of one row."""
        return self.columns > 0 and self.columns % LANES == 0


@inner
def _add_grid(grid: Any, biases: Any, begin: Any, count: Any, scores: Any) -> None:
    """Add the biases of rows and columns to `count` scores of a query, from key `begin` on."""
    row, column = begin // grid.columns, begin % grid.columns
    by_column = biases + 4 * grid.rows
    for at in range(scores, scores + 4 * count, 4 * LANES):
        store_f32(at, load_f32(at) + (load_f32(by_column + 4 * column) + f32(biases)[row]))
        column += LANES
        if column == grid.columns:
            row, column = row + 1, 0


@inner
def _column_major(kind: Any, source: Any, row: Any, count: Any, size: Any, target: Any) -> None:
    """`count` rows as the columns of a panel, zeros after them."""
    packed = f32(target)
    width = 4 if kind == 0 else 2
    for j in range(count):
        line = source + j * row
        if kind == Q8_0_CODE:
            for k in range(size):
                packed[k * PANEL + j] = load_quantized(line, k)
            continue
        for k in range(size):
            packed[k * PANEL + j] = load_one(kind, line + k * width)
    for j in range(count, PANEL):
        for k in range(size):
            packed[k * PANEL + j] = np.float32(0)


@inner
def _visible_end(problem: Any, image: Any) -> Any:
    """The index after the last key that any query of a sequence sees; all keys without a boolean mask."""
    if problem.form != BOOL_MASK:
        return np.int64(problem.keys)
    found = np.int64(0)
    for head in range(problem.heads if problem.mask_head != 0 else 1):
        for query in range(problem.queries if problem.mask_row != 0 else 1):
            line = problem.mask + image * problem.mask_batch + head * problem.mask_head + query * problem.mask_row
            _, last = trim_mask(line, found, np.int64(problem.masked))
            found = max(found, last)
    return found


@range_kernel
def pack_keys(
    rows: HeadRows,
    target: Address,
    problem: AttentionArguments,
    batch: int,
    heads: int,
    keys: int,
    size: int,
    part: int,
    parts: int,
) -> None:
    """Keys as panels [batch, heads, panels, size, PANEL], without those that no query sees at the end."""
    source, kind, batch_step, head_step, row = rows.at, rows.kind, rows.batch, rows.head, rows.row
    count = (keys + PANEL - 1) // PANEL
    first, last = share(batch * heads * count, part, parts)
    known, end = np.int64(-1), np.int64(0)
    for unit in range(first, last):
        panel, head, image = unit % count, unit // count % heads, unit // count // heads
        if image != known:
            known, end = np.int64(image), _visible_end(problem, image)
        if panel * PANEL >= end:
            continue
        start = source + image * batch_step + head * head_step + panel * PANEL * row
        _column_major(kind, start, row, min(PANEL, keys - panel * PANEL), size, target + unit * size * PANEL * 4)


@range_kernel
def pack_values(
    rows: HeadRows,
    target: Address,
    problem: AttentionArguments,
    batch: int,
    heads: int,
    keys: int,
    size: int,
    part: int,
    parts: int,
) -> None:
    """Values as panels [batch, heads, key blocks, panels, KEYS, PANEL], without those that no query sees at the end."""
    source, kind, batch_step, head_step, row = rows.at, rows.kind, rows.batch, rows.head, rows.row
    count, panels = (keys + KEYS - 1) // KEYS, (size + PANEL - 1) // PANEL
    width = 4 if kind == 0 else 2
    known, end = np.int64(-1), np.int64(0)
    first, last = share(batch * heads * count, part, parts)
    for unit in range(first, last):
        block, head, image = unit % count, unit // count % heads, unit // count // heads
        if image != known:
            known, end = np.int64(image), _visible_end(problem, image)
        rest: Any = end - block * KEYS
        for j in range(min(KEYS, rest)):
            line = source + image * batch_step + head * head_step + (block * KEYS + j) * row
            for panel in range(panels):
                to = target + ((unit * panels + panel) * KEYS + j) * PANEL * 4
                wide = min(PANEL, size - panel * PANEL)
                if kind == Q8_0_CODE:
                    widen_blocks(line + panel * PANEL // BLOCK_LENGTH * BLOCK_NBYTES, to, wide)
                else:
                    widen(kind, line + panel * PANEL * width, to, wide, np.float32(1))
                for column in range(wide, PANEL):
                    f32(to)[column] = np.float32(0)


@range_kernel(unroll=False)
def prefill_blocks(
    query_rows: HeadRows,
    output_rows: HeadRows,
    problem: AttentionArguments,
    grid: Grid,
    packed_k: Address,
    packed_v: Address,
    zero: Address,
    scratch: Address,
    part: int,
    parts: int,
) -> None:
    """Outputs of queries from packed keys and values; keys of a grid, which fills vectors, are all visible."""
    q, q_kind, q_batch, q_head, q_row = (
        query_rows.at,
        query_rows.kind,
        query_rows.batch,
        query_rows.head,
        query_rows.row,
    )
    y, y_kind, y_batch, y_head, y_row = (
        output_rows.at,
        output_rows.kind,
        output_rows.batch,
        output_rows.head,
        output_rows.row,
    )
    batch, heads, groups, queries, keys = problem.batch, problem.heads, problem.groups, problem.queries, problem.keys
    size, width, sink, sink_kind = problem.size, problem.width, problem.sink, problem.sink_kind
    mask, form, mask_batch, mask_head = problem.mask, problem.form, problem.mask_batch, problem.mask_head
    mask_row, masked, lengths, length_width = problem.mask_row, problem.masked, problem.lengths, problem.length_width
    more, before, causal, left, right = problem.more, problem.before, problem.causal, problem.left, problem.right
    scale, softcap = np.float32(problem.scale), np.float32(problem.softcap)
    panels_k, blocks_v = (keys + PANEL - 1) // PANEL, (keys + KEYS - 1) // KEYS
    panels_v, key_size = (width + PANEL - 1) // PANEL, size - grid.rows - grid.columns
    wide = panels_v * PANEL
    query = scratch + part * 4 * (QUERIES * (size + KEYS + 2 * wide + 4) + ROWS * PANEL)
    scores = query + 4 * QUERIES * size
    product = scores + 4 * QUERIES * KEYS
    sums = product + 4 * QUERIES * wide
    tops = f32(sums + 4 * QUERIES * wide)
    totals = f32(sums + 4 * QUERIES * (wide + 1))
    sights = i32(sums + 4 * QUERIES * (wide + 2))
    spare = sums + 4 * QUERIES * (wide + 4)
    count = (queries + QUERIES - 1) // QUERIES
    minus, infinite = np.float32(-np.inf), np.float32(np.inf)
    for unit in range(part, batch * heads * count, parts):
        image, head, start = (
            unit % (batch * heads) // heads,
            unit % heads,
            (count - 1 - unit // (batch * heads)) * QUERIES,
        )
        rows = min(QUERIES, queries - start)
        group = image * groups + head // (heads // groups)
        length = key_count(lengths, length_width, more, keys, image)
        offset = before if lengths == 0 else length - queries
        lowest: Any = np.int64(keys)
        highest: Any = np.int64(0)
        for i in range(rows):
            widen(q_kind, q + image * q_batch + head * q_head + (start + i) * q_row, query + 4 * size * i, size, scale)
            first, last = visible_keys(offset + start + i, length, causal, left, right)
            if form == BOOL_MASK:
                last = max(first, min(last, masked))
                first, last = trim_mask(
                    mask + image * mask_batch + head * mask_head + (start + i) * mask_row, first, last
                )
            sights[2 * i], sights[2 * i + 1] = first, last
            if first < last:  # of a query that sees no key, the range may lie after all packed values
                lowest, highest = min(lowest, first), max(highest, last)
            tops[i], totals[i] = minus, np.float32(0)
            if sink != 0:
                tops[i] = load_one(sink_kind, sink + head * (4 if sink_kind == 0 else 2))
                totals[i] = np.float32(1) if tops[i] > minus else np.float32(0)
            for j in range(0, wide, LANES):
                store_f32(sums + 4 * (wide * i + j), load_f32(zero))
        for block in range(lowest // KEYS, (highest + KEYS - 1) // KEYS):
            begin = block * KEYS
            depth = min(KEYS, highest - begin)
            for panel in range((depth + PANEL - 1) // PANEL):
                column_of_tiles(
                    query,
                    4 * size,
                    4,
                    packed_k + (group * panels_k + begin // PANEL + panel) * key_size * PANEL * 4,
                    key_size,
                    scores + panel * PANEL * 4,
                    4 * KEYS,
                    0,
                    rows,
                    PANEL,
                    zero,
                    0,
                    zero,
                    minus,
                    infinite,
                    spare,
                )
            for i in range(rows):
                first, last = np.int64(sights[2 * i]), np.int64(sights[2 * i + 1])
                line = (
                    mask
                    + image * mask_batch
                    + head * mask_head
                    + (start + i) * mask_row
                    + begin * (1 if form == 1 else 4)
                )
                if grid.columns != 0:
                    _add_grid(grid, query + 4 * (size * i + key_size), begin, depth, scores + 4 * KEYS * i)
                top, power = softmax_row(
                    scores + 4 * KEYS * i,
                    depth,
                    first - begin,
                    last - begin,
                    softcap,
                    form,
                    line,
                    masked - begin,
                    tops[i],
                )
                factor = _rescale(tops[i], top)
                tops[i], totals[i] = top, totals[i] * factor + power
                if factor != np.float32(1):
                    for j in range(0, wide, LANES):
                        place = sums + 4 * (wide * i + j)
                        store_f32(place, load_f32(place) * factor)
            for panel in range(panels_v):
                column_of_tiles(
                    scores,
                    4 * KEYS,
                    4,
                    packed_v + ((group * blocks_v + block) * panels_v + panel) * KEYS * PANEL * 4,
                    depth,
                    product + panel * PANEL * 4,
                    4 * wide,
                    0,
                    rows,
                    PANEL,
                    zero,
                    0,
                    zero,
                    minus,
                    infinite,
                    spare,
                )
            for j in range(0, rows * wide, LANES):
                store_f32(sums + 4 * j, load_f32(sums + 4 * j) + load_f32(product + 4 * j))
        for i in range(rows):
            part_of_one = np.float32(1) / totals[i] if totals[i] != np.float32(0) else np.float32(0)
            narrow(
                y_kind,
                sums + 4 * wide * i,
                y + image * y_batch + head * y_head + (start + i) * y_row,
                width,
                part_of_one,
            )


@inner
def _rescale(before: Any, after: Any) -> Any:
    """The factor of running sums when the largest score changes from `before` to `after`."""
    if before == after:
        return np.float32(1)
    return exp(before - after) if before > np.float32(-np.inf) else np.float32(0)
