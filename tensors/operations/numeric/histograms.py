"""Histograms of one and of several dims, computed at once, and derivatives of sampled functions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ....runtime.base.errors import UsageError
from ...core.expression import leaf
from ...core.promotion import category
from ...core.registry import FUNCTIONS, function, operation
from ...core.tensor import Tensor
from ..creation import creator, made
from ..operands import dim_of, dims_of, lengths_of


class Histogram(NamedTuple):
    """Counts, and the bounds of their bins."""

    hist: Tensor
    bin_edges: Tensor


class Histograms(NamedTuple):
    """Counts of several dims, and the bounds of the bins of each."""

    hist: Tensor
    bin_edges: tuple[Tensor, ...]


def _bins(values: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """The bin of each value by bisection, as of bounds that ascend; -1 outside of the first and the last bound."""
    first = np.zeros(values.shape, np.int64)
    count = np.full(values.shape, len(edges))
    while count.any():
        half = count // 2
        above = (count > 0) & ~(values < edges[np.minimum(first + half, len(edges) - 1)])
        first, count = np.where(above, first + half + 1, first), np.where(above, count - half - 1, half)
    inside = (values >= edges[0]) & (values <= edges[-1])
    return np.where(inside, np.minimum(first, len(edges) - 1) - 1, -1)


def _counts(points: np.ndarray, edges: Sequence[np.ndarray], weights: np.ndarray | None) -> np.ndarray:
    """Sums of the weights of the points [n, dims], of 1 by default, in each bin."""
    shape = tuple(len(each) - 1 for each in edges)
    bins = [_bins(points[:, dim], each) for dim, each in enumerate(edges)]
    inside = np.all([each >= 0 for each in bins], axis=0)
    flat = np.ravel_multi_index([each[inside] for each in bins], shape)
    found = np.bincount(flat, None if weights is None else weights[inside], minlength=int(np.prod(shape)))
    return found.reshape(shape).astype(np.float64)


@function()
def histogramdd(
    input: Tensor, bins: Any, *, range: Sequence[float] | None = None, weight: Tensor | None = None,
    density: bool = False,
) -> Histograms:  # fmt: skip
    """Number of points, rows of the last dim, in each bin of a grid.

    Args:
        bins: how many of each dim, one number for all, or the bounds as tensors.
        range: the lowest and the highest bound of each dim, by default those of the points.
        weight: of each point.
        density: the share of each bin over its volume in place of a count.
    """
    kind = input.dtype.as_numpy()
    points = input.detach().array().reshape(-1, input.shape[-1])
    count = points.shape[1]
    given = [bins] * count if isinstance(bins, int) else list(bins)
    edges = []
    for dim, each in enumerate(given):
        if isinstance(each, Tensor):
            edges.append(each.array())
            continue
        column = points[:, dim]
        low, high = (0.0, 0.0) if not column.size else (float(column.min()), float(column.max()))
        if range is not None:
            low, high = range[2 * dim : 2 * dim + 2]
        if low == high:
            low, high = (low, high + 1) if not column.size else (low - 0.5, high + 0.5)
        if not low < high:
            raise UsageError("E-TENSOR-VALUE", None, f"a histogram from {low} to {high}", expected="ascending bounds")
        edges.append(np.linspace(low, high, each + 1).astype(kind))
    weights = None if weight is None else weight.array().reshape(-1).astype(np.float64)
    found = _counts(points, edges, weights)
    if density:
        volume = np.ones(())
        for each in edges:
            volume = np.multiply.outer(volume, np.diff(each.astype(np.float64)))
        with np.errstate(all="ignore"):
            found = found / volume / found.sum()
    return Histograms(made(found.astype(kind)), tuple(map(made, edges)))


@operation()
def histogram(
    input: Tensor, bins: Any, *, range: Sequence[float] | None = None, weight: Tensor | None = None,
    density: bool = False,
) -> Histogram:  # fmt: skip
    """Number of elements in each bin, as `histogramdd` of one dim."""
    given = bins if isinstance(bins, int) else [bins]
    found = histogramdd(input.reshape(-1, 1), given, range=range, weight=weight, density=density)
    return Histogram(found.hist, found.bin_edges[0])


def _neighbours(input: Tensor, axis: int, distances: np.ndarray, edge_order: int) -> Tensor:
    """The derivative along a dim from neighbours, whose distances differ."""
    count = input.shape[axis]
    kind = input.dtype.as_numpy()

    def column(values: Any) -> Tensor:
        shape = [-1 if dim == axis else 1 for dim in range(input.ndim)]
        return Tensor(leaf(np.asarray(values, kind).reshape(shape)))

    def part(start: int, length: int) -> Tensor:
        found: Tensor = input.narrow(axis, start, length)
        return found

    before, after = distances[:-1], distances[1:]
    middle = [
        part(0, count - 2) * column(-after / (before * (before + after))),
        part(1, count - 2) * column((after - before) / (before * after)),
        part(2, count - 2) * column(before / (after * (before + after))),
    ]
    if edge_order == 1:
        ends = [(part(1, 1) - part(0, 1)) / float(distances[0]),
                (part(count - 1, 1) - part(count - 2, 1)) / float(distances[-1])]  # fmt: skip
    else:
        ends = []
        for one, two, places in ((distances[0], distances[1], (0, 1, 2)),
                                 (-distances[-1], -distances[-2], (count - 1, count - 2, count - 3))):  # fmt: skip
            shares = -(2 * one + two) / (one * (one + two)), (one + two) / (one * two), -one / (two * (one + two))
            ends.append(sum((part(at, 1) * float(share) for at, share in zip(places, shares, strict=True)),
                            start=part(places[0], 1) * 0))  # fmt: skip
    inner = middle[0] + middle[1] + middle[2]
    found: Tensor = FUNCTIONS["cat"]([ends[0], inner, ends[1]], axis)
    return found


@function()
def gradient(input: Tensor, *, spacing: Any = 1, dim: Any = None, edge_order: int = 1) -> tuple[Tensor, ...]:
    """Derivatives along dims of a function by its values, from the differences of neighbours.

    Args:
        spacing: the distance of neighbours, one for each dim, or their positions as tensors.
        dim: which dims, all by default.
        edge_order: 1 for differences of two elements at both ends, 2 for parabolas of three.
    """
    if dim is None:
        axes = dims_of(None, input.ndim)
    else:
        axes = [dim_of(each, input.ndim) for each in ([dim] if isinstance(dim, int) else dim)]
    spacing = 1 if spacing is None else spacing
    given = list(spacing) if isinstance(spacing, list | tuple) else [spacing] * len(axes)
    x = input if category(input.dtype) >= 2 else input.float()
    found = []
    for axis, each in zip(axes, given, strict=True):
        count = input.shape[axis]
        if count < edge_order + 1:
            why = f"gradient along a dim of length {count}"
            raise UsageError("E-TENSOR-SHAPE", None, why, expected=f"at least {edge_order + 1}")
        steps = np.diff(each.array().astype(np.float64)) if isinstance(each, Tensor) and each.ndim else None
        found.append(_neighbours(x, axis, np.full(count - 1, float(each)) if steps is None else steps, edge_order))
    return tuple(found)


@creator()
def empty_permuted(size: Any, physical_layout: Sequence[int], dtype: Any = None) -> Tensor:
    """A tensor of a shape; the order of dims in memory is always that of the shape."""
    return FUNCTIONS["zeros"](lengths_of([size]), dtype=dtype)


@creator()
def empty_strided(size: Any, stride: Sequence[int], dtype: Any = None) -> Tensor:
    """A tensor of a shape; strides in memory are always those of rows."""
    return FUNCTIONS["zeros"](lengths_of([size]), dtype=dtype)
