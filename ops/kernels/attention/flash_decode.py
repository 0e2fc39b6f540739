"""Decode attention: few queries over a long KV cache that is read once, in blocks of keys that are then combined."""

# mypy: disable-error-code="untyped-decorator"
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ....runtime.base.process_cache import process_cache
from ....runtime.jit.address import f32, share, u8
from ....runtime.jit.kernel_arguments import Address
from ....runtime.jit.range_kernel import RangeKernel, inner, range_kernel
from ....runtime.simd.branchless_math import exp
from ....runtime.simd.memory import F32_CODE, load_one, narrow, widen
from ....runtime.simd.vector import LANES
from .grouped_heads import KEYS, query_key_dots, weighted_sums
from .q8_0_rows import CHUNK, Q8_0_CODE, widen_rows
from .score_row import BOOL_MASK, NO_MASK, AttentionArguments, HeadRows, key_count, softmax_row, visible_keys


def _products(kind: int) -> Callable[..., None]:
    """Products of queries with keys of a kind, of any size; blocks are dequantized into `spare`."""
    if kind == Q8_0_CODE:
        dots = query_key_dots(F32_CODE)

        @inner
        def of_blocks(
            keys: Any, step: Any, count: Any, queries: Any, rows: Any, size: Any, scores: Any, spare: Any
        ) -> None:
            for j in range(0, count, CHUNK):
                some = min(CHUNK, count - j)
                widen_rows(keys + j * step, step, some, spare, size)
                dots(spare, 4 * size, some, queries, rows, size, scores + 4 * j)

        return of_blocks
    whole_vectors, width = query_key_dots(kind), 4 if kind == F32_CODE else 2

    @inner
    def products(keys: Any, step: Any, count: Any, queries: Any, rows: Any, size: Any, scores: Any, spare: Any) -> None:
        whole_vectors(keys, step, count, queries, rows, size, scores)
        for row in range(rows):
            line, query = f32(scores + 4 * KEYS * row), f32(queries + 4 * size * row)
            for k in range(size - size % LANES, size):
                for j in range(count):
                    line[j] += query[k] * load_one(kind, keys + j * step + k * width)

    return products


def _value_sums(kind: int) -> Callable[..., None]:
    """Sums of values of a kind times their powers, of any size; blocks are dequantized into `spare`."""
    if kind == Q8_0_CODE:
        mixed = weighted_sums(F32_CODE)

        @inner
        def of_blocks(
            values: Any, step: Any, count: Any, powers: Any, rows: Any, size: Any, sums: Any, spare: Any
        ) -> None:
            for j in range(0, count, CHUNK):
                some = min(CHUNK, count - j)
                widen_rows(values + j * step, step, some, spare, size)
                mixed(spare, 4 * size, some, powers + 4 * j, rows, size, sums)

        return of_blocks
    whole_vectors, width = weighted_sums(kind), 4 if kind == F32_CODE else 2

    @inner
    def add_values(
        values: Any, step: Any, count: Any, powers: Any, rows: Any, size: Any, sums: Any, spare: Any
    ) -> None:
        whole_vectors(values, step, count, powers, rows, size, sums)
        for row in range(rows):
            line, made = f32(powers + 4 * KEYS * row), f32(sums + 4 * size * row)
            for k in range(size - size % LANES, size):
                for j in range(count):
                    made[k] += line[j] * load_one(kind, values + j * step + k * width)

    return add_values


@inner
def _is_hidden(form: Any, mask: Any, key: Any) -> Any:
    return u8(mask)[key] == 0 if form == BOOL_MASK else f32(mask)[key] == np.float32(-np.inf)


@inner
def _trim_masks(
    form: Any, mask: Any, head_step: Any, heads: Any, row_step: Any, queries: Any, lowest: Any, highest: Any
) -> Any:
    """The range of keys without those at its ends that no query sees."""
    first, last = highest, lowest
    for head in range(heads if head_step != 0 else 1):
        for query in range(queries if row_step != 0 else 1):
            line = mask + head * head_step + query * row_step
            begin, end = lowest, highest
            while begin < first and _is_hidden(form, line, begin):
                begin += 1
            while end > last and _is_hidden(form, line, end - 1):
                end -= 1
            first, last = min(first, begin), max(last, end)
    return first, last


