"""Stable merge sort of row indices, by a comparison written in the kernel.

Each pass merges adjacent runs: a binary search in the other run gives each element's new position.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from ...plan.kernel_api import Argument, BaseStep, Buffer, Chain
from .per_thread import per_thread_launch

if TYPE_CHECKING:
    from .kernel import Launch

MERGE = """
    row, at = i // length, i % length
    start = at // (2 * width) * (2 * width)
    middle, end = min(start + width, length), min(start + 2 * width, length)
    mine, left = source[i], at < middle
    low = middle if left else start
    high = end if left else middle
    while low < high:
        half = (low + high) // 2
        its = source[row * length + half]
        a = its if left else mine
        b = mine if left else its
        COMPARE
        if before == left:
            low = half + 1
        else:
            high = half
    target[row * length + at - middle + low] = mine
"""


def sort_launches(
    step: BaseStep, title: str, rows: int, length: int, named: Mapping[str, Argument], compare: str
) -> tuple[list[Launch | Chain], Buffer]:
    """Launches that sort the indices 0 to `length` of each row, and the buffer of sorted indices, [rows, length].

    Args:
        named: as for `per_thread_launch`.
        compare: lines that set `before` to whether position ``a`` of a `row` comes before position ``b``.
    """
    source, target = (step.temporary(np.int64, (rows, length)) for _ in range(2))
    launches: list[Launch | Chain] = [
        per_thread_launch(
            "places of rows", rows * length, {"length": length, "target": source}, "target[i] = i % length"
        )
    ]
    text = MERGE.replace("        COMPARE", textwrap.indent(textwrap.dedent(compare).strip("\n"), " " * 8))
    width = 1
    while width < length:
        launches.append(
            per_thread_launch(
                title,
                rows * length,
                {**named, "length": length, "width": width, "source": source, "target": target},
                text,
            )
        )
        source, target, width = target, source, 2 * width
    return launches, source
