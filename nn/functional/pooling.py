"""Pooling of images [N, C, ...] and [C, ...]."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...runtime.base.errors import UsageError
from ...tensors.core.expression import apply_all, leaf, op_named, shape_error
from ...tensors.core.tensor import Tensor
from ...tensors.operations.operands import apply_in
from ...tensors.operations.random import rand
from .sizes import Size, batched, per_dim, unbatched

__all__ = [
    "adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d", "adaptive_max_pool1d", "adaptive_max_pool2d",
    "adaptive_max_pool3d", "avg_pool1d", "avg_pool2d", "avg_pool3d", "fractional_max_pool2d", "fractional_max_pool3d",
    "lp_pool1d", "lp_pool2d", "lp_pool3d", "max_pool1d", "max_pool2d", "max_pool3d", "max_unpool1d", "max_unpool2d",
    "max_unpool3d",
]  # fmt: skip


def _only(size: Any) -> Any:
    """The number of a list of one, which stands for all dims."""
    return size[0] if isinstance(size, list | tuple) and len(size) == 1 else size


def _strides(stride: Any, kernel: tuple[int, ...]) -> tuple[int, ...]:
    """The steps of windows, by default their sizes."""
    is_default = stride is None or (isinstance(stride, list | tuple) and not stride)
    return kernel if is_default else per_dim(_only(stride), len(kernel), "stride")


def max_pooled(
    dims: int, input: Tensor, kernel_size: Size, stride: Any, padding: Size, dilation: Size, ceil_mode: bool,
    return_indices: bool,
) -> Any:  # fmt: skip
    """The largest element of each window; and its flat position in the image, if asked."""
    if input.dtype.kind in ("int", "uint") and input.dtype.bits > 8:
        found = max_pooled(
            dims, input.double(), kernel_size, stride, padding, dilation, ceil_mode, return_indices
        )  # fmt: skip
        return (found[0].to(input.dtype), found[1]) if return_indices else found.to(input.dtype)
    x, added = batched(input, dims, f"max_pool{dims}d")
    kernel, pads = per_dim(kernel_size, dims, "kernel_size"), per_dim(padding, dims, "padding")
    if any(2 * p > k for p, k in zip(pads, kernel, strict=True)):
        why = f"padding {list(pads)} is more than half of the window {list(kernel)}"
        raise UsageError("E-NN-VALUE", None, why)
    options = {
        "kernel_shape": kernel,
        "strides": _strides(stride, kernel),
        "pads": pads * 2,
        "dilations": per_dim(dilation, dims, "dilation"),
        "ceil_mode": int(ceil_mode),
    }
    if not return_indices:
        return unbatched(Tensor(apply_in(op_named("MaxPool"), [x.expression], options)), added)
    values, places = (Tensor(each) for each in apply_all(op_named("MaxPool"), [x.expression], options, 2))
    return unbatched(values, added), unbatched(places % math.prod(x.shape[2:]), added)


def max_pool1d(
    input: Tensor, kernel_size: Size, stride: Any = None, padding: Size = 0, dilation: Size = 1,
    ceil_mode: bool = False, return_indices: bool = False,
) -> Any:  # fmt: skip
    """The largest element of each window of [N, C, L]."""
    return max_pooled(1, input, kernel_size, stride, padding, dilation, ceil_mode, return_indices)


def max_pool2d(
    input: Tensor, kernel_size: Size, stride: Any = None, padding: Size = 0, dilation: Size = 1,
    ceil_mode: bool = False, return_indices: bool = False,
) -> Any:  # fmt: skip
    """The largest element of each window of [N, C, H, W]."""
    return max_pooled(2, input, kernel_size, stride, padding, dilation, ceil_mode, return_indices)


def max_pool3d(
    input: Tensor, kernel_size: Size, stride: Any = None, padding: Size = 0, dilation: Size = 1,
    ceil_mode: bool = False, return_indices: bool = False,
) -> Any:  # fmt: skip
    """The largest element of each window of [N, C, D, H, W]."""
    return max_pooled(3, input, kernel_size, stride, padding, dilation, ceil_mode, return_indices)


def averaged(
    dims: int, input: Tensor, kernel_size: Size, stride: Any, padding: Size, ceil_mode: bool,
    count_include_pad: bool, divisor_override: int | None = None,
) -> Tensor:  # fmt: skip
    """The mean of each window; `divisor_override` replaces its number of elements."""
    if input.dtype.kind in ("int", "uint"):
        found = averaged(
            dims, input.double(), kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override
        )  # fmt: skip
        return (found + found.sign() * 1e-9).to(input.dtype)  # a mean of 3 may be 2.9999999999999996
    x, added = batched(input, dims, f"avg_pool{dims}d")
    kernel = per_dim(kernel_size, dims, "kernel_size")
    pads = per_dim(_only(padding), dims, "padding")
    options = {
        "kernel_shape": kernel,
        "strides": _strides(stride, kernel),
        "pads": pads * 2,
        "ceil_mode": int(ceil_mode),
        "count_include_pad": int(count_include_pad),
    }
    if divisor_override is None:
        return unbatched(Tensor(apply_in(op_named("AveragePool"), [x.expression], options)), added)
    ones = Tensor(leaf(np.ones((1, 1, *x.shape[2:]), x.dtype.as_numpy())))
    options["count_include_pad"] = 0
    means, share = (Tensor(apply_in(op_named("AveragePool"), [each.expression], options)) for each in (x, ones))
    counts = _counts(x.shape[2:], means.shape[2:], kernel, options["strides"], pads)
    found = means * share * Tensor(leaf(counts.astype(x.dtype.as_numpy()))) / divisor_override
    return unbatched(found, added)


def _counts(
    size: Sequence[int], out: Sequence[int], kernel: Sequence[int], stride: Any, pads: Sequence[int]
) -> np.ndarray:
    """How many elements of the image each window has."""
    found = np.ones((), np.int64)
    for dim, length in enumerate(size):
        start = np.arange(out[dim]) * stride[dim] - pads[dim]
        count = np.minimum(start + kernel[dim], length) - np.maximum(start, 0)
        found = found[..., None] * count
    return found


def avg_pool1d(
    input: Tensor, kernel_size: Size, stride: Any = None, padding: Size = 0, ceil_mode: bool = False,
    count_include_pad: bool = True,
) -> Tensor:  # fmt: skip
    """The mean of each window of [N, C, L]."""
    return averaged(1, input, kernel_size, stride, padding, ceil_mode, count_include_pad)


def avg_pool2d(
    input: Tensor, kernel_size: Size, stride: Any = None, padding: Size = 0, ceil_mode: bool = False,
    count_include_pad: bool = True, divisor_override: int | None = None,
) -> Tensor:  # fmt: skip
    """The mean of each window of [N, C, H, W]."""
    return averaged(2, input, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)


def avg_pool3d(
    input: Tensor, kernel_size: Size, stride: Any = None, padding: Size = 0, ceil_mode: bool = False,
    count_include_pad: bool = True, divisor_override: int | None = None,
) -> Tensor:  # fmt: skip
    """The mean of each window of [N, C, D, H, W]."""
    return averaged(3, input, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)


def _powered(dims: int, input: Tensor, norm_type: float, kernel_size: Size, stride: Any, ceil_mode: bool) -> Tensor:
    kernel = per_dim(kernel_size, dims, "kernel_size")
    mean = averaged(dims, input**norm_type, kernel, stride, 0, ceil_mode, True)
    return (mean.relu() * math.prod(kernel)) ** (1 / norm_type)


def lp_pool1d(
    input: Tensor, norm_type: float, kernel_size: Size, stride: Any = None, ceil_mode: bool = False
) -> Tensor:
    """The p-norm of each window of [N, C, L]."""
    return _powered(1, input, norm_type, kernel_size, stride, ceil_mode)


def lp_pool2d(
    input: Tensor, norm_type: float, kernel_size: Size, stride: Any = None, ceil_mode: bool = False
) -> Tensor:
    """The p-norm of each window of [N, C, H, W]."""
    return _powered(2, input, norm_type, kernel_size, stride, ceil_mode)


def lp_pool3d(
    input: Tensor, norm_type: float, kernel_size: Size, stride: Any = None, ceil_mode: bool = False
) -> Tensor:
    """The p-norm of each window of [N, C, D, H, W]."""
    return _powered(3, input, norm_type, kernel_size, stride, ceil_mode)


def _output_size(input: Tensor, output_size: Any, dims: int) -> list[int]:
    """The lengths of an output; None keeps the input's."""
    given = [output_size] * dims if output_size is None or isinstance(output_size, int) else list(output_size)
    if len(given) != dims:
        raise UsageError("E-NN-SHAPE", None, f"output_size {given} does not have {dims} numbers")
    lengths = input.shape[-dims:]
    return [length if wanted is None else int(wanted) for wanted, length in zip(given, lengths, strict=True)]


