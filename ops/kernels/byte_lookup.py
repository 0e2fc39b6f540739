"""256-entry lookup tables of bytes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...runtime.jit.address import share, u8
from ...runtime.jit.kernel_arguments import Address
from ...runtime.jit.range_kernel import inner, range_kernel
from ...runtime.plan.kernel_api import Buffer, Launch, Step
from ...runtime.simd.bytes import TABLES, lookup_bytes

PIECE = 4096
"""Elements that one unit of work computes."""


@inner
def lookup_line(table: Any, source: Any, target: Any, count: Any) -> None:
    """`count` bytes by a table of what they become; the target may be the source."""
    if TABLES:
        for j in range(0, count, 64):
            lookup_bytes(table, source + j, target + j, min(64, count - j))
    else:
        x, y, entries = u8(source), u8(target), u8(table)
        for j in range(count):
            y[j] = entries[x[j]]


@range_kernel
def looked_up(
    source: Address, table_at: Address, target: Address, rows: int, length: int, target_row: int, part: int, parts: int
) -> None:
    """Bytes by a table of what they become; rows of results are `target_row` bytes apart."""
    pieces = (length + PIECE - 1) // PIECE
    first, last = share(rows * pieces, part, parts)
    for unit in range(first, last):
        row, begin = unit // pieces, unit % pieces * PIECE
        count = min(length - begin, PIECE)
        lookup_line(table_at, source + row * length + begin, target + row * target_row + begin, count)


def table_of(dtype: np.dtype[Any], function: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """The results of a function for all 256 bit patterns of a byte."""
    return np.ascontiguousarray(function(np.arange(256, dtype=np.uint8).view(dtype))).view(np.uint8)


def launch_lookup(step: Step, x: Buffer, table: Buffer, y: Buffer, rows: int, length: int, row: int) -> Launch:
    """The launch for rows of `length` bytes, whose results are `row` bytes apart."""
    parts = step.parts(rows * -(-length // PIECE), x.count)
    return Launch(looked_up, parts, source=x, table_at=table, target=y, rows=rows, length=length, target_row=row)
