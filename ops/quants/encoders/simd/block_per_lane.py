"""Encoders with one block per SIMD lane: a search over scales keeps every block's order of operations.

Blocks are transposed: element i of sixteen blocks is one vector, at ``16 * i`` of a flat array; likewise bytes of
encoded blocks.
"""

# mypy: disable-error-code="untyped-decorator"
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .....runtime.jit.kernel_arguments import Address
from .....runtime.jit.range_kernel import RangeKernel, inlined, range_kernel
from .....runtime.simd.pointer import flat
from .....runtime.simd.vector import LANES, load, splat, stack_array, store
from .row_source import report, take
from .tile_transpose import transpose_in, transpose_out


@inlined
def _load(source: Any, first: int, count: int, blocks: int, length: int, starts: Any, lanes: Any) -> None:
    """Blocks `first`, ... of `source`, counted modulo `blocks`, one per lane; lanes from `count` repeat the last
    one."""
    for lane in range(LANES):
        starts[lane] = (first + min(lane, count - 1)) % blocks * length
    for i in range(0, length, LANES):
        transpose_in(source, starts, i, lanes)


@inlined
def _save(lanes: Any, first: int, count: int, nbytes: int, out: Any) -> None:
    if count == LANES:
        for i in range(0, nbytes - LANES, LANES):
            transpose_out(lanes, i, out, first * nbytes + i, nbytes)
        transpose_out(lanes, nbytes - LANES, out, (first + 1) * nbytes - LANES, nbytes)
    else:
        for lane in range(count):
            for i in range(nbytes):
                out[(first + lane) * nbytes + i] = lanes[i * LANES + lane]


@inlined
def _mean_squares(source: int, kind: int, columns: int, start: int, stop: int, starts: Any, means: Any) -> None:
    """The mean square of each row in ``[start, stop)``, sixteen at most, each summed in order."""
    tile, transposed = stack_array(np.float32, LANES), stack_array(np.float32, LANES)
    for lane in range(LANES):
        starts[lane] = lane * LANES
    total = splat(np.float32(0))
    for at in range(0, columns, LANES):
        for lane in range(LANES):
            take(
                source, kind, min(start + lane, stop - 1) * columns + at, LANES, tile, lane * LANES, splat(np.int32(0))
            )
        transpose_in(tile, starts, 0, transposed)
        for j in range(LANES):
            element = load(transposed, j * LANES)
            total += element * element
    store(means, 0, total / np.float32(columns))


@inlined
def _no_lattice(places: int, starts: int, stops: int, neighbours: int) -> Any:
    return ()


@inlined
def _lattice(places: int, starts: int, stops: int, neighbours: int) -> Any:
    points = 1 << 16
    return (
        flat(np.int32, places, points),
        flat(np.int32, starts, points),
        flat(np.int32, stops, points),
        flat(np.uint16, neighbours, 1 << 30),
    )


def lane_encoder(
    encode: Callable[..., None],
    length: int,
    nbytes: int,
    *,
    weighted: bool = True,
    row_means: bool = False,
    lattice: bool = False,
) -> RangeKernel:
    """An encoder from ``encode(x, importance, means, lattice, y)`` over transposed blocks.

    `x` is float32 ``[length * 16]``, `importance` the same or ``[0]`` (always that if not `weighted`), `means` float32
    ``[16]`` (the mean square of each lane's row, where `row_means` asks for it and there is importance), `lattice` the
    arrays that a lattice consists of, `y` uint8 ``[nbytes * 16]``.
    """
    arrays = _lattice if lattice else _no_lattice

    @range_kernel(_nrt=False)
    def encode_lanes(
        source: Address,
        kind: int,
        columns: int,
        rows: int,
        importance: Address,
        out: Address,
        greatest: Address,
        places: Address,
        starts: Address,
        stops: Address,
        neighbours: Address,
        part: int,
        parts: int,
    ) -> None:
        per_row = columns // length
        given, blocks = flat(np.float32, importance, columns), flat(np.uint8, out, rows * per_row * nbytes)
        tile, x, y = stack_array(np.float32, length), stack_array(np.float32, length), stack_array(np.uint8, nbytes)
        row_mean, means, firsts = stack_array(np.float32, 1), stack_array(np.float32, 1), stack_array(np.int64, 1)
        important = weighted and importance != 0
        weights = stack_array(np.float32, length)[: length * LANES if important else 0]
        points = arrays(places, starts, stops, neighbours)
        store(means, 0, splat(np.float32(0)))
        largest = splat(np.int32(0))
        for row in range(0, rows, LANES):
            last = min(row + LANES, rows)
            if row_means and important:
                _mean_squares(source, kind, columns, row, last, firsts, row_mean)
            for first in range(row * per_row, last * per_row, LANES):
                count = min(LANES, last * per_row - first)
                largest = take(source, kind, first * length, count * length, tile, 0, largest)
                _load(tile, 0, count, LANES, length, firsts, x)
                if important:
                    _load(given, first, count, per_row, length, firsts, weights)
                    if row_means:
                        for lane in range(count):
                            means[lane] = row_mean[(first + lane) // per_row - row]
                encode(x, weights, means, points, y)
                _save(y, first, count, nbytes, blocks)
        report(greatest, largest)

    return encode_lanes
