"""Encoders that put one block into each lane, so that a search over scales keeps every block's order of operations.

Blocks are transposed: element i of sixteen blocks is one vector, at ``16 * i`` of a flat array; the same for bytes of encoded blocks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ....runtime.kernel import inner, kernel
from ....runtime.quant import Encoder
from ....runtime.simd import LANES
from .tiles import turn_in, turn_out


@inner
def _load(source: Any, first: int, count: int, blocks: int, length: int, starts: Any, lanes: Any) -> None:
    """Blocks `first`, ... of `source`, counted modulo `blocks`, one per lane; lanes from `count` repeat the last one."""
    for lane in range(LANES):
        starts[lane] = (first + min(lane, count - 1)) % blocks * length
    for i in range(0, length, LANES):
        turn_in(source, starts, i, lanes)


@inner
def _save(lanes: Any, first: int, count: int, nbytes: int, out: Any) -> None:
    if count == LANES:
        for i in range(0, nbytes - LANES, LANES):
            turn_out(lanes, i, out, first * nbytes + i, nbytes)
        turn_out(lanes, nbytes - LANES, out, (first + 1) * nbytes - LANES, nbytes)
    else:
        for lane in range(count):
            for i in range(nbytes):
                out[(first + lane) * nbytes + i] = lanes[i * LANES + lane]


@inner
def _row_means(flat: Any, columns: int, per_row: int, first: int, count: int, means: Any) -> None:
    """The mean square of the row of each lane, summed in order."""
    known = -1
    mean = np.float32(0)
    for lane in range(LANES):
        row = (first + min(lane, count - 1)) // per_row
        if row != known:
            total = np.float32(0)
            for i in range(row * columns, (row + 1) * columns):
                total += flat[i] * flat[i]
            mean = total / np.float32(columns)
            known = row
        means[lane] = mean


def lane_encoder(
    encode: Callable[..., None], length: int, nbytes: int, row_means: bool = False, lattice: Callable[[], tuple[Any, ...]] = tuple
) -> Encoder:
    """A range kernel from ``encode(x, importance, means, lattice, y)`` over transposed blocks.

    `x` is float32 ``[length * 16]``, `importance` the same or ``[0]``, `means` float32 ``[16]`` (the mean square of each lane's row, where
    `row_means` asks for it and there is importance), `lattice` the arrays that a lattice consists of, `y` uint8 ``[nbytes * 16]``.
    """

    @kernel
    def encode_lanes(rows: Any, importance: Any, out: Any, start: int, stop: int, points: Any) -> None:
        columns = rows.shape[1]
        per_row = columns // length
        flat, flat_out = rows.reshape(-1), out.reshape(-1)
        starts = np.empty(LANES, np.int64)
        x = np.empty(length * LANES, np.float32)
        weights = np.empty(length * LANES if importance.size else 0, np.float32)
        means = np.zeros(LANES, np.float32)
        y = np.empty(nbytes * LANES, np.uint8)
        for first in range(start * per_row, stop * per_row, LANES):
            count = min(LANES, stop * per_row - first)
            _load(flat, first, count, rows.shape[0] * per_row, length, starts, x)
            if importance.size:
                _load(importance, first, count, per_row, length, starts, weights)
                if row_means:
                    _row_means(flat, columns, per_row, first, count, means)
            encode(x, weights, means, points, y)
            _save(y, first, count, nbytes, flat_out)

    def encode_rows(rows: np.ndarray, importance: np.ndarray, out: np.ndarray, start: int, stop: int) -> None:
        encode_lanes(rows, importance, out, start, stop, lattice())

    return encode_rows
