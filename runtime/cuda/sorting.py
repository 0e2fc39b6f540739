"""Sorting: places of rows in an order that a comparison gives, by merging runs; equal ones keep their order.

A pass merges neighbouring runs: each place finds by halving how many of the other run come before it, which is where it goes.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from ..launch import Argument, Buffer
from .each import each
from .zip import Chain

if TYPE_CHECKING:
    from .kernel import Launch
    from .place import Step

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


def ordered(step: Step, title: str, rows: int, length: int, named: Mapping[str, Argument], compare: str) -> tuple[list[Launch | Chain], Buffer]:
    """Launches that order places 0 to `length` of each row, and the places in order, [rows, length].

    Args:
        named: as for `each`.
        compare: lines that set `before` to whether place ``a`` of a `row` comes before place ``b``.
    """
    source, target = (step.temporary(np.int64, (rows, length)) for _ in range(2))
    launches: list[Launch | Chain] = [each("places of rows", rows * length, {"length": length, "target": source}, "target[i] = i % length")]
    text = MERGE.replace("        COMPARE", textwrap.indent(textwrap.dedent(compare).strip("\n"), " " * 8))
    width = 1
    while width < length:
        launches.append(each(title, rows * length, {**named, "length": length, "width": width, "source": source, "target": target}, text))
        source, target, width = target, source, 2 * width
    return launches, source
