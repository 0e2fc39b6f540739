"""SparseAttention on the device: the block pattern becomes a mask of visible keys for flash attention."""

from __future__ import annotations

import numpy as np

from ....runtime.cuda.kernel.kernel import Launch
from ....runtime.cuda.kernel.per_thread import per_thread_launch
from ....runtime.cuda.plan.kernel_api import Planned, Step, cuda
from ....runtime.plan.kernel_api import Argument, Chain
from ...attention.attention_cuda import KeyVisibility, Scoring, attended, in_heads
from .append_kv_cache_cuda import behind, cached
from .group_query_attention_cuda import F32, INT64, parts_of, rotated_heads
from .sparse_attention import sparse_attention

WHY = "SparseAttention: its lengths or its sparsity pattern contradict its caches"
CHECKED = """
    first = np.int64(totals[i]) - length
    if np.int64(longest[0]) == length:
        first = np.int64(0)
    if first < 0 or first + length > room or first + length > blocks * block:
        wrong[0] = 1
        first = np.int64(0)
    starts[i] = first
    counts[i] = first + length
"""
TABLE = """
    layout, row = i // blocks, i % blocks
    for at in range(blocks):
        table[i * blocks + at] = 0
    first, last = np.int64(rows[layout * (blocks + 1) + row]), np.int64(rows[layout * (blocks + 1) + row + 1])
    if first < 0 or last < first or last > columns_of_layout or (row == 0 and first != 0):
        wrong[0] = 1
        last = first
    for at in range(first, last):
        column = np.int64(columns[layout * columns_of_layout + at])
        if 0 <= column < blocks:
            table[i * blocks + column] = 1
        else:
            wrong[0] = 1
"""
SEEN = """
    key, rest = i % room, i // room
    query, rest = rest % length, rest // length
    head, image = rest % heads, rest // heads
    row, column = (starts[image] + query) // block, key // block
    seen[i] = 0
    if row < blocks and column < blocks:
        seen[i] = table[(head % layouts * blocks + row) * blocks + column]
"""


@cuda(sparse_attention)
def sparse_on_device(step: Step) -> Planned:
    """Plan flash attention under the mask of the block layouts; heads share the mask if there is one layout."""
    given, query, key, value, past = (
        step.attributes,
        step.input(0),
        step.optional_input(1),
        step.optional_input(2),
        step.input(3),
    )
    heads, groups, block = given["num_heads"], given["kv_num_heads"], given["sparse_block_size"]
    q, k, v = parts_of(query, key, value, heads, groups)
    n, _, length, size = q.shape
    rows, columns = step.input(5), step.input(6)
    room, layouts, blocks = past.shape[2], rows.shape[0], rows.shape[1] - 1
    if (
        past.shape != (n, groups, room, size)
        or step.input(4).shape != past.shape
        or step.input(8).count != n
        or block < 1
        or length > room
    ):
        return "the cache shapes do not match the keys"
    starts, counts = step.temporary(INT64, (n,)), step.temporary(INT64, (n,))
    named: dict[str, Argument] = {"length": length, "room": room, "blocks": blocks, "block": block, "starts": starts}
    wrong = step.flag(WHY)
    table, seen = (
        step.temporary(np.uint8, (layouts, blocks, blocks)),
        step.temporary(np.bool_, (n, heads if layouts > 1 else 1, length, room)),
    )
    pattern: dict[str, Argument] = {
        "rows": rows,
        "columns": columns,
        "columns_of_layout": columns.shape[1],
        "blocks": blocks,
        "table": table,
    }
    launches: list[Launch | Chain] = [
        per_thread_launch(
            "where new keys go",
            n,
            {**named, "totals": step.input(8), "longest": step.input(7), "counts": counts, "wrong": wrong},
            CHECKED,
        ),
        per_thread_launch("blocks that are seen", layouts * blocks, {**pattern, "wrong": wrong}, TABLE),
        per_thread_launch(
            "keys that are seen",
            seen.count,
            {**named, "heads": seen.shape[1], "layouts": layouts, "table": table, "seen": seen},
            SEEN,
        ),
    ]
    places = behind(step, starts, length, launches)
    if given["do_rotary"]:
        q, k = (rotated_heads(step, part, places, 9, launches) for part in (q, k))
    keys, values = (
        cached(step, step.optional_input(3 + index), part, places, 1 + index, room, launches)
        for index, part in enumerate((k, v))
    )
    y = step.output() if step.is_used(0) else step.temporary(query.dtype, (n, length, heads * size))
    work = query.dtype if query.dtype == np.float64 else F32
    visibility = KeyVisibility(starts, causal=True, length=counts, mask=seen)
    scoring = Scoring(given["scale"] or 1 / max(1, size) ** 0.5, work)
    return [*launches, *attended(step, q, keys, values, in_heads(y, heads), scoring, visibility)]