def _bounds(length: int, count: int) -> list[tuple[int, int]]:
    """Begin and end of each of `count` windows."""
    return [(index * length // count, -(-(index + 1) * length // count)) for index in range(count)]


def _adaptive_mean(input: Tensor, output_size: Any, dims: int) -> Tensor:
    x, added = batched(input, dims, f"adaptive_avg_pool{dims}d")
    wanted = _output_size(x, output_size, dims)
    lengths = x.shape[2:]
    if all(each == 1 for each in wanted):
        return unbatched(x.mean(list(range(2, x.ndim)), keepdim=True), added)
    if not any(length % count for length, count in zip(lengths, wanted, strict=True)):
        window = [length // count for length, count in zip(lengths, wanted, strict=True)]
        return unbatched(averaged(dims, x, window, window, 0, False, True), added)
    for dim, count in enumerate(wanted, 2):
        share = np.zeros((x.shape[dim], count))
        for index, (begin, end) in enumerate(_bounds(x.shape[dim], count)):
            share[begin:end, index] = 1 / (end - begin)
        weights = Tensor(leaf(share.astype(x.dtype.as_numpy())))
        x = (x.movedim(dim, -1) @ weights).movedim(-1, dim)
    return unbatched(x, added)


def _adaptive_max(input: Tensor, output_size: Any, dims: int, return_indices: bool) -> Any:
    """The largest elements, the last dim first, so that the first of equal ones is the first in memory."""
    x, added = batched(input, dims, f"adaptive_max_pool{dims}d")
    places = _numbered(x, dims)
    for dim, count in reversed(list(enumerate(_output_size(x, output_size, dims), 2))):
        bounds = _bounds(x.shape[dim], count)
        longest = max((end - begin for begin, end in bounds), default=1)
        chosen = [[min(begin + step, end - 1) for step in range(longest)] for begin, end in bounds]
        rows = Tensor(leaf(np.array(chosen, np.int64).reshape(-1)))
        windows, numbers = (each.index_select(dim, rows).unflatten(dim, (count, longest)) for each in (x, places))
        x, best = windows.max(dim + 1, True)
        x, places = x.squeeze(dim + 1), numbers.gather(dim + 1, best).squeeze(dim + 1)
    found = unbatched(x, added)
    return (found, unbatched(places, added)) if return_indices else found


def _numbered(x: Tensor, dims: int) -> Tensor:
    """The number of each element in its image."""
    lengths = x.shape[-dims:]
    return Tensor(leaf(np.arange(math.prod(lengths)).reshape(lengths))).broadcast_to(x.shape)


def adaptive_avg_pool1d(input: Tensor, output_size: Any) -> Tensor:
    """The means of `output_size` windows of [N, C, L]."""
    return _adaptive_mean(input, output_size, 1)


def adaptive_avg_pool2d(input: Tensor, output_size: Any) -> Tensor:
    """The means of as many windows of [N, C, H, W] as `output_size` says, None for the length of the input."""
    return _adaptive_mean(input, output_size, 2)


def adaptive_avg_pool3d(input: Tensor, output_size: Any) -> Tensor:
    """The means of as many windows of [N, C, D, H, W] as `output_size` says, None for the length of the input."""
    return _adaptive_mean(input, output_size, 3)


def adaptive_max_pool1d(input: Tensor, output_size: Any, return_indices: bool = False) -> Any:
    """The largest elements of as many windows of [N, C, L] as `output_size` says; and their flat positions."""
    return _adaptive_max(input, output_size, 1, return_indices)


def adaptive_max_pool2d(input: Tensor, output_size: Any, return_indices: bool = False) -> Any:
    """The largest elements of as many windows of [N, C, H, W] as `output_size` says; and their flat positions."""
    return _adaptive_max(input, output_size, 2, return_indices)


def adaptive_max_pool3d(input: Tensor, output_size: Any, return_indices: bool = False) -> Any:
    """The largest elements of as many windows of [N, C, D, H, W] as `output_size` says; and their flat positions."""
    return _adaptive_max(input, output_size, 3, return_indices)


def fractional_pooled(
    dims: int, input: Tensor, kernel_size: Size, output_size: Any, output_ratio: Any, return_indices: bool,
    samples: Tensor | None,
) -> Any:  # fmt: skip
    """The largest element of windows whose positions are random (B. Graham, arXiv:1412.6071)."""
    x, added = batched(input, dims, f"fractional_max_pool{dims}d")
    lengths = x.shape[2:]
    if (output_size is None) == (output_ratio is None):
        why = "fractional pooling needs output_size or output_ratio"
        raise UsageError("E-NN-VALUE", None, why, hint="Pass one of them")
    if output_size is None:
        ratios = (output_ratio,) * dims if isinstance(output_ratio, float) else output_ratio
        output_size = [int(length * ratio) for length, ratio in zip(lengths, ratios, strict=True)]
    wanted, kernel = per_dim(output_size, dims, "output_size"), per_dim(kernel_size, dims, "kernel_size")
    if any(out + size - 1 > length for out, size, length in zip(wanted, kernel, lengths, strict=True)):
        why = f"{list(wanted)} windows of {list(kernel)} in an image of {list(lengths)}"
        raise UsageError("E-NN-VALUE", None, why, hint="Use a smaller output_size or kernel_size")
    drawn = (rand(*x.shape[:2], dims, dtype=x.dtype) if samples is None else samples).detach().array()
    places = np.zeros((*x.shape[:2], 1, 1), np.int64)
    for dim, (length, out, size) in enumerate(zip(lengths, wanted, kernel, strict=True)):
        sample = drawn[..., dim if dims == 3 else dims - 1 - dim, None]
        step = (length - size) / (out - 1) if out > 1 else 0.0
        starts = ((np.arange(out) + sample) * step).astype(np.int64) - (sample * step).astype(np.int64)
        starts[..., -1:] = length - size
        at = starts[..., None] + np.arange(size)
        places = places[..., :, None, :, None] * length + at[..., None, :, None, :]
        places = places.reshape(*x.shape[:2], math.prod(wanted[: dim + 1]), math.prod(kernel[: dim + 1]))
    flat = Tensor(leaf(places.reshape(*x.shape[:2], math.prod(wanted) * math.prod(kernel))))
    windows = x.flatten(2).gather(2, flat).unflatten(2, places.shape[2:])
    found, best = windows.max(3, True)
    numbers = flat.unflatten(2, places.shape[2:]).gather(3, best)
    shape = (*x.shape[:2], *wanted)
    values, at_ = (unbatched(each.reshape(shape), added) for each in (found, numbers))
    return (values, at_) if return_indices else values


def fractional_max_pool2d(
    input: Tensor, kernel_size: Size, output_size: Any = None, output_ratio: Any = None, return_indices: bool = False,
    _random_samples: Tensor | None = None,
) -> Any:  # fmt: skip
    """The largest element of windows of [N, C, H, W] at random positions, and their flat positions."""
    return fractional_pooled(2, input, kernel_size, output_size, output_ratio, return_indices, _random_samples)


def fractional_max_pool3d(
    input: Tensor, kernel_size: Size, output_size: Any = None, output_ratio: Any = None, return_indices: bool = False,
    _random_samples: Tensor | None = None,
) -> Any:  # fmt: skip
    """The largest element of windows of [N, C, D, H, W] at random positions, and their flat positions."""
    return fractional_pooled(3, input, kernel_size, output_size, output_ratio, return_indices, _random_samples)


def _unpooled(
    dims: int, input: Tensor, indices: Tensor, kernel_size: Size, stride: Any, padding: Size, output_size: Any
) -> Tensor:
    x, added = batched(input, dims, f"max_unpool{dims}d")
    kernel, pads = per_dim(kernel_size, dims, "kernel_size"), per_dim(padding, dims, "padding")
    steps = _strides(stride, kernel)
    if output_size is None:
        size = [(n - 1) * s - 2 * p + k for n, s, p, k in zip(x.shape[2:], steps, pads, kernel, strict=True)]
    else:
        size = list(output_size)[-dims:]
    if indices.shape != input.shape:
        raise shape_error(f"max_unpool{dims}d: indices {list(indices.shape)} of {list(input.shape)}")
    zeros = Tensor(leaf(np.zeros((*x.shape[:2], math.prod(size)), x.dtype.as_numpy())))
    found = zeros.scatter(2, indices.reshape(*x.shape[:2], -1), x.flatten(2))
    return unbatched(found.reshape(*x.shape[:2], *size), added)


def max_unpool1d(
    input: Tensor, indices: Tensor, kernel_size: Size, stride: Any = None, padding: Size = 0,
    output_size: Any = None,
) -> Tensor:  # fmt: skip
    """Zeros with the elements of a pooled [N, C, L] where `max_pool1d` found them."""
    return _unpooled(1, input, indices, kernel_size, stride, padding, output_size)


def max_unpool2d(
    input: Tensor, indices: Tensor, kernel_size: Size, stride: Any = None, padding: Size = 0,
    output_size: Any = None,
) -> Tensor:  # fmt: skip
    """Zeros with the elements of a pooled [N, C, H, W] where `max_pool2d` found them."""
    return _unpooled(2, input, indices, kernel_size, stride, padding, output_size)


def max_unpool3d(
    input: Tensor, indices: Tensor, kernel_size: Size, stride: Any = None, padding: Size = 0,
    output_size: Any = None,
) -> Tensor:  # fmt: skip
    """Zeros with the elements of a pooled [N, C, D, H, W] where `max_pool3d` found them."""
    return _unpooled(3, input, indices, kernel_size, stride, padding, output_size)
