"""Resizing, sampling and shuffling of images [N, C, ...]."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...runtime.base.errors import UsageError
from ...runtime.base.process_cache import process_cache
from ...runtime.base.units import counted
from ...runtime.tensor.dtype import U8
from ...tensors.core.expression import apply, leaf, op_named, shape_error
from ...tensors.core.tensor import Tensor
from ...tensors.operations.operands import require_real
from .pooling import adaptive_avg_pool1d, adaptive_avg_pool2d, adaptive_avg_pool3d

__all__ = [
    "affine_grid", "channel_shuffle", "grid_sample", "interpolate", "pixel_shuffle", "pixel_unshuffle", "upsample",
    "upsample_bilinear", "upsample_nearest",
]  # fmt: skip
DIMS = {"linear": 1, "bilinear": 2, "bicubic": 2, "trilinear": 3}
"""Modes of interpolation that compute, and the dims of their images."""
SAMPLING = {"bilinear": "linear", "nearest": "nearest", "bicubic": "cubic"}


def pixel_shuffle(input: Tensor, upscale_factor: int) -> Tensor:
    """[..., C * r * r, H, W] as [..., C, H * r, W * r]."""
    r = upscale_factor
    *lead, channels, height, width = input.shape
    if channels % (r * r):
        raise shape_error(f"pixel_shuffle: {channels} channels do not make squares of {r} by {r}")
    x = input.reshape(math.prod(lead), channels // (r * r), r, r, height, width).permute(0, 1, 4, 2, 5, 3)
    return x.reshape(*lead, channels // (r * r), height * r, width * r)


def pixel_unshuffle(input: Tensor, downscale_factor: int) -> Tensor:
    """[..., C, H * r, W * r] as [..., C * r * r, H, W]."""
    r = downscale_factor
    *lead, channels, height, width = input.shape
    if height % r or width % r:
        raise shape_error(f"pixel_unshuffle: {height} by {width} is not a multiple of {r}")
    x = input.reshape(math.prod(lead), channels, height // r, r, width // r, r).permute(0, 1, 3, 5, 2, 4)
    return x.reshape(*lead, channels * r * r, height // r, width // r)


def channel_shuffle(input: Tensor, groups: int) -> Tensor:
    """Channels of [N, C, ...] in the order: the first of each group, the second of each group, and so on."""
    count = input.shape[1]
    if count % groups:
        raise shape_error(f"channel_shuffle: {counted(count, 'channel', verb='does')} not make {groups} groups")
    x = input.unflatten(1, (groups, count // groups)).transpose(1, 2)
    return x.reshape(input.shape)


def interpolate(
    input: Tensor, size: Any = None, scale_factor: Any = None, mode: str = "nearest",
    align_corners: bool | None = None, recompute_scale_factor: bool | None = None, antialias: bool = False,
) -> Tensor:  # fmt: skip
    """Images [N, C, ...] in another size.

    Args:
        size: of the result, for all dims or each; or give `scale_factor`.
        mode: "nearest", "nearest-exact", "linear", "bilinear", "bicubic", "trilinear" or "area".
        align_corners: whether the corners of both images are at the same positions.
        recompute_scale_factor: the factor is that of the sizes, which are rounded.
        antialias: widen the filter where images become smaller.
    """
    dims = input.ndim - 2
    if DIMS.get(mode, dims) != dims or dims not in (1, 2, 3):
        raise shape_error(f"interpolate: {mode} of a tensor of shape {list(input.shape)}")
    if (size is None) == (scale_factor is None):
        raise UsageError("E-NN-VALUE", None, "interpolate needs either size or scale_factor")
    lengths = input.shape[2:]
    if size is not None:
        wanted = [size] * dims if isinstance(size, int) else [int(each) for each in size]
        scales: list[float | None] = [None] * dims
    else:
        factors = [scale_factor] * dims if isinstance(scale_factor, int | float) else list(scale_factor)
        wanted = [math.floor(length * float(factor)) for length, factor in zip(lengths, factors, strict=True)]
        scales = [None if recompute_scale_factor else 1.0 / float(factor) for factor in factors]
    if mode == "area":
        return (adaptive_avg_pool1d, adaptive_avg_pool2d, adaptive_avg_pool3d)[dims - 1](input, wanted)
    x = input
    blended = mode in DIMS and input.dtype.kind != "float"
    if blended and input.dtype is not U8:
        why = f"{mode} interpolation of {input.dtype} is not defined"
        raise UsageError("E-TENSOR-DTYPE", None, why, hint="Convert it with float()")
    x = input.float() if blended else input
    for dim in range(input.ndim - 1, 1, -1) if blended else range(2, input.ndim):
        length, out, scale = lengths[dim - 2], wanted[dim - 2], scales[dim - 2]
        if mode in ("nearest", "nearest-exact"):
            positions = (np.arange(out) + 0.5 * (mode == "nearest-exact")) * (length / out if scale is None else scale)
            index = np.minimum(np.floor(positions.astype(np.float32)), length - 1).astype(np.int64)
            x = x.index_select(dim, Tensor(leaf(index)))
        elif mode in DIMS:
            weights = _filter(length, out, scale, mode == "bicubic", bool(align_corners), antialias)
            matrix = Tensor(leaf(weights.astype(x.dtype.as_numpy())))
            x = (x.movedim(dim, -1) @ matrix).movedim(-1, dim)
            x = (x + 0.5).floor().clamp(0, 255) if blended else x
        else:
            expected = ", ".join(("nearest", "nearest-exact", *DIMS, "area"))
            raise UsageError("E-NN-VALUE", None, f"{mode!r} is not a mode of interpolation", expected=expected)
    return x.to(U8) if blended else x


def upsample(
    input: Tensor, size: Any = None, scale_factor: Any = None, mode: str = "nearest", align_corners: bool | None = None
) -> Tensor:
    """An older name of `interpolate`."""
    return interpolate(input, size, scale_factor, mode, align_corners)


def upsample_nearest(input: Tensor, size: Any = None, scale_factor: Any = None) -> Tensor:
    """As `interpolate` by the nearest element."""
    return interpolate(input, size, scale_factor)


def upsample_bilinear(input: Tensor, size: Any = None, scale_factor: Any = None) -> Tensor:
    """As `interpolate`, bilinear and with the corners at the same positions."""
    return interpolate(input, size, scale_factor, "bilinear", True)


def _cubic(x: np.ndarray, a: float) -> np.ndarray:
    """Keys' cubic convolution kernel."""
    x = np.abs(x)
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    far = ((a * x - 5 * a) * x + 8 * a) * x - 4 * a
    return np.where(x <= 1, near, np.where(x < 2, far, 0))


