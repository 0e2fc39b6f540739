"""Normalization by the statistics of rows, groups and batches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np

from ...runtime.base.errors import UsageError
from ...runtime.base.process_cache import process_cache
from ...runtime.tensor.dtype import F32, DType
from ...tensors.core.expression import Expression, apply_all, cast, leaf, op_named, shape_error
from ...tensors.core.grad_mode import no_grad
from ...tensors.core.tensor import Tensor
from ...tensors.operations.operands import apply_in
from .conv import pad

__all__ = [
    "batch_norm", "group_norm", "instance_norm", "layer_norm", "local_response_norm", "normalize", "rms_norm",
]  # fmt: skip


@process_cache(maxsize=256)
def _full(value: float, shape: tuple[int, ...], dtype: DType) -> np.ndarray:
    return np.full(shape, value, dtype.as_numpy())


def _or_full(tensor: Tensor | None, value: float, shape: Sequence[int], dtype: DType) -> Expression:
    """A tensor, or one full of a number."""
    return leaf(_full(value, tuple(shape), dtype)) if tensor is None else cast(tensor.expression, dtype)


def _last(input: Tensor, normalized_shape: Any, what: str) -> tuple[int, ...]:
    shape = (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)
    if not shape or input.shape[-len(shape) :] != shape:
        raise shape_error(f"{what}: a tensor of shape {list(input.shape)} does not end in {list(shape)}")
    return shape


def layer_norm(
    input: Tensor, normalized_shape: Any, weight: Tensor | None = None, bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:  # fmt: skip
    """Zero mean and unit variance over the last dims, then times weight and plus bias of their shape."""
    shape = _last(input, normalized_shape, "layer_norm")
    inputs = [input.expression, _or_full(weight, 1, shape, input.dtype)]
    if bias is not None:
        inputs.append(bias.expression)
    return Tensor(apply_in(op_named("LayerNormalization"), inputs, {"axis": -len(shape), "epsilon": eps}))


def rms_norm(input: Tensor, normalized_shape: Any, weight: Tensor | None = None, eps: float | None = None) -> Tensor:
    """A mean square of 1 over the last dims, then times weight of their shape; `eps` None is the dtype's epsilon."""
    shape = _last(input, normalized_shape, "rms_norm")
    floor = float(ml_dtypes.finfo(input.dtype.as_numpy()).eps) if eps is None else eps  # type: ignore[no-untyped-call]
    if input.dtype.is_complex:  # as in torch, squares are complex
        found = input / ((input * input).mean(list(range(-len(shape), 0)), keepdim=True) + floor).sqrt()
        return found if weight is None else found * weight
    inputs = [input.expression, _or_full(weight, 1, shape, input.dtype)]
    return Tensor(apply_in(op_named("RMSNormalization"), inputs, {"axis": -len(shape), "epsilon": floor}))


