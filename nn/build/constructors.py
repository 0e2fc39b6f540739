"""Layers from a VarBuilder, by candle's names. The parameters are those of the file, or of a `VarMap`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from ..core.module import Module
from ..core.parameter import Parameter
from ..functional.sizes import Size
from ..init.distributions import skipped
from ..layers.activation import PReLU
from ..layers.conv import Conv1d, Conv2d, ConvTranspose1d, ConvTranspose2d
from ..layers.linear import Linear
from ..layers.norm import BatchNorm2d, GroupNorm, LayerNorm, RMSNorm
from ..layers.recurrent import GRU, LSTM
from ..layers.sparse import Embedding
from .var_builder import VarBuilder

__all__ = [
    "batch_norm", "conv1d", "conv1d_no_bias", "conv2d", "conv2d_no_bias", "conv_transpose1d", "conv_transpose2d",
    "embedding", "group_norm", "gru", "layer_norm", "layer_norm_no_bias", "linear", "linear_b", "linear_no_bias",
    "load_from", "lstm", "prelu", "rms_norm",
]  # fmt: skip
M = TypeVar("M", bound=Module)


def load_from(module: M, vb: VarBuilder) -> M:
    """Give a module the tensors of a VarBuilder under its names, in their dtype; those of a `VarMap` are shared.

    Raises FormatError or UsageError if one is missing or has another shape.
    """
    for path, each in module.named_modules():
        at = vb.pp(path) if path else vb
        for name, parameter in each._parameters.items():
            if parameter is not None:
                found = at.get_with_hints(parameter.shape, name, _as(parameter))
                if isinstance(found, Parameter):
                    each._parameters[name] = found
                else:
                    parameter.data = found
        for name, buffer in each._buffers.items():
            if buffer is not None and name not in each._transient and at.contains_tensor(name):
                buffer.data = at.get(buffer.shape, name)
    return module


def _as(parameter: Parameter) -> Callable[[Any], Any]:
    return lambda made: made.__setattr__("data", parameter.data.to(made.dtype))


def _made(kind: Callable[..., M], vb: VarBuilder, *arguments: Any, **options: Any) -> M:
    """A layer of the parameters of `vb`; initial values are drawn for a `VarMap` alone."""
    with skipped(not vb.draws):
        layer = kind(*arguments, **options)
    return load_from(layer, vb)


def linear(in_dim: int, out_dim: int, vb: VarBuilder, bias: bool = True) -> Linear:
    """A linear layer of `weight` [out_dim, in_dim] and `bias` [out_dim]."""
    return _made(Linear, vb, in_dim, out_dim, bias)


def linear_b(in_dim: int, out_dim: int, bias: bool, vb: VarBuilder) -> Linear:
    """A linear layer with or without a bias."""
    return linear(in_dim, out_dim, vb, bias)


def linear_no_bias(in_dim: int, out_dim: int, vb: VarBuilder) -> Linear:
    """A linear layer without a bias."""
    return linear(in_dim, out_dim, vb, False)


def conv1d(
    in_channels: int, out_channels: int, kernel_size: Size, vb: VarBuilder, bias: bool = True, **options: Any
) -> Conv1d:
    """A convolution; `options` are those of Conv1d: stride, padding, dilation, groups."""
    return _made(Conv1d, vb, in_channels, out_channels, kernel_size, bias=bias, **options)


def conv1d_no_bias(in_channels: int, out_channels: int, kernel_size: Size, vb: VarBuilder, **options: Any) -> Conv1d:
    """A convolution without a bias."""
    return conv1d(in_channels, out_channels, kernel_size, vb, False, **options)


def conv2d(
    in_channels: int, out_channels: int, kernel_size: Size, vb: VarBuilder, bias: bool = True, **options: Any
) -> Conv2d:
    """A convolution; `options` are those of Conv2d: stride, padding, dilation, groups."""
    return _made(Conv2d, vb, in_channels, out_channels, kernel_size, bias=bias, **options)


def conv2d_no_bias(in_channels: int, out_channels: int, kernel_size: Size, vb: VarBuilder, **options: Any) -> Conv2d:
    """A convolution without a bias."""
    return conv2d(in_channels, out_channels, kernel_size, vb, False, **options)


def conv_transpose1d(
    in_channels: int, out_channels: int, kernel_size: Size, vb: VarBuilder, bias: bool = True, **options: Any
) -> ConvTranspose1d:
    """A transposed convolution; `options` are those of ConvTranspose1d."""
    return _made(ConvTranspose1d, vb, in_channels, out_channels, kernel_size, bias=bias, **options)


def conv_transpose2d(
    in_channels: int, out_channels: int, kernel_size: Size, vb: VarBuilder, bias: bool = True, **options: Any
) -> ConvTranspose2d:
    """A transposed convolution; `options` are those of ConvTranspose2d."""
    return _made(ConvTranspose2d, vb, in_channels, out_channels, kernel_size, bias=bias, **options)


def embedding(in_size: int, out_size: int, vb: VarBuilder) -> Embedding:
    """A table of `weight` [in_size, out_size]."""
    return _made(Embedding, vb, in_size, out_size)


def layer_norm(size: Any, eps: float, vb: VarBuilder, bias: bool = True) -> LayerNorm:
    """A layer norm of `weight` and `bias`."""
    return _made(LayerNorm, vb, size, eps, bias=bias)


def layer_norm_no_bias(size: Any, eps: float, vb: VarBuilder) -> LayerNorm:
    """A layer norm without a bias."""
    return layer_norm(size, eps, vb, False)


def rms_norm(size: Any, eps: float, vb: VarBuilder) -> RMSNorm:
    """An RMS norm of `weight`."""
    return _made(RMSNorm, vb, size, eps)


def group_norm(num_groups: int, num_channels: int, eps: float, vb: VarBuilder) -> GroupNorm:
    """A group norm of `weight` and `bias`."""
    return _made(GroupNorm, vb, num_groups, num_channels, eps)


def batch_norm(num_features: int, eps: float, vb: VarBuilder) -> BatchNorm2d:
    """A batch norm of images, of `weight`, `bias`, `running_mean` and `running_var`."""
    return _made(BatchNorm2d, vb, num_features, eps)


def lstm(in_dim: int, hidden_dim: int, vb: VarBuilder, **options: Any) -> LSTM:
    """An LSTM of `weight_ih_l0` and so on; `options` are those of LSTM."""
    return _made(LSTM, vb, in_dim, hidden_dim, **options)


def gru(in_dim: int, hidden_dim: int, vb: VarBuilder, **options: Any) -> GRU:
    """A GRU of `weight_ih_l0` and so on; `options` are those of GRU."""
    return _made(GRU, vb, in_dim, hidden_dim, **options)


def prelu(num_channels: int | None, vb: VarBuilder) -> PReLU:
    """A PReLU of `weight`, one for each channel, or one for all of them."""
    return _made(PReLU, vb, num_channels or 1)
