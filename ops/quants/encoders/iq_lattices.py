"""Lattices of the IQ encoders: the existing points, and the neighbours of every other combination. Source:
ggml-quants.c."""

from __future__ import annotations

import numpy as np

from ....runtime.base.process_cache import process_cache
from ....runtime.jit.code_cache import CachedKernel
from ..layout.iq_grids import Grid
from . import simd

_BUILD = CachedKernel(f"{simd.__name__}.lattice_search", "build")
_EACH = 64
"""Initial capacity of neighbours per combination, on average."""


@process_cache
def lattice_of(grid: Grid, shells: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """``(positions, starts, stops, neighbours)`` of a grid.

    `places` int32, by combination: the point's index, or ``-1 - n``; then `neighbours` from ``starts[n]`` to
    ``stops[n]``, uint16, are the points at its `shells` smallest distances, nearest first, then by index; up to
    ``starts[n + 1]`` the first point fills whole vectors.
    """
    coordinates = np.ascontiguousarray(grid.coordinates)
    points, dims = coordinates.shape
    levels, distances = len(grid.values), np.empty(points, np.int32)
    places = np.empty(1 << (grid.width * dims), np.int32)
    starts, stops = np.empty(levels**dims + 1, np.int32), np.empty(levels**dims, np.int32)
    capacity = _EACH * levels**dims
    while True:
        neighbours = np.empty(capacity, np.uint16)
        arrays = (places, starts, stops, neighbours)
        filled = np.zeros(2, np.int64)
        _BUILD(
            coordinates.ctypes.data,
            points,
            dims,
            grid.width,
            levels,
            shells,
            *(array.ctypes.data for array in arrays),
            capacity,
            distances.ctypes.data,
            filled.ctypes.data,
        )
        strays, count = filled.tolist()
        if count + points + 16 <= capacity:
            return places, starts[: strays + 1], stops[:strays], neighbours[:count].copy()
        capacity = count + points + 16
