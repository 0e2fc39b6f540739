"""GridSample: an image sampled at given positions, with interpolation."""

from __future__ import annotations

import itertools
import math

import numpy as np

from ...runtime.ir.builder import Builder
from ...runtime.ir.graph import Node
from ...runtime.ir.op import Trait, case, op, upgrade
from ...runtime.ir.shape_inference import Inference
from ..rules.output_limit import allowed
from ..rules.shape_rules import shape_error
from .interpolation import FILTERS
from .resize import back

PADDINGS = ("zeros", "border", "reflection")
KEYS = -0.75
"""Constant of the cubic kernel, as in torch.nn.functional.grid_sample."""


def _infer(node: Inference) -> None:
    x, grid = node.shape(0), node.shape(1)
    if (
        x is not None
        and grid is not None
        and (len(x) != len(grid) or (isinstance(grid[-1], int) and grid[-1] != len(x) - 2))
    ):
        node.fail(f"a grid of shape {grid} does not fit an input of shape {x}")
    node.set(0, node.dtype(0), None if x is None or grid is None else (x[0], x[1], *grid[1:-1]))


@op(
    "GridSample",
    since=22,
    types="tensor float",
    traits=(Trait.IMPRECISE_IN_F16,),
    infer=_infer,
    examples=[
        case("f32[2,3,4,5]", "f32[2,3,2,2]"),
        case("f32[1,2,4,5]", "f32[1,3,6,2]", mode="cubic", padding_mode="border", align_corners=1),
        case("f32[1,2,4,5]", "f32[1,3,6,2]", mode="nearest", padding_mode="reflection"),
        case("f32[2,1,3,4,5]", "f32[2,2,3,2,3]"),
        case("f32[1,1,3,4,5]", "f32[1,2,3,2,3]", mode="nearest", align_corners=1),
        case("f32[1,2,3,3]", "f32[1,0,4,2]"),
    ],
)
def grid_sample(
    x: np.ndarray, grid: np.ndarray, *, align_corners: int = 0, mode: str = "linear", padding_mode: str = "zeros"
) -> np.ndarray:
    """From [n, channels, d1...dr] and positions [n, o1...or, r] in -1 to 1, innermost axis first, to [n, channels,
    o1...or]."""
    rank = x.ndim - 2
    if (
        rank < 1
        or grid.ndim != x.ndim
        or grid.shape[0] != x.shape[0]
        or grid.shape[-1] != rank
        or not math.prod(x.shape[2:])
    ):
        raise shape_error("GridSample", f"a grid of shape {grid.shape} does not fit an input of shape {x.shape}")
    if padding_mode not in PADDINGS or (mode != "nearest" and mode not in FILTERS):
        raise shape_error("GridSample", f"mode {mode!r} or padding_mode {padding_mode!r} does not exist", "E-OP-VALUE")
    shape = allowed((*x.shape[:2], *grid.shape[1:-1]), x.itemsize, "GridSample")
    wide = x.dtype if mode == "nearest" or x.dtype in (np.float32, np.float64) else np.dtype(np.float32)
    image = x.reshape(*x.shape[:2], math.prod(x.shape[2:])).astype(wide, copy=False)
    axes = []
    for axis, length in enumerate(x.shape[2:]):
        points = (
            grid[..., rank - 1 - axis]
            .reshape(len(x), math.prod(shape[2:]))
            .astype(np.float32 if grid.dtype != np.float64 else np.float64)
        )
        axes.append(_taps(points, length, mode, padding_mode, bool(align_corners)))
    y = np.zeros((*shape[:2], math.prod(shape[2:])), wide)
    if wide.kind == "O":
        y[...] = ""
    for choice in itertools.product(*axes):
        place, weight = np.zeros((len(x), y.shape[2]), np.int64), np.ones((len(x), y.shape[2]), np.float64)
        for (index, share), length in zip(choice, x.shape[2:], strict=True):
            place, weight = place * length + index, weight * share
        found = np.take_along_axis(image, place[:, None], 2)
        if mode == "nearest":
            np.copyto(y, found, where=weight[:, None] != 0)
        else:
            y += found * weight[:, None].astype(wide)
    return (y if wide == x.dtype else back(y, x.dtype)).reshape(shape)


def _taps(
    points: np.ndarray, length: int, mode: str, padding: str, corners: bool
) -> list[tuple[np.ndarray, np.ndarray]]:
    """For each tap of an axis, indices and weights; those outside the image have index 0 and weight 0."""
    one, two = points.dtype.type(1), points.dtype.type(2)
    with np.errstate(all="ignore"):
        position = (points + one) / two * (length - 1) if corners else ((points + one) * length - one) / two
        position = np.rint(position) if mode == "nearest" else position
        position = np.where(
            np.isnan(position), -2.0 if padding == "zeros" else 0.0, np.clip(position, -1e9, 1e9)
        ).astype(position.dtype)
    low, high = (0.0, length - 1.0) if corners else (-0.5, length - 0.5)
    if padding == "border" and mode != "cubic":
        position = np.where((position < low) | (position > high), np.clip(position, 0, length - 1), position)
    elif padding == "reflection":
        position = _reflected(position, low, high)
    if mode == "nearest":
        return [_inside(position.astype(np.int64), np.ones(points.shape), length, padding, low, high)]
    reach, kernel = FILTERS[mode]
    first = np.floor(position)
    steps = range(1 - reach, reach + 1)
    weights = [kernel(np.asarray(first + step - position, np.float64), KEYS) for step in steps]
    return [
        _inside(first.astype(np.int64) + step, weight, length, padding, low, high)
        for step, weight in zip(steps, weights, strict=True)
    ]


def _inside(
    index: np.ndarray, weight: np.ndarray, length: int, padding: str, low: float, high: float
) -> tuple[np.ndarray, np.ndarray]:
    if padding == "zeros":
        within = (index >= 0) & (index < length)
        return np.where(within, index, 0), np.where(within, weight, 0)
    if padding == "reflection":
        index = _reflected(index.astype(np.float64), low, high).astype(np.int64)
    return np.clip(index, 0, length - 1), weight


def _reflected(position: np.ndarray, low: float, high: float) -> np.ndarray:
    """Positions folded back at the borders until they are between them."""
    span = high - low
    if span <= 0:
        return np.zeros_like(position)
    beyond = np.where(position < low, low - position, np.where(position > high, position - high, 0))
    turns = np.trunc(beyond / span)
    rest = beyond - turns * span
    from_low = (position < low) == (turns % 2 == 0)
    folded = np.where(from_low, low + rest, high - rest)
    return np.where((position < low) | (position > high), folded, position).astype(position.dtype)


@upgrade(grid_sample, below=20)
def renamed_modes(node: Node, build: Builder) -> None:
    """Before opset 20 the modes had the names that they have for pictures."""
    mode = node.attributes.get("mode", "bilinear")
    node.attributes["mode"] = {"bilinear": "linear", "bicubic": "cubic"}.get(mode, mode)