@process_cache(maxsize=64)
def _filter(length: int, out: int, scale: float | None, cubic: bool, aligned: bool, antialias: bool) -> np.ndarray:
    """[length, out]: by how much each element counts for each of the result."""
    found = np.zeros((length, out))
    if aligned:
        step = (length - 1) / (out - 1) if out > 1 else 0.0
        centers = np.arange(out) * step
    else:
        step = length / out if scale is None else scale
        centers = (np.arange(out) + 0.5) * step - 0.5
    wide = antialias and step > 1
    spread = step if wide else 1.0
    reach = math.ceil((2 if cubic else 1) * spread)
    if not cubic and not antialias:
        centers = np.maximum(centers, 0)
    for index, center in enumerate(centers):
        near = np.arange(math.floor(center) - reach + 1, math.floor(center) + reach + 1)
        distance = (near - center) / spread
        share = _cubic(distance, -0.5 if antialias else -0.75) if cubic else np.maximum(0, 1 - np.abs(distance))
        if antialias:
            inside = (near >= 0) & (near < length)
            near, share = near[inside], share[inside]
            share = share / share.sum()
        np.add.at(found[:, index], np.clip(near, 0, length - 1), share)
    return found


def affine_grid(theta: Tensor, size: Sequence[int], align_corners: bool | None = None) -> Tensor:
    """The positions [N, H, W, 2] that affine maps [N, 2, 3] take the pixels of images [N, C, H, W] from; of volumes
    likewise."""
    lengths = list(size)[2:]
    axes = []
    for length in lengths:
        places = np.linspace(-1, 1, length) if length > 1 else np.zeros(1)
        axes.append(places if align_corners else places * (length - 1) / length)
    mesh = np.meshgrid(*axes, indexing="ij")[::-1]
    base = np.stack([*mesh, np.ones_like(mesh[0])], -1).reshape(-1, len(lengths) + 1)
    points = Tensor(leaf(base.astype(theta.dtype.as_numpy())))
    return (points @ theta.mT).reshape(size[0], *lengths, len(lengths))


def grid_sample(
    input: Tensor, grid: Tensor, mode: str = "bilinear", padding_mode: str = "zeros",
    align_corners: bool | None = None,
) -> Tensor:  # fmt: skip
    """Images [N, C, H, W] at positions [N, h, w, 2] from -1 to 1: x, then y; of volumes likewise."""
    if mode not in SAMPLING or padding_mode not in ("zeros", "border", "reflection"):
        known = f"{', '.join(SAMPLING)} with zeros, border or reflection"
        raise UsageError("E-NN-VALUE", None, f"grid_sample with {mode!r} and {padding_mode!r}", expected=known)
    require_real("grid_sample", input, grid)
    options = {"mode": SAMPLING[mode], "padding_mode": padding_mode, "align_corners": int(bool(align_corners))}
    return Tensor(apply(op_named("GridSample"), [input.expression, grid.expression], options))
