"""MaxUnpool and MaxRoiPool."""

from __future__ import annotations

import math

import numpy as np

from ...runtime.ir.graph import Dim
from ...runtime.ir.op import Trait, case, op
from ...runtime.ir.shape_inference import Inference
from ..elementwise.declare import quiet
from ..rules.output_limit import allowed
from ..rules.shape_rules import shape_error
from ..rules.sliding_window import spread


def _lengths(sizes: tuple[Dim, ...], kernel: list[int], strides: list[int] | None, pads: list[int] | None) -> list[Dim]:
    """The lengths before a pooling to `sizes`."""
    rank = len(sizes)
    steps = spread(strides, rank, rank, 1, "MaxUnpool", "strides", 1)
    around = spread(pads, rank, 2 * rank, 0, "MaxUnpool", "pads", 0)
    reach = spread(kernel, rank, rank, 1, "MaxUnpool", "kernel_shape", 1)
    return [
        (size - 1) * steps[axis] + reach[axis] - around[axis] - around[axis + rank] if isinstance(size, int) else None
        for axis, size in enumerate(sizes)
    ]


def _infer_unpool(node: Inference) -> None:
    x, given = node.shape(0), node.data(2)
    if x is not None and len(x) < 3:
        node.fail(f"the input has shape {x}, windows need a spatial axis")
    if x is None or (given is None and node.value(2) is not None):
        node.set(0, node.dtype(0), given if given is not None else None if x is None else (None,) * len(x))
        return
    attributes = [node.attributes[name] for name in ("kernel_shape", "strides", "pads")]
    node.set(0, node.dtype(0), given if given is not None else (*x[:2], *_lengths(x[2:], *attributes)))


PLACES = np.array([5, 7, 13, 15], np.int64).reshape(1, 1, 2, 2)


@op(
    "MaxUnpool",
    since=22,
    types="float i64 i64",
    infer=_infer_unpool,
    examples=[
        case("f32[1,1,2,2]", PLACES, kernel_shape=[2, 2], strides=[2, 2]),
        case("f32[1,1,2,2]", PLACES, np.array([1, 1, 5, 5]), kernel_shape=[2, 2], strides=[2, 2]),
        case("f32[1,2,3]", np.array([[[1, 2, 5], [7, 8, 11]]]), kernel_shape=[3], strides=[2], pads=[0, 1]),
    ],
)
@quiet
def max_unpool(
    x: np.ndarray,
    indices: np.ndarray,
    output_shape: np.ndarray | None = None,
    *,
    kernel_shape: list[int],
    pads: list[int] | None = None,
    strides: list[int] | None = None,
) -> np.ndarray:
    """Elements of [n, channels, spatial...] back where MaxPool found them, zeros elsewhere.

    Indices count in the smallest tensor that pools to `x`; a larger `output_shape` holds it in its first corner.
    """
    if x.ndim < 3 or indices.shape != x.shape:
        raise shape_error(
            "MaxUnpool", f"an input of shape {x.shape} and indices of shape {indices.shape} do not fit together"
        )
    spatial = [length for length in _lengths(x.shape[2:], kernel_shape, strides, pads) if isinstance(length, int)]
    inner = (*x.shape[:2], *(max(length, 0) for length in spatial))
    outer = inner if output_shape is None else tuple(int(length) for length in output_shape.reshape(-1))
    count = math.prod(inner)
    if (
        len(outer) != x.ndim
        or any(length < 0 for length in outer)
        or (indices.size and not 0 <= indices.min() <= indices.max() < count)
    ):
        raise shape_error(
            "MaxUnpool", f"indices do not lie in a tensor of shape {inner}, or it has no place in {outer}"
        )
    y = np.zeros(allowed(inner, x.itemsize, "MaxUnpool"), x.dtype)
    y.reshape(-1)[indices.reshape(-1)] = x.reshape(-1)
    if outer == inner:
        return y
    shared = tuple(slice(0, min(pair)) for pair in zip(inner, outer, strict=True))
    made = np.zeros(allowed(outer, x.itemsize, "MaxUnpool"), x.dtype)
    made[shared] = y[shared]
    return made


def _infer_roi(node: Inference) -> None:
    x, rois, pooled = node.shape(0), node.shape(1), node.attributes["pooled_shape"]
    if (x is not None and len(x) != 4) or (rois is not None and len(rois) != 2) or len(pooled) != 2:
        node.fail(
            f"an input of shape {x} and regions of shape {rois} pooled to {pooled}; rank 4, rank 2 and two lengths are "
            "needed"
        )
    node.set(0, node.dtype(0), (rois[0] if rois is not None else None, x[1] if x is not None else None, *pooled))


@op(
    "MaxRoiPool",
    since=22,
    types="T=float T",
    traits=(Trait.KEEPS_F32,),
    infer=_infer_roi,
    examples=[
        case(
            "f32[2,3,8,9]",
            np.array([[0, 1, 1, 6, 5], [1, 0, 2, 3, 7], [1, 4, 4, 4, 4]], np.float32),
            pooled_shape=[2, 3],
        ),
        case(
            "f32[1,2,8,9]",
            np.array([[0, 2, 3, 15, 30], [0, 20, 20, 40, 40]], np.float32),
            pooled_shape=[3, 2],
            spatial_scale=0.5,
        ),
        case("f32[1,2,4,4]", "f32[0,5]", pooled_shape=[2, 2]),
    ],
)
@quiet
def max_roi_pool(x: np.ndarray, rois: np.ndarray, *, pooled_shape: list[int], spatial_scale: float = 1.0) -> np.ndarray:
    """The largest elements of a grid of bins over each region (image, x1, y1, x2, y2), [regions, channels, bins...];
    zero where a bin is empty (Girshick 2015, arXiv:1504.08083)."""
    if x.ndim != 4 or rois.ndim != 2 or rois.shape[1] != 5 or len(pooled_shape) != 2 or min(pooled_shape) < 1:
        raise shape_error(
            "MaxRoiPool",
            f"an input of shape {x.shape}, regions of shape {rois.shape} and pooled_shape {pooled_shape} do not fit "
            "together",
        )
    y = np.zeros(allowed((len(rois), x.shape[1], *pooled_shape), x.itemsize, "MaxRoiPool"), x.dtype)
    for index, (image, *corners) in enumerate(rois.astype(np.float32).tolist()):
        if not 0 <= image < len(x):
            raise shape_error("MaxRoiPool", f"region {index} is of image {image:g} of {len(x)}")
        x1, y1, x2, y2 = (math.floor(np.float32(value) * np.float32(spatial_scale) + 0.5) for value in corners)
        columns = _bins(x1, x2, pooled_shape[1], x.shape[3])
        for row, tall in enumerate(_bins(y1, y2, pooled_shape[0], x.shape[2])):
            for column, broad in enumerate(columns):
                part = x[int(image), :, tall, broad]
                if part.shape[1] and part.shape[2]:
                    y[index, :, row, column] = part.max((1, 2))
    return y


def _bins(first: int, last: int, count: int, size: int) -> list[slice]:
    """`count` parts of the elements `first` to `last`, cut to an axis of that size."""
    width = np.float32(max(last - first + 1, 1)) / np.float32(count)
    ends = [(first + math.floor(index * width), first + math.ceil((index + 1) * width)) for index in range(count)]
    return [slice(min(max(low, 0), size), min(max(high, 0), size)) for low, high in ends]