def group_norm(
    input: Tensor, num_groups: int, weight: Tensor | None = None, bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:  # fmt: skip
    """Zero mean and unit variance over groups of channels of [N, C, ...], then weight and bias [C]."""
    if input.ndim < 2 or input.shape[1] % num_groups:
        raise shape_error(f"group_norm: {num_groups} groups do not fit a tensor of shape {list(input.shape)}")
    if input.ndim == 2:
        return group_norm(input.unsqueeze(2), num_groups, weight, bias, eps).squeeze(2)
    channels = input.shape[1:2]
    inputs = [input.expression, _or_full(weight, 1, channels, input.dtype), _or_full(bias, 0, channels, input.dtype)]
    return Tensor(apply_in(op_named("GroupNormalization"), inputs, {"num_groups": num_groups, "epsilon": eps}))


def _moved(running: Tensor, found: Tensor, momentum: Any) -> None:
    running.become(running * (1 - momentum) + found.to(running.dtype) * momentum)


def batch_norm(
    input: Tensor, running_mean: Tensor | None, running_var: Tensor | None,
    weight: Tensor | None = None, bias: Tensor | None = None, training: bool = False, momentum: Any = 0.1,
    eps: float = 1e-5,
) -> Tensor:  # fmt: skip
    """Zero mean and unit variance of channels of [N, C, ...], then weight and bias [C].

    In training the statistics are those of the batch, and the running ones move towards them by `momentum`; otherwise
    they are the running ones.
    """
    if input.ndim < 2 and input.numel():
        raise shape_error(f"batch_norm: a tensor of shape {list(input.shape)} does not have channels in dim 1")
    if not input.numel():  # weight and bias have gradients of zeros
        return sum((each.sum() * 0 for each in (weight, bias) if each is not None), start=input)
    channels, dtype = input.shape[1:2], input.dtype
    if not training and (running_mean is None or running_var is None):
        raise UsageError("E-NN-VALUE", None, "batch_norm without training needs running_mean and running_var")
    wide = F32 if dtype.bits < 32 else dtype
    x = cast(input.expression, wide)
    scales = [_or_full(weight, 1, channels, wide), _or_full(bias, 0, channels, wide)]
    op = op_named("BatchNormalization")
    if not training:
        statistics = [_or_full(running_mean, 0, channels, wide), _or_full(running_var, 1, channels, wide)]
        return Tensor(cast(apply_all(op, [x, *scales, *statistics], {"epsilon": eps})[0], dtype))
    count = input.numel() // max(1, input.shape[1])
    if count < 2:
        why = f"batch_norm in training of one element a channel, {list(input.shape)}"
        raise UsageError("E-NN-SHAPE", None, why, hint="Use a larger batch, or eval()")
    unused = [_or_full(None, value, channels, wide) for value in (0, 1)]
    options = {"epsilon": eps, "training_mode": 1, "momentum": 0.0}
    found, mean, variance = apply_all(op, [x, *scales, *unused], options, 3)
    with no_grad():
        if running_mean is not None:
            _moved(running_mean, Tensor(mean).detach(), momentum)
        if running_var is not None:
            _moved(running_var, Tensor(variance).detach() * (count / (count - 1)), momentum)
    return Tensor(cast(found, dtype))


def instance_norm(
    input: Tensor, running_mean: Tensor | None = None, running_var: Tensor | None = None,
    weight: Tensor | None = None, bias: Tensor | None = None, use_input_stats: bool = True,
    momentum: float = 0.1, eps: float = 1e-5,
) -> Tensor:  # fmt: skip
    """Zero mean and unit variance of each channel of each sample of [N, C, ...], then weight and bias [C].

    Running statistics move towards those of the input by `momentum`; they are used without `use_input_stats`.
    """
    if not use_input_stats:
        return batch_norm(input, running_mean, running_var, weight, bias, False, momentum, eps)
    if input.ndim < 3 or input[0, 0].numel() < 2:
        raise UsageError("E-NN-SHAPE", None, f"instance_norm of one element a channel, {list(input.shape)}")
    dims = list(range(2, input.ndim))
    with no_grad():
        if running_mean is not None:
            _moved(running_mean, input.mean(dims).mean(0), momentum)
        if running_var is not None:
            _moved(running_var, input.var(dims).mean(0), momentum)
    channels = input.shape[1:2]
    inputs = [input.expression, _or_full(weight, 1, channels, input.dtype), _or_full(bias, 0, channels, input.dtype)]
    return Tensor(apply_in(op_named("InstanceNormalization"), inputs, {"epsilon": eps}))


def local_response_norm(input: Tensor, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0) -> Tensor:
    """x over a power of the mean square of `size` neighbouring channels of [N, C, ...]."""
    if not input.numel():
        return input
    squares = input.square()
    before, after = size // 2, (size - 1) // 2
    count = input.shape[1]
    total = squares
    for step in (*range(-before, 0), *range(1, after + 1)):
        begin, end = max(0, step), min(count, count + step)
        if begin < end:
            part = squares.narrow(1, begin, end - begin)
            padded = [0, 0] * (input.ndim - 2) + [max(0, -step), max(0, step)]
            total = total + pad(part, padded)
    return input / (total * (alpha / size) + k) ** beta


def normalize(input: Tensor, p: float = 2.0, dim: int = 1, eps: float = 1e-12) -> Tensor:
    """x over its p-norm along a dim, which is raised to `eps`."""
    return input / input.norm(p, dim, keepdim=True).clamp(min=eps)
