"""Lattices of the IQ types for encoders: which points exist, and which are near a combination that does not. Source: ggml-quants.c.

A combination of codes is packed like a grid's points: 2 bits for each of eight coordinates, or 3 bits for each of four.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from ....runtime.kernel import inner, kernel
from ....runtime.simd import LANES, lane_numbers, least, load, select, splat, to_float
from ..layout.grids import Grid

NOWHERE = 0x7FFFFFFF
FAR = np.float32(np.finfo(np.float32).max)


@functools.cache
def lattice_of(grid: Grid, shells: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """``(places, starts, stops, neighbours)`` of a grid.

    `places` int32, by combination: the point's index, or ``-1 - n``; then `neighbours` from ``starts[n]`` to ``stops[n]``, uint16, are the points
    at its `shells` smallest distances, nearest first, then by index; up to ``starts[n + 1]`` the first point fills whole vectors.
    """
    return _build(grid.coordinates, grid.width, len(grid.values), shells)


@kernel
def _build(coordinates: Any, width: int, levels: int, shells: int) -> Any:
    points, dims = coordinates.shape
    places = np.full(1 << (width * dims), NOWHERE, np.int32)
    for point in range(points):
        places[_packed(coordinates[point], width)] = point
    combination = np.zeros(dims, np.uint8)
    starts, stops = [np.int32(0)], [np.int32(0) for _ in range(0)]
    neighbours = [np.uint16(0) for _ in range(0)]
    distances = np.empty(points, np.int64)
    while True:
        at = _packed(combination, width)
        if places[at] == NOWHERE:
            places[at] = -len(starts)
            _near(coordinates, combination, width, shells, distances, neighbours)
            stops.append(np.int32(len(neighbours)))
            while len(neighbours) % LANES:
                neighbours.append(neighbours[starts[-1]])
            starts.append(np.int32(len(neighbours)))
        if not _advance(combination, levels):
            return places, np.array(starts), np.array(stops), np.array(neighbours)


@inner
def _packed(codes: Any, width: int) -> int:
    packed = 0
    for i in range(len(codes)):
        packed |= int(codes[i]) << (width * i)
    return packed


@inner
def _advance(combination: Any, levels: int) -> bool:
    """The next combination in counting order; False after the last."""
    for i in range(len(combination)):
        combination[i] += 1
        if combination[i] < levels:
            return True
        combination[i] = 0
    return False


@inner
def _near(coordinates: Any, combination: Any, width: int, shells: int, distances: Any, neighbours: Any) -> None:
    points, dims = coordinates.shape
    counts = np.zeros(256, np.int64)
    for point in range(points):
        distance = 0
        for i in range(dims):
            step = int(coordinates[point, i]) - int(combination[i])
            distance += step * step
        distances[point] = distance
        counts[distance] += 1
    found = 0
    for distance in range(256):
        if counts[distance]:
            for point in range(points):
                if distances[point] == distance:
                    neighbours.append(np.uint16(_packed(coordinates[point], width)))
            found += 1
            if found == shells:
                break


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
        best, place = select(closer, error, best), select(closer, lane_numbers() + (at - start), place)
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
        best, place = select(closer, error, best), select(closer, lane_numbers() + (chunk - start), place)
    return _first(neighbours, start, best, place)


@inner
def _first(neighbours: Any, start: int, best: Any, place: Any) -> int:
    return int(neighbours[start + least(select(best == least(best), place, 0x7FFFFFFF))])
