"""RoiAlign: regions of an image pooled to one size with interpolated samples (Mask R-CNN, He et al. 2017)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...runtime.ir.builder import Builder
from ...runtime.ir.graph import Node
from ...runtime.ir.op import Trait, case, op, upgrade
from ...runtime.ir.shape_inference import Inference
from ..rules.output_limit import allowed
from ..rules.precision import widened
from ..rules.shape_rules import shape_error


def _infer(node: Inference) -> None:
    x, rois, batch = node.shape(0), node.shape(1), node.shape(2)
    if x is not None and len(x) != 4:
        node.fail(f"the input has shape {x}, not (n, channels, height, width)")
    count = rois[0] if rois else batch[0] if batch else None
    node.set(
        0,
        node.dtype(0),
        (count, x[1] if x else None, node.attributes["output_height"], node.attributes["output_width"]),
    )


ROIS = np.array([[0.5, 1, 6.5, 4], [2, 0, 3, 7.5], [-3, -3, 20, 5], [4, 4, 4, 4]], np.float32)


@op(
    "RoiAlign",
    since=22,
    types="T=float T i64",
    traits=(Trait.KEEPS_F32,),
    infer=_infer,
    examples=[
        case("f32[2,3,8,7]", ROIS, np.array([0, 1, 1, 0]), output_height=2, output_width=3),
        case(
            "f32[2,3,8,7]",
            ROIS,
            np.array([0, 1, 1, 0]),
            output_height=3,
            output_width=2,
            sampling_ratio=2,
            spatial_scale=0.8,
            coordinate_transformation_mode="output_half_pixel",
        ),
        case("f32[2,3,8,7]", ROIS, np.array([0, 1, 1, 0]), output_height=2, output_width=2, mode="max"),
        case("f32[2,3,8,7]", np.zeros((0, 4), np.float32), np.zeros(0, np.int64)),
    ],
)
@widened
def roi_align(
    x: np.ndarray,
    rois: np.ndarray,
    batch_indices: np.ndarray,
    *,
    coordinate_transformation_mode: str = "half_pixel",
    mode: str = "avg",
    output_height: int = 1,
    output_width: int = 1,
    sampling_ratio: int = 0,
    spatial_scale: float = 1.0,
) -> np.ndarray:
    """From [n, channels, h, w] and regions (x1, y1, x2, y2) to [regions, channels, output_height, output_width].

    Max takes the largest of the four weighted neighbours of each sample, not of the samples themselves: the behaviour
    that the standard's tests fix.
    """
    half = coordinate_transformation_mode == "half_pixel"
    if x.ndim != 4 or rois.shape != (len(batch_indices), 4) or mode not in ("avg", "max"):
        raise shape_error("RoiAlign", f"regions of shape {rois.shape} do not fit an input of shape {x.shape}")
    if not np.isfinite(rois).all() or ((batch_indices < 0) | (batch_indices >= len(x))).any():
        raise shape_error("RoiAlign", "a region is not finite, or of an image that does not exist", "E-OP-VALUE")
    y = np.empty(allowed((len(rois), x.shape[1], output_height, output_width), x.itemsize, "RoiAlign"), x.dtype)
    for index, (roi, image) in enumerate(zip(rois.astype(x.dtype), batch_indices, strict=True)):
        corners = roi * x.dtype.type(spatial_scale) - x.dtype.type(0.5 if half else 0)
        rows = _samples(corners[1], corners[3], output_height, x.shape[2], sampling_ratio, half)
        columns = _samples(corners[0], corners[2], output_width, x.shape[3], sampling_ratio, half)
        y[index] = _average(x[image], rows, columns) if mode == "avg" else _largest(x[image], rows, columns)
    return y


Samples = tuple[np.ndarray, np.ndarray]
"""Indices below and above each sample and their weights, both [2, bins, samples in a bin]."""


def _samples(start: np.floating[Any], end: np.floating[Any], bins: int, size: int, ratio: int, half: bool) -> Samples:
    """Positions are computed in the input's dtype: whether a sample on the edge is outside depends on its rounding."""
    number = type(start)
    extent = end - start if half else max(end - start, number(1))
    count = ratio if ratio > 0 else max(0, math.ceil(extent / number(bins)))
    allowed((bins, count), 64, "RoiAlign")
    width = number(extent / number(bins))
    position = (
        start
        + np.arange(bins).astype(number)[:, None] * width
        + (np.arange(count) + 0.5).astype(number) * width / number(max(count, 1))
    )
    outside = (position < -1) | (position > size)
    position = np.clip(position, 0, size - 1)
    low = np.floor(position).astype(np.int64)
    above = position - low
    weights = np.where(outside, 0, np.stack([1 - above, above]))
    return np.stack([low, np.minimum(low + 1, size - 1)]), weights


def _average(image: np.ndarray, rows: Samples, columns: Samples) -> np.ndarray:
    """Sampling is linear in each axis, so that a bin is a weighted sum of rows of weighted sums of columns."""
    made: np.ndarray = _matrix(rows, image) @ image @ _matrix(columns, image.swapaxes(1, 2)).T
    return made / max(1, rows[0].shape[2] * columns[0].shape[2])


def _matrix(samples: Samples, image: np.ndarray) -> np.ndarray:
    indices, weights = samples
    matrix = np.zeros((indices.shape[1], image.shape[1]), image.dtype)
    bins = np.broadcast_to(np.arange(indices.shape[1])[None, :, None], indices.shape)
    np.add.at(matrix, (bins, indices), weights.astype(image.dtype))
    return matrix


def _largest(image: np.ndarray, rows: Samples, columns: Samples) -> np.ndarray:
    shape = (len(image), rows[0].shape[1], rows[0].shape[2], columns[0].shape[1], columns[0].shape[2])
    if not math.prod(shape[1:]):
        return np.zeros((shape[0], shape[1], shape[3]), image.dtype)
    best = np.full(allowed(shape, image.itemsize, "RoiAlign"), -np.inf, image.dtype)
    for row, height in zip(*rows, strict=True):
        for column, width in zip(*columns, strict=True):
            weights = (height[:, :, None, None] * width).astype(image.dtype)
            np.maximum(best, image[:, row[:, :, None, None], column] * weights, out=best)
    largest: np.ndarray = best.max((2, 4))
    return largest


@upgrade(roi_align, below=16)
def without_pixel_shift(node: Node, build: Builder) -> None:
    """Before opset 16 coordinates were not shifted by half an element."""
    node.attributes["coordinate_transformation_mode"] = "output_half_pixel"
