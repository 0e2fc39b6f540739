"""Convolution: each output is a product of the kernel with the window of the input below it."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ...runtime.ir.op import Trait, case, op
from ...runtime.ir.shape_inference import Inference
from ..elementwise.declare import quiet
from ..rules.output_limit import allowed
from ..rules.precision import widened
from ..rules.shape_rules import shape_error
from ..rules.sliding_window import Axis, Part, blocks, taps, window

COLUMN_BYTES = 4 << 20
"""Windows are laid out as the columns of a matrix no larger than this, a block of the output at a time."""


def _infer(node: Inference) -> None:
    x, weight = node.shape(0), node.shape(1)
    rank = len(x) if x is not None else len(weight) if weight is not None else None
    if rank is None:
        node.set(0, node.dtype(0), None)
        return
    if rank < 3 or (x is not None and weight is not None and len(x) != len(weight)):
        node.fail(f"the input has shape {x} and the kernel {weight}")
    batch, channels = (x[0], x[1]) if x is not None else (None, None)
    if (
        weight is not None
        and isinstance(channels, int)
        and isinstance(weight[1], int)
        and channels != weight[1] * node.attributes["group"]
    ):
        node.fail(f"{channels} channels do not match a kernel of shape {weight} in {node.attributes['group']} groups")
    names = ("strides", "pads", "dilations", "auto_pad")
    kernel = node.attributes["kernel_shape"] or (weight[2:] if weight is not None else None)
    spatial: Sequence[int | str | None] = [None] * (rank - 2)
    lengths = [length for length in kernel or () if isinstance(length, int)]
    if kernel is not None and len(lengths) == len(kernel) and x is not None:
        spatial = window("Conv", rank - 2, lengths, *(node.attributes[name] for name in names)).lengths(x[2:])
    node.set(0, node.dtype(0), (batch, weight[0] if weight is not None else None, *spatial))


@op(
    "Conv",
    since=22,
    types="T=float T T",
    traits=(Trait.PRODUCT,),
    weights={1: 0},
    infer=_infer,
    examples=[
        case("f32[2,4,7,5]", "f32[6,4,3,2]", "f32[6]", strides=[2, 1], pads=[1, 0, 2, 1]),
        case("f32[1,6,9,8]", "f32[4,3,3,3]", group=2, dilations=[2, 1], auto_pad="SAME_LOWER"),
        case("f32[2,3,11]", "f32[5,3,4]", "f32[5]", auto_pad="SAME_UPPER", strides=[3], kernel_shape=[4]),
        case("f32[1,2,5,4,6]", "f32[3,2,2,3,1]", pads=[1, 0, 2, 0, 1, 0], strides=[1, 2, 3]),
        case("f32[2,4,6,5]", "f32[8,1,3,3]", group=4, auto_pad="VALID"),
        case("f32[3,4,5,6]", "f32[7,4,1,1]", "f32[7]"),
        case("f32[0,3,5,5]", "f32[2,3,3,3]"),
    ],
)
@quiet
@widened
def conv(
    x: np.ndarray,
    w: np.ndarray,
    b: np.ndarray | None = None,
    *,
    auto_pad: str = "NOTSET",
    dilations: list[int] | None = None,
    group: int = 1,
    kernel_shape: list[int] | None = None,
    pads: list[int] | None = None,
    strides: list[int] | None = None,
) -> np.ndarray:
    """From [n, channels, spatial...] and kernels [out, channels / group, taps...] to [n, out, spatial...]."""
    if x.ndim != w.ndim or group < 1 or x.shape[1] != w.shape[1] * group or w.shape[0] % group:
        raise shape_error(
            "Conv", f"an input of shape {x.shape} and a kernel of shape {w.shape} do not match in {group} groups"
        )
    if b is not None and b.shape != w.shape[:1]:
        raise shape_error("Conv", f"a bias of shape {b.shape} does not match a kernel of shape {w.shape}")
    axes = window("Conv", x.ndim - 2, kernel_shape or w.shape[2:], strides, pads, dilations, auto_pad).axes(x.shape[2:])
    if [axis.kernel for axis in axes] != list(w.shape[2:]):
        raise shape_error("Conv", f"kernel_shape {kernel_shape} contradicts a kernel of shape {w.shape}")
    lengths = [axis.out for axis in axes]
    y = np.empty(allowed((len(x), len(w), *lengths), x.itemsize, "Conv"), x.dtype)
    each = len(w) // group
    rows = w.reshape(group, each, math.prod(w.shape[1:]))
    shift = None if b is None else b.reshape(group, each, 1)
    images, results = x.reshape(len(x), group, w.shape[1], *x.shape[2:]), y.reshape(len(x), group, each, *lengths)
    depth = max(1, rows.shape[2] * group * x.itemsize)
    for image, result in zip(images, results, strict=True):
        for block in (
            [tuple(slice(0, length) for length in lengths)]
            if is_plain(axes)
            else blocks(lengths, COLUMN_BYTES // depth)
        ):
            part = rows @ columns(image, axes, block)
            if shift is not None:
                part += shift
            result[:, :, *block] = part.reshape(*part.shape[:2], *extent(block))
    return y


def is_plain(axes: Sequence[Axis]) -> bool:
    """Whether every window is one element and each element has one."""
    return all(axis.kernel == axis.stride == 1 and axis.out == axis.size and not axis.begin for axis in axes)


def extent(block: Part) -> tuple[int, ...]:
    """Lengths of a block."""
    return tuple(part.stop - part.start for part in block)


def columns(image: np.ndarray, axes: Sequence[Axis], block: Part) -> np.ndarray:
    """Windows of [group, channels, spatial...] at the outputs of a block, as columns [group, channels x taps, outputs];
    zeros outside the image."""
    groups, channels = image.shape[:2]
    if is_plain(axes):
        return image.reshape(groups, channels, math.prod(image.shape[2:]))
    kernel = tuple(axis.kernel for axis in axes)
    made = np.zeros((groups, channels, *kernel, *extent(block)), image.dtype)
    for position, out, seen in taps(axes, block):
        target: tuple[int | slice, ...] = (slice(None), slice(None), *position, *out)
        made[target] = image[:, :, *seen]
    return made.reshape(groups, channels * math.prod(kernel), math.prod(extent(block)))
