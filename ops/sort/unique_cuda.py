"""Unique on the device: elements are sorted, the first of equal ones is kept, inverse indices by binary search."""

from __future__ import annotations

import math

import numpy as np

from ...runtime.cuda.kernel.merge_sort import sort_launches
from ...runtime.cuda.kernel.per_thread import per_thread_launch
from ...runtime.cuda.kernel.stream_compaction import compaction_launches
from ...runtime.cuda.memory.dynamic_length import Sized
from ...runtime.cuda.plan.kernel_api import Planned, Step, cuda
from ...runtime.plan.kernel_api import Argument
from ..rules.axes import axis_in
from .unique import unique

COMPARE = """
    before = False
    k = 0
    while k < width_of_entry:
        one = get_x(x, (k // inner * along + a) * inner + k % inner)
        other = get_x(x, (k // inner * along + b) * inner + k % inner)
        if one < other or (other != other and one == one):
            before = True
            k = width_of_entry
        elif other < one or (one != one and other == other):
            k = width_of_entry
        k += 1
"""
"""NaN comes last, and equals NaN."""
NEW = f"""
keep = j == 0
if not keep:
    a, b = order[j - 1], order[j]
{COMPARE}
    keep = before
"""
GROUPS = """
    if i < total[0]:
        end = heads[i + 1] if i + 1 < total[0] else length
        first[i] = order[heads[i]]
        size[i] = end - heads[i]
        marks[order[heads[i]]] = 1
"""
RANKED = """
    if i < total[0]:
        low, high = np.int64(0), total[0]
        while low < high:
            half = (low + high) // 2
            if by_place[half] < first[i]:
                low = half + 1
            else:
                high = half
        rank[i] = low
        size_of[low] = size[i]
"""
WHERE = """
    low, high = np.int64(0), total[0]
    while low < high:
        half = (low + high) // 2
        if heads[half] <= i:
            low = half + 1
        else:
            high = half
    inverse[order[i]] = rank[low - 1] if ranked else low - 1
"""
VALUES = """
    if i < outer * total[0] * inner:
        rest = i // inner
        y[i] = x[(rest // total[0] * along + first[rest % total[0]]) * inner + i % inner]
"""


@cuda(unique, sized=True)
def unique_on_device(step: Step) -> Planned:
    """Write the used outputs, in ascending order or in order of first occurrence."""
    x, axis = step.input(0), step.attributes["axis"]
    shape = (x.count,) if axis is None else x.shape
    at = 0 if axis is None else axis_in("Unique", axis, len(shape))
    length, outer, inner = shape[at], math.prod(shape[:at]), math.prod(shape[at + 1 :])
    entry: dict[str, Argument] = {"x": x, "along": length, "inner": inner, "width_of_entry": outer * inner}
    launches, order = sort_launches(step, "order of entries", 1, length, entry, COMPARE)
    heads, first, size, rank, inverse = (step.temporary(np.int64, (length,)) for _ in range(5))
    more, total = compaction_launches(
        step, "first of equal entries", length, {**entry, "order": order, "heads": heads}, NEW, "heads[at] = j"
    )
    marks = step.temporary(np.uint8, (length,))
    named: dict[str, Argument] = {"total": total, "heads": heads, "order": order, "length": length}
    launches += [*more, per_thread_launch("no marks", length, {"marks": marks}, "marks[i] = 0")]
    launches.append(
        per_thread_launch("groups of entries", length, {**named, "first": first, "size": size, "marks": marks}, GROUPS)
    )
    ranked = not step.attributes["sorted"]
    if ranked:
        by_place, size_of = step.temporary(np.int64, (length,)), step.temporary(np.int64, (length,))
        launches += compaction_launches(
            step,
            "first places",
            length,
            {"marks": marks, "by_place": by_place},
            "keep = marks[j] != 0",
            "by_place[at] = j",
        )[0]
        groups = {"total": total, "by_place": by_place, "first": first, "rank": rank, "size": size, "size_of": size_of}
        launches.append(per_thread_launch("ranks of groups", length, groups, RANKED))
        first, size = by_place, size_of
    launches.append(
        per_thread_launch(
            "where elements went", length, {**named, "rank": rank, "inverse": inverse, "ranked": int(ranked)}, WHERE
        )
    )
    values = step.temporary(x.dtype, shape)
    launches.append(
        per_thread_launch(
            "entries", values.count, {**entry, "total": total, "first": first, "outer": outer, "y": values}, VALUES
        )
    )
    step.sized[0] = Sized(values, total, lambda found: (*shape[:at], found, *shape[at + 1 :]))
    step.sized[1], step.sized[3] = (Sized(item, total, lambda found: (found,)) for item in (first, size))
    step.sized[2] = Sized(inverse, total, lambda found: (length,))
    return launches
