"""Functions of layers that PyTorch has in its root in another order of arguments than in nn.functional."""

from __future__ import annotations

from collections.abc import Sequence

from ..nn import functional
from ..tensors.core.tensor import Tensor

MODES = ("bilinear", "nearest", "bicubic")
PADDING = ("zeros", "border", "reflection")


def batch_norm(
    input: Tensor, weight: Tensor | None, bias: Tensor | None, running_mean: Tensor | None,
    running_var: Tensor | None, training: bool, momentum: float, eps: float, cudnn_enabled: bool = False,
) -> Tensor:  # fmt: skip
    """As `nn.functional.batch_norm`."""
    return functional.batch_norm(input, running_mean, running_var, weight, bias, training, momentum, eps)


def instance_norm(
    input: Tensor, weight: Tensor | None, bias: Tensor | None, running_mean: Tensor | None,
    running_var: Tensor | None, use_input_stats: bool, momentum: float, eps: float, cudnn_enabled: bool = False,
) -> Tensor:  # fmt: skip
    """As `nn.functional.instance_norm`."""
    return functional.instance_norm(input, running_mean, running_var, weight, bias, use_input_stats, momentum, eps)


def embedding(
    weight: Tensor, indices: Tensor, padding_idx: int = -1, scale_grad_by_freq: bool = False, sparse: bool = False
) -> Tensor:
    """As `nn.functional.embedding`; a `padding_idx` of -1 is none."""
    found = None if padding_idx == -1 else padding_idx
    return functional.embedding(indices, weight, found, scale_grad_by_freq=scale_grad_by_freq)


def constant_pad_nd(input: Tensor, pad: Sequence[int], value: float = 0) -> Tensor:
    """As `nn.functional.pad` with one number."""
    return functional.pad(input, pad, "constant", value)


def grid_sampler(
    input: Tensor, grid: Tensor, interpolation_mode: int, padding_mode: int, align_corners: bool
) -> Tensor:
    """As `nn.functional.grid_sample`, with the numbers of its modes."""
    return functional.grid_sample(input, grid, MODES[interpolation_mode], PADDING[padding_mode], align_corners)


grid_sampler_2d = grid_sampler_3d = grid_sampler