@process_cache
def decode_kernel(key_kind: int, value_kind: int) -> RangeKernel:
    """The kernel for keys and values of two dtypes: code for one is a third of that for all."""
    products, add_values = _products(key_kind), _value_sums(value_kind)

    @range_kernel(unroll=False)
    def decode_blocks(
        query_rows: HeadRows,
        key_rows: HeadRows,
        value_rows: HeadRows,
        problem: AttentionArguments,
        partial: Address,
        scratch: Address,
        spare: int,
        part: int,
        parts: int,
    ) -> None:
        """Sums over blocks of keys for all queries, into `partial`; `spare`: elements to dequantize into."""
        q, q_kind, q_batch, q_head, q_row = (
            query_rows.at,
            query_rows.kind,
            query_rows.batch,
            query_rows.head,
            query_rows.row,
        )
        k, k_batch, k_head, k_row = key_rows.at, key_rows.batch, key_rows.head, key_rows.row
        v, v_batch, v_head, v_row = value_rows.at, value_rows.batch, value_rows.head, value_rows.row
        batch, heads, groups, queries, keys = (
            problem.batch,
            problem.heads,
            problem.groups,
            problem.queries,
            problem.keys,
        )
        size, width = problem.size, problem.width
        mask, form, mask_batch, mask_head = problem.mask, problem.form, problem.mask_batch, problem.mask_head
        mask_row, masked, lengths, length_width = (
            problem.mask_row,
            problem.masked,
            problem.lengths,
            problem.length_width,
        )
        more, before, causal, left, right = problem.more, problem.before, problem.causal, problem.left, problem.right
        scale, softcap = np.float32(problem.scale), np.float32(problem.softcap)
        each = heads // groups
        rows, blocks = each * queries, (keys + KEYS - 1) // KEYS
        f32_queries = scratch + part * 4 * (rows * (size + KEYS) + spare)
        scores = f32_queries + 4 * rows * size
        dequantized = scores + 4 * rows * KEYS
        for unit in range(part, batch * groups * blocks, parts):
            block, group, image = unit % blocks, unit // blocks % groups, unit // blocks // groups
            length = key_count(lengths, length_width, more, keys, image)
            offset = before if lengths == 0 else length - queries
            made = partial + unit * 4 * rows * (width + 2)
            tops, totals = f32(made + 4 * rows * width), f32(made + 4 * rows * (width + 1))
            begin: Any = block * KEYS
            lowest, highest = np.int64(keys), np.int64(0)
            for row in range(rows):
                tops[row], totals[row] = np.float32(-np.inf), np.float32(0)
                first, last = visible_keys(offset + row % queries, length, causal, left, right)
                lowest, highest = min(lowest, first), max(highest, last)
            lowest, highest = max(lowest, begin), min(highest, begin + KEYS)
            if highest <= lowest:
                continue
            if form != NO_MASK:
                reach = mask + image * mask_batch + group * each * mask_head
                lowest, highest = _trim_masks(
                    form, reach, mask_head, each, mask_row, queries, lowest, min(highest, np.int64(masked))
                )
                if highest <= lowest:
                    continue
            count = highest - lowest
            for row in range(rows):
                head, query = group * each + row // queries, row % queries
                widen(
                    q_kind,
                    q + image * q_batch + head * q_head + query * q_row,
                    f32_queries + 4 * size * row,
                    size,
                    scale,
                )
            key = k + image * k_batch + group * k_head + lowest * k_row
            products(key, k_row, count, f32_queries, rows, size, scores, dequantized)
            for row in range(rows):
                head, query = group * each + row // queries, row % queries
                first, last = visible_keys(offset + query, length, causal, left, right)
                line = (
                    mask + image * mask_batch + head * mask_head + query * mask_row + lowest * (1 if form == 1 else 4)
                )
                top, power = softmax_row(
                    scores + 4 * KEYS * row,
                    count,
                    first - lowest,
                    min(last, highest) - lowest,
                    softcap,
                    form,
                    line,
                    masked - lowest,
                    np.float32(-np.inf),
                )
                tops[row], totals[row] = top, power
            sums = f32(made)
            for j in range(rows * width):
                sums[j] = np.float32(0)
            value = v + image * v_batch + group * v_head + lowest * v_row
            add_values(value, v_row, count, scores, rows, width, made, dequantized)

    return decode_blocks


@range_kernel(unroll=False)
def combine_blocks(output_rows: HeadRows, problem: AttentionArguments, partial: Address, part: int, parts: int) -> None:
    """Combine the partial results of `decode_kernel`, with the same arguments."""
    y, y_kind, y_batch, y_head, y_row = (
        output_rows.at,
        output_rows.kind,
        output_rows.batch,
        output_rows.head,
        output_rows.row,
    )
    batch, heads, groups, queries, keys = problem.batch, problem.heads, problem.groups, problem.queries, problem.keys
    width, sink, sink_kind = problem.width, problem.sink, problem.sink_kind
    each = heads // groups
    rows, blocks = each * queries, (keys + KEYS - 1) // KEYS
    first, last = share(batch * groups * rows, part, parts)
    for unit in range(first, last):
        row, group, image = unit % rows, unit // rows % groups, unit // rows // groups
        head, query = group * each + row // queries, row % queries
        place = partial + (unit // rows) * blocks * 4 * rows * (width + 2)
        step = 4 * rows * (width + 2)
        most, whole = np.float32(-np.inf), np.float32(0)
        if sink != 0:
            most = load_one(sink_kind, sink + head * (4 if sink_kind == 0 else 2))
        alone = most
        for block in range(blocks):
            top = f32(place + block * step + 4 * rows * width)[row]
            most = top if top > most or top != top else most
        if most > np.float32(-np.inf) and sink != 0:
            whole = exp(alone - most)
        sums = f32(place + 4 * width * row)
        started = False
        for block in range(blocks):
            top = f32(place + block * step + 4 * rows * width)[row]
            if top == np.float32(-np.inf):
                continue
            factor = exp(top - most)
            whole += factor * f32(place + block * step + 4 * rows * (width + 1))[row]
            other = f32(place + block * step + 4 * width * row)
            if started or block > 0:
                for j in range(width):
                    sums[j] = (sums[j] if started else np.float32(0)) + factor * other[j]
            else:
                for j in range(width):
                    sums[j] = factor * other[j]
            started = True
        to = y + image * y_batch + head * y_head + query * y_row
        if not started:
            for j in range(width):
                sums[j] = np.float32(0)
        narrow(
            y_kind,
            place + 4 * width * row,
            to,
            width,
            np.float32(1) / whole if whole != np.float32(0) else np.float32(0),
        )
