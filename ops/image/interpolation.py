"""Resampling along one axis: source coordinates, source elements and their weights."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from ...runtime.base.dataclass import dataclass
from ..rules.output_limit import allowed
from ..rules.shape_rules import shape_error


@dataclass(frozen=True)
class Axis:
    """One axis to resample.

    Attributes:
        size, out: lengths before and after.
        scale: by how much it grows; ``scale * size`` may have a fraction.
        start, end: the region of interest as fractions of the axis.
    """

    size: int
    out: int
    scale: float
    start: float = 0.0
    end: float = 1.0

    @property
    def length(self) -> np.float32:
        """Length after, with its fraction."""
        return np.float32(self.scale) * np.float32(self.size)


Position = Callable[[np.ndarray, Axis], np.ndarray]


def _half_pixel(out: np.ndarray, axis: Axis) -> np.ndarray:
    half = np.float32(0.5)
    return (out + half) / np.float32(axis.scale) - half


def _half_pixel_symmetric(out: np.ndarray, axis: Axis) -> np.ndarray:
    half, offset = np.float32(0.5), np.float32(axis.size / 2) * (1 - np.float32(axis.out) / axis.length)
    return offset + (out + half) / np.float32(axis.scale) - half


def _align_corners(out: np.ndarray, axis: Axis) -> np.ndarray:
    return out * 0 if axis.length == 1 else out * np.float32(axis.size - 1) / (axis.length - 1)


def _crop(out: np.ndarray, axis: Axis) -> np.ndarray:
    last, start, end = np.float32(axis.size - 1), np.float32(axis.start), np.float32(axis.end)
    return (
        out * 0 + (start + end) / 2 * last
        if axis.length <= 1
        else start * last + out * (end - start) * last / (axis.length - 1)
    )


POSITIONS: dict[str, Position] = {
    "half_pixel": _half_pixel,
    "half_pixel_symmetric": _half_pixel_symmetric,
    "pytorch_half_pixel": lambda out, axis: _half_pixel(out, axis) if axis.out > 1 else out * 0,
    "align_corners": _align_corners,
    "asymmetric": lambda out, axis: out / np.float32(axis.scale),
    "tf_half_pixel_for_nn": lambda out, axis: (out + np.float32(0.5)) / np.float32(axis.scale),
    "tf_crop_and_resize": _crop,
}
"""Positions in the input, from the output's, as f32; `tf_half_pixel_for_nn` existed in opsets 11 and 12."""

NEAREST: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "round_prefer_floor": lambda x: np.ceil(x - np.float32(0.5)),
    "round_prefer_ceil": lambda x: np.floor(x + np.float32(0.5)),
    "floor": np.floor,
    "ceil": np.ceil,
}


def chosen(table: dict[str, Callable[..., np.ndarray]], mode: str, what: str) -> Callable[..., np.ndarray]:
    """An entry of a table of modes; FormatError for others."""
    if mode not in table:
        raise shape_error("Resize", f"{what} is {mode!r}", "E-OP-VALUE", expected=f"one of {', '.join(table)}")
    return table[mode]


def _linear(distance: np.ndarray, a: float) -> np.ndarray:
    return np.clip(1 - np.abs(distance), 0, None)


def _cubic(distance: np.ndarray, a: float) -> np.ndarray:
    far = np.abs(distance)
    near = ((a + 2) * far - (a + 3)) * far * far + 1
    return np.where(far <= 1, near, np.where(far < 2, ((a * far - 5 * a) * far + 8 * a) * far - 4 * a, 0))


FILTERS: dict[str, tuple[int, Callable[[np.ndarray, float], np.ndarray]]] = {
    "linear": (1, _linear),
    "cubic": (2, _cubic),
}
"""Reach in elements, and the weight at a distance. Cubic: R. Keys, Cubic convolution interpolation (1981), equation 4
with its constant free."""


def taps(
    position: np.ndarray, axis: Axis, mode: str, a: float, antialias: bool, exclude_outside: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Indices and weights, both [out, taps]. What lies outside repeats the edge, or has no weight with
    `exclude_outside`."""
    support, kernel = FILTERS[mode]
    shrink = min(axis.scale, 1.0) if antialias else 1.0
    reach = math.ceil(support / shrink)
    allowed((len(position), 2 * reach), 32, "Resize: the taps of an antialiasing filter")
    exact = position.astype(np.float64)
    indices = np.floor(exact).astype(np.int64)[:, None] + np.arange(1 - reach, reach + 1)
    weights = kernel((indices - exact[:, None]) * shrink, a)
    if exclude_outside:
        weights = np.where((indices < 0) | (indices >= axis.size), 0, weights)
    if exclude_outside or antialias:
        total = weights.sum(1, keepdims=True)
        weights = weights / np.where(total == 0, 1, total)
    return np.clip(indices, 0, axis.size - 1), weights


def weighted(x: np.ndarray, dim: int, indices: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """``sum(x[indices] * weights)`` along a dimension."""
    trailing = (1,) * (x.ndim - 1 - dim)
    made = np.zeros((*x.shape[:dim], len(indices), *x.shape[dim + 1 :]), x.dtype)
    for tap in range(indices.shape[1]):
        column = weights[:, tap].astype(x.dtype)
        if column.any():
            made += np.take(x, indices[:, tap], dim) * column.reshape(-1, *trailing)
    return made
