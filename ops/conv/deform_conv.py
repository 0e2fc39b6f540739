"""DeformConv: every kernel tap samples the input at a learned offset (Dai et al. 2017, arXiv:1703.06211; modulated in
arXiv:1811.11168)."""

from __future__ import annotations

import itertools
import math

import numpy as np

from ...runtime.ir.graph import Dim
from ...runtime.ir.op import Tolerance, Trait, case, op
from ...runtime.ir.shape_inference import Inference
from ..elementwise.declare import quiet
from ..rules.output_limit import allowed
from ..rules.precision import widened
from ..rules.shape_rules import shape_error
from ..rules.sliding_window import window

SAMPLE_BYTES = 4 << 20
"""Samples are taken for so many outputs at a time that they stay below this."""


def _infer(node: Inference) -> None:
    x, weight, offset = node.shape(0), node.shape(1), node.shape(2)
    if x is not None and weight is not None and (len(x) < 3 or len(x) != len(weight)):
        node.fail(f"the input has shape {x} and the kernel {weight}")
    known = offset if offset is not None else (x[0], None, *(None,) * (len(x) - 2)) if x is not None else None
    spatial: tuple[Dim, ...] | None = known[2:] if known is not None else None
    node.set(
        0,
        node.dtype(0),
        None
        if spatial is None
        else (x[0] if x is not None else None, weight[0] if weight is not None else None, *spatial),
    )


@op(
    "DeformConv",
    since=22,
    types="T=float T T T T",
    traits=(Trait.PRODUCT,),
    infer=_infer,
    tolerance=Tolerance(1e-4, 1e-5),
    examples=[
        case("f32[1,2,5,6]", "f32[3,2,2,3]", "f32[1,12,4,4]", "f32[3]"),
        case(
            "f32[2,4,5,5]",
            "f32[2,2,2,2]",
            "f32[2,16,3,3]",
            None,
            "f32[2,8,3,3]",
            group=2,
            offset_group=2,
            strides=[2, 2],
            pads=[1, 0, 1, 1],
        ),
        case("f32[1,1,6,6]", "f32[1,1,2,2]", "f32[1,8,4,5]", dilations=[2, 1], kernel_shape=[2, 2]),
    ],
)
@quiet
@widened
def deform_conv(
    x: np.ndarray,
    w: np.ndarray,
    offset: np.ndarray,
    b: np.ndarray | None = None,
    mask: np.ndarray | None = None,
    *,
    dilations: list[int] | None = None,
    group: int = 1,
    kernel_shape: list[int] | None = None,
    offset_group: int = 1,
    pads: list[int] | None = None,
    strides: list[int] | None = None,
) -> np.ndarray:
    """From [n, channels, spatial...] and kernels [out, channels / group, taps...] to [n, out, spatial...].

    `offset` is [n, offset groups x taps x axes, out spatial...] in elements, `mask` [n, offset groups x taps, out
    spatial...]. Samples are interpolated linearly, with zeros outside.
    """
    rank, count = x.ndim - 2, math.prod(w.shape[2:])
    fits = (
        x.ndim == w.ndim
        and min(group, offset_group) >= 1
        and x.shape[1] == w.shape[1] * group
        and not w.shape[0] % group
    )
    if not fits or x.shape[1] % offset_group or list(kernel_shape or w.shape[2:]) != list(w.shape[2:]):
        raise shape_error(
            "DeformConv",
            f"an input of shape {x.shape} and a kernel of shape {w.shape} do not match in {group} and {offset_group} "
            "groups",
        )
    axes = window("DeformConv", rank, w.shape[2:], strides, pads, dilations).axes(x.shape[2:])
    lengths = [axis.out for axis in axes]
    cells = math.prod(lengths)
    if offset.shape != (len(x), offset_group * count * rank, *lengths) or (
        mask is not None and mask.shape != (len(x), offset_group * count, *lengths)
    ):
        raise shape_error("DeformConv", f"offsets of shape {offset.shape} do not fit outputs of lengths {lengths}")
    moved = offset.reshape(len(x), offset_group, count, rank, cells)
    weights = None if mask is None else mask.reshape(len(x), offset_group, 1, count, cells)
    grid = np.stack([place.reshape(-1) for place in np.indices(lengths)])
    corner = np.stack([place.reshape(-1) for place in np.indices(w.shape[2:])])
    base = np.array([[axis.stride, axis.dilation, axis.begin] for axis in axes])
    rows = w.reshape(group, len(w) // group, math.prod(w.shape[1:]))
    y = np.empty(allowed((len(x), len(w), *lengths), x.itemsize, "DeformConv"), x.dtype)
    step = max(1, SAMPLE_BYTES // max(1, x.shape[1] * count * x.itemsize))
    for index, image in enumerate(x):
        for start in range(0, cells, step):
            part = slice(start, min(start + step, cells))
            where = (
                grid[:, None, part] * base[:, :1, None] + corner[:, :, None] * base[:, 1:2, None] - base[:, 2:, None]
            )
            places = where + moved[index, :, :, :, part].transpose(0, 2, 1, 3)
            samples = _samples(image.reshape(offset_group, x.shape[1] // offset_group, *x.shape[2:]), places)
            if weights is not None:
                samples *= weights[index, ..., part]
            made = rows @ samples.reshape(group, rows.shape[2], part.stop - part.start)
            y[index].reshape(len(w), cells)[:, part] = made.reshape(len(w), part.stop - part.start)
    if b is not None:
        y += b.reshape(-1, *(1,) * rank)
    return y


def _samples(image: np.ndarray, places: np.ndarray) -> np.ndarray:
    """[groups, channels, taps, cells] of [groups, channels, spatial...] at [groups, axes, taps, cells]."""
    groups, channels, *sizes = image.shape
    flat = image.reshape(groups, channels, math.prod(sizes))
    floor = np.floor(places)
    part = (places - floor).astype(image.dtype)
    made = np.zeros((groups, channels, *places.shape[2:]), image.dtype)
    for corner in itertools.product((0, 1), repeat=len(sizes)):
        index = np.zeros((groups, *places.shape[2:]), np.int64)
        weight = np.ones(index.shape, image.dtype)
        for axis, (side, size) in enumerate(zip(corner, sizes, strict=True)):
            at = floor[:, axis] + side
            inside = (at >= 0) & (at < size)
            weight *= np.where(inside, part[:, axis] if side else 1 - part[:, axis], 0)
            index = index * size + np.where(inside, at, 0).astype(np.int64)
        for member in range(groups):
            made[member] += flat[member][:, index[member]] * weight[member]
    return made
