"""Encoders that put one block into each lane, so that a search over scales keeps every block's order of operations.

Blocks are transposed: element i of sixteen blocks is one vector, at ``16 * i`` of a flat array; the same for bytes of encoded blocks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ....runtime.kernel import inlined, kernel
from ....runtime.quant import Encoder
from ....runtime.simd import LANES, load, splat, store
from .tiles import turn_in, turn_out

NONE = np.empty(0, np.float32)


@inlined
def _load(source: Any, first: int, count: int, blocks: int, length: int, starts: Any, lanes: Any) -> None:
    """Blocks `first`, ... of `source`, counted modulo `blocks`, one per lane; lanes from `count` repeat the last one."""
    for lane in range(LANES):
        starts[lane] = (first + min(lane, count - 1)) % blocks * length
    for i in range(0, length, LANES):
        turn_in(source, starts, i, lanes)


@inlined
def _save(lanes: Any, first: int, count: int, nbytes: int, out: Any) -> None:
    if count == LANES:
        for i in range(0, nbytes - LANES, LANES):
            turn_out(lanes, i, out, first * nbytes + i, nbytes)
        turn_out(lanes, nbytes - LANES, out, (first + 1) * nbytes - LANES, nbytes)
    else:
        for lane in range(count):
            for i in range(nbytes):
                out[(first + lane) * nbytes + i] = lanes[i * LANES + lane]


@inlined
def _mean_squares(flat: Any, columns: int, start: int, stop: int, starts: Any, tile: Any) -> Any:
    """The mean square of each row in ``[start, stop)``, each summed in order, sixteen rows at once; padded to whole vectors."""
    means = np.empty((stop - start + LANES - 1) // LANES * LANES, np.float32)
    for first in range(start, stop, LANES):
        for lane in range(LANES):
            starts[lane] = min(first + lane, stop - 1) * columns
        total = splat(np.float32(0))
        for _ in range(0, columns, LANES):
            turn_in(flat, starts, 0, tile)
            for j in range(LANES):
                element = load(tile, j * LANES)
                total += element * element
                starts[j] += LANES
        store(means, first - start, total / np.float32(columns))
    return means


def lane_encoder(
    encode: Callable[..., None],
    length: int,
    nbytes: int,
    *,
    weighted: bool = True,
    row_means: bool = False,
    lattice: Callable[[], tuple[Any, ...]] = tuple,
) -> Encoder:
    """A range kernel from ``encode(x, importance, means, lattice, y)`` over transposed blocks.

    `x` is float32 ``[length * 16]``, `importance` the same or ``[0]`` (always that if not `weighted`), `means` float32 ``[16]`` (the mean square
    of each lane's row, where `row_means` asks for it and there is importance), `lattice` the arrays that a lattice consists of, `y` uint8
    ``[nbytes * 16]``.
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
        if row_means and importance.size:
            mean_squares = _mean_squares(flat, columns, start, stop, starts, x)
        for first in range(start * per_row, stop * per_row, LANES):
            count = min(LANES, stop * per_row - first)
            _load(flat, first, count, rows.shape[0] * per_row, length, starts, x)
            if importance.size:
                _load(importance, first, count, per_row, length, starts, weights)
                if row_means:
                    for lane in range(count):
                        means[lane] = mean_squares[(first + lane) // per_row - start]
            encode(x, weights, means, points, y)
            _save(y, first, count, nbytes, flat_out)

    def encode_rows(rows: np.ndarray, importance: np.ndarray, out: np.ndarray, start: int, stop: int) -> None:
        encode_lanes(rows, importance if weighted else NONE, out, start, stop, lattice())

    return encode_rows
