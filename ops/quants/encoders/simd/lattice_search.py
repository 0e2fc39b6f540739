"""Lattice search of the IQ encoders: the points near a combination outside of the lattice, and the nearest of them.
Source: ggml-quants.c.

A combination of codes is packed like a grid's points: 2 bits for each of eight coordinates, or 3 bits for each of four.
"""

# mypy: disable-error-code="untyped-decorator"
from __future__ import annotations

from typing import Any

import numpy as np

from .....runtime.jit.kernel_arguments import Address
from .....runtime.jit.range_kernel import inner, range_kernel
from .....runtime.simd.pointer import flat
from .....runtime.simd.vector import LANES, lane_indices, lane_min, load, select, splat, stack_array, to_float

NOWHERE = 0x7FFFFFFF
FAR = np.float32(np.finfo(np.float32).max)
SHELLS = 256
TERMS = 24
"""Terms of `nearest_of_three`: as many vectors hold them even where a vector is one number."""


@range_kernel(_nrt=False)
def build(
    grid: Address,
    points: int,
    dims: int,
    width: int,
    levels: int,
    shells: int,
    places_at: Address,
    starts_at: Address,
    stops_at: Address,
    neighbours_at: Address,
    capacity: int,
    distances_at: Address,
    filled: Address,
    part: int,
    parts: int,
) -> None:
    """Fill the arrays of a lattice, see `iq_lattices.lattice_of`.

    Two int64 at `filled` get the number of combinations outside the lattice and of neighbours; if there are more
    than fit, nothing is written.
    """
    coordinates, distances = flat(np.uint8, grid, points * dims), flat(np.int32, distances_at, points)
    places, starts = flat(np.int32, places_at, 1 << (width * dims)), flat(np.int32, starts_at, capacity)
    stops, neighbours = flat(np.int32, stops_at, capacity), flat(np.uint16, neighbours_at, capacity)
    combination, counts = stack_array(np.uint8, 1), stack_array(np.int32, 16)
    for at in range(1 << (width * dims)):
        places[at] = NOWHERE
    for point in range(points):
        places[_packed(coordinates, point * dims, dims, width)] = point
    for i in range(dims):
        combination[i] = 0
    strays, count, going = 0, 0, True
    while going:
        at = _packed(combination, 0, dims, width)
        if places[at] == NOWHERE:
            if count + points + LANES <= capacity:
                starts[strays], places[at] = count, -1 - strays
                count = _near(
                    coordinates, points, dims, combination, width, shells, distances, counts, neighbours, count
                )
                stops[strays] = count
                while count % LANES:
                    neighbours[count] = neighbours[starts[strays]]
                    count += 1
            else:
                count += points + LANES
            strays += 1
        going = _advance(combination, dims, levels)
    if count <= capacity:
        starts[strays] = count
    found = flat(np.int64, filled, 2)
    found[0], found[1] = strays, count


@inner
def _packed(codes: Any, at: int, dims: int, width: int) -> int:
    packed = 0
    for i in range(dims):
        packed |= int(codes[at + i]) << (width * i)
    return packed


@inner
def _advance(combination: Any, dims: int, levels: int) -> bool:
    """The next combination in counting order; False after the last."""
    for i in range(dims):
        combination[i] += 1
        if combination[i] < levels:
            return True
        combination[i] = 0
    return False


@inner
def _near(
    coordinates: Any,
    points: int,
    dims: int,
    combination: Any,
    width: int,
    shells: int,
    distances: Any,
    counts: Any,
    neighbours: Any,
    count: int,
) -> int:
    """Append the points at the `shells` smallest distances, nearest first, then by index; returns the new count."""
    for distance in range(SHELLS):
        counts[distance] = 0
    for point in range(points):
        distance = 0
        for i in range(dims):
            step = int(coordinates[point * dims + i]) - int(combination[i])
            distance += step * step
        distances[point] = distance
        counts[distance] += 1
    found = 0
    for distance in range(SHELLS):
        if counts[distance]:
            for point in range(points):
                if distances[point] == distance:
                    neighbours[count] = _packed(coordinates, point * dims, dims, width)
                    count += 1
            found += 1
            if found == shells:
                break
    return count


@inner
def nearest_of_three(neighbours: Any, start: int, stop: int, terms: Any) -> int:
    """The first neighbour of least error; coordinate i with code c costs ``terms[3 * i + c]``."""
    best, place = splat(FAR), splat(np.int32(0))
    for at in range(start, stop, LANES):
        codes = load(neighbours, at)
        error = splat(np.float32(0))
        for i in range(8):
            two, one = (codes & (2 << 2 * i)) != 0, (codes & (1 << 2 * i)) != 0
            error += select(two, terms[3 * i + 2], select(one, terms[3 * i + 1], splat(terms[3 * i])))
        closer = error < best
        best, place = select(closer, error, best), select(closer, lane_indices() + (at - start), place)
    return _first(neighbours, start, best, place)


@inner
def nearest_of_eight(neighbours: Any, start: int, stop: int, x: Any, weights: Any, at: int, scale: Any) -> int:
    """The first neighbour of least weighted squared error, for four elements ``x[at], x[at + 16], ...``."""
    best, place = splat(FAR), splat(np.int32(0))
    for chunk in range(start, stop, LANES):
        codes = load(neighbours, chunk)
        error = splat(np.float32(0))
        for i in range(4):
            value = to_float((((codes >> 3 * i) & 7) << 1) | 1)
            difference = scale * value - x[at + i * LANES]
            error += weights[at + i * LANES] * difference * difference
        closer = error < best
        best, place = select(closer, error, best), select(closer, lane_indices() + (chunk - start), place)
    return _first(neighbours, start, best, place)


@inner
def _first(neighbours: Any, start: int, best: Any, place: Any) -> int:
    return int(neighbours[start + lane_min(select(best == lane_min(best), place, 0x7FFFFFFF))])
