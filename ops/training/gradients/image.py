"""Gradients of resampling: Resize, GridSample, AffineGrid, RoiAlign, MaxRoiPool and DeformConv, as formulas of
interpolated samples."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np

from ....runtime.ir.op import Undecomposable
from ...conv.deform_conv import deform_conv
from ...image.affine_grid import affine_grid
from ...image.grid_sample import KEYS, grid_sample
from ...image.interpolation import NEAREST, POSITIONS, taps, weighted
from ...image.resize import axes_to_resample, resize
from ...image.roi_align import roi_align
from ...pool.unpool import max_roi_pool
from ...rules.expression import Term
from ...rules.sliding_window import window
from ..gradient_rule import Step, differentiated_as


@differentiated_as(resize)
def _resize(step: Step) -> list[Term | None]:
    """A product with the matrix of weights along each axis that is resampled."""
    x, options = step.input(0), step.attributes
    roi, scales, sizes = (step.known(index) for index in (1, 2, 3))
    axes = axes_to_resample(x.lengths, roi, scales, sizes, options["axes"], options["keep_aspect_ratio_policy"])
    mode = "linear" if options["mode"] == "bilinear" else options["mode"]
    y: Term = x
    outside = []
    for dim, axis in axes.items():
        position = np.asarray(
            POSITIONS[options["coordinate_transformation_mode"]](np.arange(axis.out, dtype=np.float32), axis)
        )
        eye = np.eye(axis.size)
        if mode == "nearest":
            near = NEAREST[options["nearest_mode"]](position)
            matrix = eye[np.clip(near, 0, axis.size - 1).astype(np.int64)]
        else:
            exclude = bool(options["exclude_outside"])
            matrix = weighted(
                eye, 0, *taps(position, axis, mode, options["cubic_coeff_a"], bool(options["antialias"]), exclude)
            )
        if options["coordinate_transformation_mode"] == "tf_crop_and_resize":
            outside.append((dim, (position < 0) | (position > axis.size - 1)))
        if not np.array_equal(matrix, eye):
            order = [*(other for other in range(x.axes) if other != dim), dim]
            moved = y.transposed(order).call("MatMul", y.constant(matrix.T, x.dtype.as_numpy()))
            y = moved.transposed([order.index(other) for other in range(x.axes)])
    for dim, mask in outside:
        y = y.constant(mask.reshape(-1, *(1,) * (x.axes - 1 - dim)), "bool").where(options["extrapolation_value"], y)
    return [y]


Tap = tuple[Term, Term]
"""Index and weight of each sample along one axis."""


def _whole(x: Term) -> Term:
    """The integer part, as i64."""
    return x.call("Floor").call("Cast", to=7)


def _within(index: Term, weight: Term, length: int) -> Tap:
    """Samples outside of an axis have no weight."""
    inside = (index >= 0).call("And", index < length)
    return inside.where(index, 0), inside.where(weight, 0)


def _linear(position: Term, length: int) -> list[Tap]:
    """The elements below and above each position, with zeros around the axis."""
    low, share = _whole(position), position - position.call("Floor")
    return [_within(low, 1 - share, length), _within(low + 1, share, length)]


def _cubic(position: Term) -> list[tuple[Term, Term]]:
    """Indices and weights of the four elements around each position (Keys 1981, equation 4)."""
    first, part = _whole(position), position - position.call("Floor")
    found = []
    for step, distance in zip((-1, 0, 1, 2), (part + 1, part, 1 - part, 2 - part), strict=True):
        if step in (0, 1):
            weight = ((KEYS + 2) * distance - (KEYS + 3)) * distance * distance + 1
        else:
            weight = ((KEYS * distance - 5 * KEYS) * distance + 8 * KEYS) * distance - 4 * KEYS
        found.append((first + step, weight))
    return found


def _reflected(position: Term, low: float, high: float) -> Term:
    """Positions folded back at the borders until they are between them."""
    span = high - low
    if span <= 0:
        return position * 0
    beyond = (position - low).call("Abs")
    turns = (beyond / span).call("Floor")
    rest = beyond - turns * span
    odd = (turns * 0.5 - (turns * 0.5).call("Floor")) > 0
    return odd.where(high - rest, rest + low)


def _clipped(term: Term, low: float, high: float) -> Term:
    return term.call("Clip", term.number(low), term.number(high))


def _grid_taps(points: Term, length: int, options: dict[str, object]) -> list[Tap]:
    """The taps of one axis of GridSample."""
    corners, mode, padding = bool(options["align_corners"]), options["mode"], options["padding_mode"]
    position = (points + 1) * ((length - 1) / 2) if corners else ((points + 1) * length - 1) * 0.5
    low, high = (0.0, length - 1.0) if corners else (-0.5, length - 0.5)
    if mode == "nearest":
        position = position.call("Round")
    if padding == "border" and mode != "cubic":
        position = _clipped(position, 0, length - 1)
    elif padding == "reflection":
        position = _reflected(position, low, high)
    if mode == "nearest":
        pairs = [(_whole(position), position.filled(1))]
    elif mode == "linear":
        first, part = _whole(position), position - position.call("Floor")
        pairs = [(first, 1 - part), (first + 1, part)]
    else:
        pairs = _cubic(position)
    if padding == "zeros":
        return [_within(index, weight, length) for index, weight in pairs]
    if padding == "reflection":
        pairs = [(_whole(_reflected(index.call("CastLike", points), low, high)), weight) for index, weight in pairs]
    return [(_clipped(index, 0, length - 1), weight) for index, weight in pairs]


def _sampled(flat: Term, axes: Sequence[Sequence[Tap]], sizes: Sequence[int]) -> Term:
    """Samples [n, channels, points] of [n, channels, elements], whose elements lie in axes of these sizes; indices and
    weights are [n, points]."""
    batch, channels, _ = flat.lengths
    total: Term | None = None
    for choice in itertools.product(*axes):
        place, weight = choice[0]
        for (index, share), size in zip(choice[1:], sizes[1:], strict=True):
            place, weight = place * size + index, weight * share
        wide = place.unsqueezed(1).call("Expand", place.integers([batch, channels, place.lengths[1]]))
        part = flat.call("GatherElements", wide, axis=2) * weight.unsqueezed(1)
        total = part if total is None else total + part
    assert total is not None
    return total


@differentiated_as(grid_sample)
def _grid_sample(step: Step) -> list[Term | None]:
    x, grid = step.input(0), step.input(1)
    batch, channels, *sizes = x.lengths
    points = math.prod(grid.lengths[1:-1])
    places = grid.reshaped(batch, points, len(sizes)).call("CastLike", x)
    axes = [
        _grid_taps(places.entry(2, len(sizes) - 1 - axis), length, step.attributes) for axis, length in enumerate(sizes)
    ]
    found = _sampled(x.reshaped(batch, channels, math.prod(sizes)), axes, sizes)
    return [found.reshaped(batch, channels, *grid.lengths[1:-1])]


@differentiated_as(affine_grid)
def _affine_grid(step: Step) -> list[Term | None]:
    """The product of the grid of the unit matrix with the matrices."""
    theta, size = step.input(0), step.known(1)
    assert size is not None
    lengths = [int(length) for length in size[2:]]
    rank = len(lengths)
    assert affine_grid.compute is not None
    one = [1, *size[1:].tolist()]
    unit = affine_grid.compute(
        np.eye(rank, rank + 1)[None], np.array(one), align_corners=step.attributes["align_corners"]
    )
    points = np.concatenate([unit, np.ones((1, *lengths, 1))], -1).reshape(-1, rank + 1)
    found = theta.constant(points, theta.dtype.as_numpy()).call("MatMul", theta.transposed([0, 2, 1]))
    return [found.reshaped(int(size[0]), *lengths, rank)]


@differentiated_as(roi_align)
def _roi_align(step: Step) -> list[Term | None]:
    """Products of each image with the weights of the rows and columns that a region samples."""
    x, rois, images = step.input(0), step.input(1), step.input(2)
    options, ratio = step.attributes, step.attributes["sampling_ratio"]
    if options["mode"] != "avg" or ratio <= 0:
        raise Undecomposable("of mode max, or of a sampling_ratio that regions decide on")
    half = options["coordinate_transformation_mode"] == "half_pixel"
    corners = rois * options["spatial_scale"] - (0.5 if half else 0.0)
    height, width = x.lengths[2:]
    rows = _bins(corners.entry(1, 1), corners.entry(1, 3), (options["output_height"], ratio), height, half)
    columns = _bins(corners.entry(1, 0), corners.entry(1, 2), (options["output_width"], ratio), width, half)
    chosen = x.call("Gather", images, axis=0)
    return [rows.unsqueezed(1).call("MatMul", chosen).call("MatMul", columns.transposed([0, 2, 1]).unsqueezed(1))]


def _bins(start: Term, end: Term, bins: tuple[int, int], size: int, half: bool) -> Term:
    """Weights [regions, bins, elements of the axis]: the mean over the samples of each bin."""
    count, ratio = bins
    extent = end - start if half else (end - start).call("Max", end.number(1))
    steps = (np.arange(count)[:, None] + (np.arange(ratio) + 0.5) / ratio).reshape(-1) / count
    position = start.unsqueezed(1) + extent.unsqueezed(1) * start.constant(steps, start.dtype.as_numpy())
    outside = (position < -1).call("Or", position > size)
    near = _clipped(position, 0, size - 1).unsqueezed(2)
    distance = (near - near.constant(np.arange(size), start.dtype.as_numpy())).call("Abs")
    weights = outside.unsqueezed(2).where(0, (1 - distance).call("Relu"))
    return weights.reshaped(start.lengths[0], count, ratio, size).call("ReduceMean", start.integers([2]), keepdims=0)


@differentiated_as(max_roi_pool)
def _max_roi_pool(step: Step) -> list[Term | None]:
    """The largest of the elements that masks of rows and of columns leave of each image."""
    x, rois, scale = step.input(0), step.input(1), step.attributes["spatial_scale"]
    x1, y1, x2, y2 = ((rois.entry(1, 1 + index).call("Cast", to=1) * scale + 0.5).call("Floor") for index in range(4))
    down, across = step.attributes["pooled_shape"]
    chosen = x.call("Gather", _whole(rois.entry(1, 0)), axis=0)
    least = -math.inf
    columns = _members(x1, x2, across, x.lengths[3]).unsqueezed(1, 2)
    best = columns.where(chosen.unsqueezed(3), chosen.number(least)).call("ReduceMax", step.integers([4]), keepdims=0)
    rows = _members(y1, y2, down, x.lengths[2]).unsqueezed(1, 4)
    best = rows.where(best.unsqueezed(2), best.number(least)).call("ReduceMax", step.integers([3]), keepdims=0)
    return [(best > least).where(best, 0)]


def _members(first: Term, last: Term, count: int, size: int) -> Term:
    """Whether an element of an axis is in a part of a region, [regions, parts, elements]."""
    width = (last - first + 1).call("Max", first.number(1)).unsqueezed(1) / count
    parts = first.constant(np.arange(count), "float32")
    start = (width * parts).call("Floor") + first.unsqueezed(1)
    stop = (width * (parts + 1)).call("Ceil") + first.unsqueezed(1)
    positions = first.constant(np.arange(size), "float32")
    return (positions >= start.unsqueezed(2)).call("And", positions < stop.unsqueezed(2))


@differentiated_as(deform_conv)
def _deform_conv(step: Step) -> list[Term | None]:
    """Samples of every kernel tap, times the kernels."""
    x, w, offset, bias, mask = (*step.x, None, None)[:5]
    assert x is not None
    assert w is not None
    assert offset is not None
    options = step.attributes
    group, parts = options["group"], options["offset_group"]
    batch, channels, *sizes = x.lengths
    kernel, rank = w.lengths[2:], len(sizes)
    axes = window("DeformConv", rank, kernel, options["strides"], options["pads"], options["dilations"]).axes(sizes)
    lengths, count = [axis.out for axis in axes], math.prod(kernel)
    cells, outputs = math.prod(lengths), w.lengths[0]
    moved = offset.reshaped(batch * parts, count, rank, cells)
    places = []
    for index, axis in enumerate(axes):
        tap = np.indices(kernel)[index].reshape(-1, 1) * axis.dilation
        cell = np.indices(lengths)[index].reshape(1, -1) * axis.stride
        at = moved.entry(2, index) + x.constant(tap + cell - axis.begin, x.dtype.as_numpy())
        places.append(_linear(at.reshaped(batch * parts, count * cells), axis.size))
    samples = _sampled(x.reshaped(batch * parts, channels // parts, math.prod(sizes)), places, sizes)
    if mask is not None:
        samples = samples * mask.reshaped(batch * parts, 1, count * cells)
    rows = samples.reshaped(batch, group, channels // group * count, cells)
    y = w.reshaped(group, outputs // group, channels // group * count).call("MatMul", rows)
    found = y.reshaped(batch, outputs, *lengths)
    return [found if bias is None else found + bias.reshaped(outputs, *(1,) * rank)]
