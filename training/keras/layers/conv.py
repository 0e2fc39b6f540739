"""Convolutions of images with channels last; kernels are [window, in, out]."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar

from ....nn.core.module import LayerVariants
from ....nn.functional.conv import convolve, convolve_transposed, pad
from ....runtime.base.errors import UsageError
from ....tensors.core.tensor import Tensor
from ..core import activations, initializers, regularizers
from ..core.layer import Layer
from .basic import as_float
from .windows import channels_first, channels_last, checked_padding, for_pad, same, sizes

__all__ = [
    "Conv1D", "Conv1DTranspose", "Conv2D", "Conv2DTranspose", "Conv3D", "Conv3DTranspose", "DepthwiseConv1D",
    "DepthwiseConv2D", "SeparableConv1D", "SeparableConv2D",
]  # fmt: skip


class _Conv(Layer, LayerVariants):
    """Base of convolutions."""

    dims: ClassVar[int] = 2

    def _prepare(self, kernel_size: Any, strides: Any, padding: str, dilation_rate: Any, causal: bool = False) -> None:
        dims = self.dims
        self.kernel_size = sizes(kernel_size, dims, "kernel_size")
        self.strides, self.dilation_rate = sizes(strides, dims, "strides"), sizes(dilation_rate, dims, "dilation_rate")
        self.padding = checked_padding(padding, ("valid", "same", "causal") if causal else ("valid", "same"))
        if max(self.strides) > 1 and max(self.dilation_rate) > 1:
            raise UsageError(
                "E-NN-VALUE", None, f"{type(self).__name__} with strides and dilation_rate", expected="one"
            )

    def _padded(self, x: Tensor) -> Tensor:
        if self.padding == "valid":
            return x
        if self.padding == "causal":
            return pad(x, [(self.kernel_size[0] - 1) * self.dilation_rate[0], 0])
        pads = same(x.shape[2:], self.kernel_size, self.strides, self.dilation_rate)
        return pad(x, for_pad(pads)) if any(pads) else x

    def _convolved(self, x: Tensor, kernel: Tensor, groups: int) -> Tensor:
        """[N, C, ...] with a kernel [window, in / groups, out]."""
        weight = kernel.movedim((-1, -2), (0, 1))
        return convolve(self._padded(x), weight, None, self.strides, 0, self.dilation_rate, groups)

    def _by_channel(self, x: Tensor, kernel: Tensor) -> Tensor:
        """[N, C, ...] with a kernel [window, C, multiplier] of each channel."""
        channels, count = kernel.shape[-2:]
        weight = kernel.reshape(*kernel.shape[:-2], 1, channels * count)
        return self._convolved(x, weight, channels)

    def _ended(self, x: Tensor, bias: Tensor | None) -> Tensor:
        x = channels_last(x)
        found: Tensor = self.activation(x if bias is None else x + bias)
        return found


class _ConvNd(_Conv):
    constrained: ClassVar[Mapping[str, str]] = {"kernel_constraint": "kernel", "bias_constraint": "bias"}

    def __init__(
        self, filters: int, kernel_size: Any, strides: Any = 1, padding: str = "valid", data_format: str | None = None,
        dilation_rate: Any = 1, groups: int = 1, activation: Any = None, use_bias: bool = True,
        kernel_initializer: Any = "glorot_uniform", bias_initializer: Any = "zeros", kernel_regularizer: Any = None,
        bias_regularizer: Any = None, **options: Any,
    ) -> None:  # fmt: skip
        super().__init__(**options)
        self.require("data_format", data_format, (None, "channels_last"))
        self.filters, self.groups, self.use_bias = int(filters), groups, use_bias
        self._prepare(kernel_size, strides, padding, dilation_rate, self.dims == 1)
        self.activation = activations.get(activation)
        self.initial = [initializers.get(kernel_initializer), initializers.get(bias_initializer)]
        self.penalties = [regularizers.get(kernel_regularizer), regularizers.get(bias_regularizer)]

    def build(self, input_shape: Any) -> None:
        channels = input_shape[-1]
        if channels is None or channels % self.groups:
            why = f"{type(self).__name__} {self.name!r} of {self.groups} groups for an input of shape {input_shape}"
            raise UsageError("E-NN-SHAPE", None, why, expected="channels in the last dim, a multiple of the groups")
        shape = (*self.kernel_size, channels // self.groups, self.filters)
        self.kernel = self.add_weight(shape, self.initial[0], regularizer=self.penalties[0])
        self.bias = None
        if self.use_bias:
            self.bias = self.add_weight((self.filters,), self.initial[1], regularizer=self.penalties[1])

    def call(self, inputs: Tensor) -> Tensor:
        x = channels_first(as_float(inputs, self.kernel))
        return self._ended(self._convolved(x, self.kernel, self.groups), self.bias)


class Conv1D(_ConvNd, dims=1):
    """Convolution of [N, length, C]; padding is "valid", "same" or "causal"."""


class Conv2D(_ConvNd, dims=2):
    """Convolution of [N, height, width, C]; padding is "valid" or "same"."""


class Conv3D(_ConvNd, dims=3):
    """Convolution of [N, depth, height, width, C]; padding is "valid" or "same"."""


class _ConvTransposeNd(_Conv):
    constrained: ClassVar[Mapping[str, str]] = {"kernel_constraint": "kernel", "bias_constraint": "bias"}

    def __init__(
        self, filters: int, kernel_size: Any, strides: Any = 1, padding: str = "valid", output_padding: Any = None,
        data_format: str | None = None, dilation_rate: Any = 1, activation: Any = None, use_bias: bool = True,
        kernel_initializer: Any = "glorot_uniform", bias_initializer: Any = "zeros", kernel_regularizer: Any = None,
        bias_regularizer: Any = None, **options: Any,
    ) -> None:  # fmt: skip
        super().__init__(**options)
        self.require("data_format", data_format, (None, "channels_last"))
        self.filters, self.use_bias = int(filters), use_bias
        self.output_padding = None if output_padding is None else sizes(output_padding, self.dims, "output_padding")
        self._prepare(kernel_size, strides, padding, dilation_rate)
        self.activation = activations.get(activation)
        self.initial = [initializers.get(kernel_initializer), initializers.get(bias_initializer)]
        self.penalties = [regularizers.get(kernel_regularizer), regularizers.get(bias_regularizer)]

    def build(self, input_shape: Any) -> None:
        shape = (*self.kernel_size, self.filters, input_shape[-1])
        self.kernel = self.add_weight(shape, self.initial[0], regularizer=self.penalties[0])
        self.bias = None
        if self.use_bias:
            self.bias = self.add_weight((self.filters,), self.initial[1], regularizer=self.penalties[1])

    def _ends(self, dim: int) -> tuple[int, int]:
        """Elements to cut before and after a dim of all that windows reach; negative ones are zeros to add."""
        step, more = self.strides[dim], None if self.output_padding is None else self.output_padding[dim]
        window = (self.kernel_size[dim] - 1) * self.dilation_rate[dim] + 1
        if self.padding == "valid":
            return 0, -(max(window, step) - window if more is None else more)
        total = step + window - 2 if more is None else window + window % 2 - 2 + more
        before = min(total // 2 + total % 2, window - 1)
        return window - 1 - before, window - 1 - (total - before)

    def call(self, inputs: Tensor) -> Tensor:
        x = channels_first(as_float(inputs, self.kernel))
        weight = self.kernel.movedim((-1, -2), (0, 1))
        x = convolve_transposed(x, weight, None, self.strides, 0, 0, 1, self.dilation_rate)
        ends = [self._ends(dim) for dim in range(self.dims)]
        cut = [-each for pair in reversed(ends) for each in pair]
        return self._ended(pad(x, cut) if any(cut) else x, self.bias)


class Conv1DTranspose(_ConvTransposeNd, dims=1):
    """The gradient of `Conv1D` by its input: [N, length, C] grows by the strides."""


class Conv2DTranspose(_ConvTransposeNd, dims=2):
    """The gradient of `Conv2D` by its input: [N, height, width, C] grows by the strides."""


class Conv3DTranspose(_ConvTransposeNd, dims=3):
    """The gradient of `Conv3D` by its input: [N, depth, height, width, C] grows by the strides."""

    def __init__(
        self, filters: int, kernel_size: Any, strides: Any = 1, padding: str = "valid", data_format: str | None = None,
        output_padding: Any = None, dilation_rate: Any = 1, activation: Any = None, use_bias: bool = True,
        **options: Any,
    ) -> None:  # fmt: skip
        super().__init__(
            filters, kernel_size, strides, padding, output_padding, data_format, dilation_rate, activation, use_bias,
            **options,
        )  # fmt: skip


class _DepthwiseNd(_Conv):
    constrained: ClassVar[Mapping[str, str]] = {"depthwise_constraint": "kernel", "bias_constraint": "bias"}

    def __init__(
        self, kernel_size: Any, strides: Any = 1, padding: str = "valid", depth_multiplier: int = 1,
        data_format: str | None = None, dilation_rate: Any = 1, activation: Any = None, use_bias: bool = True,
        depthwise_initializer: Any = "glorot_uniform", bias_initializer: Any = "zeros",
        depthwise_regularizer: Any = None, bias_regularizer: Any = None, **options: Any,
    ) -> None:  # fmt: skip
        super().__init__(**options)
        self.require("data_format", data_format, (None, "channels_last"))
        self.depth_multiplier, self.use_bias = depth_multiplier, use_bias
        self._prepare(kernel_size, strides, padding, dilation_rate)
        self.activation = activations.get(activation)
        self.initial = [initializers.get(depthwise_initializer), initializers.get(bias_initializer)]
        self.penalties = [regularizers.get(depthwise_regularizer), regularizers.get(bias_regularizer)]

    def build(self, input_shape: Any) -> None:
        channels = input_shape[-1]
        shape = (*self.kernel_size, channels, self.depth_multiplier)
        self.kernel = self.add_weight(shape, self.initial[0], regularizer=self.penalties[0])
        self.bias = None
        if self.use_bias:
            width = (channels * self.depth_multiplier,)
            self.bias = self.add_weight(width, self.initial[1], regularizer=self.penalties[1])

    def call(self, inputs: Tensor) -> Tensor:
        x = channels_first(as_float(inputs, self.kernel))
        return self._ended(self._by_channel(x, self.kernel), self.bias)


class DepthwiseConv1D(_DepthwiseNd, dims=1):
    """A convolution of each channel of [N, length, C] by itself."""


class DepthwiseConv2D(_DepthwiseNd, dims=2):
    """A convolution of each channel of [N, height, width, C] by itself."""


class _SeparableNd(_Conv):
    constrained: ClassVar[Mapping[str, str]] = {
        "depthwise_constraint": "depthwise_kernel", "pointwise_constraint": "pointwise_kernel",
        "bias_constraint": "bias",
    }  # fmt: skip

    def __init__(
        self, filters: int, kernel_size: Any, strides: Any = 1, padding: str = "valid", data_format: str | None = None,
        dilation_rate: Any = 1, depth_multiplier: int = 1, activation: Any = None, use_bias: bool = True,
        depthwise_initializer: Any = "glorot_uniform", pointwise_initializer: Any = "glorot_uniform",
        bias_initializer: Any = "zeros", depthwise_regularizer: Any = None, pointwise_regularizer: Any = None,
        bias_regularizer: Any = None, **options: Any,
    ) -> None:  # fmt: skip
        super().__init__(**options)
        self.require("data_format", data_format, (None, "channels_last"))
        self.filters, self.depth_multiplier, self.use_bias = int(filters), depth_multiplier, use_bias
        self._prepare(kernel_size, strides, padding, dilation_rate)
        self.activation = activations.get(activation)
        initial = (depthwise_initializer, pointwise_initializer, bias_initializer)
        self.initial = [initializers.get(each) for each in initial]
        penalties = (depthwise_regularizer, pointwise_regularizer, bias_regularizer)
        self.penalties = [regularizers.get(each) for each in penalties]

    def build(self, input_shape: Any) -> None:
        channels = input_shape[-1]
        one = (1,) * self.dims
        self.depthwise_kernel = self.add_weight(
            (*self.kernel_size, channels, self.depth_multiplier), self.initial[0], regularizer=self.penalties[0]
        )
        self.pointwise_kernel = self.add_weight(
            (*one, channels * self.depth_multiplier, self.filters), self.initial[1], regularizer=self.penalties[1]
        )
        self.bias = None
        if self.use_bias:
            self.bias = self.add_weight((self.filters,), self.initial[2], regularizer=self.penalties[2])

    def call(self, inputs: Tensor) -> Tensor:
        x = self._by_channel(channels_first(as_float(inputs, self.depthwise_kernel)), self.depthwise_kernel)
        width = math.prod(self.pointwise_kernel.shape[:-1])
        weight = self.pointwise_kernel.reshape(width, self.filters).T.reshape(self.filters, width, *[1] * self.dims)
        return self._ended(convolve(x, weight, None, 1, 0, 1, 1), self.bias)


class SeparableConv1D(_SeparableNd, dims=1):
    """`DepthwiseConv1D`, then a convolution with windows of one element."""


class SeparableConv2D(_SeparableNd, dims=2):
    """`DepthwiseConv2D`, then a convolution with windows of one element."""
