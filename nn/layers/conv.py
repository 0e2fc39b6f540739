"""Convolutions and transposed convolutions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ...runtime.base.errors import UsageError
from ...tensors.core.expression import shape_error
from ...tensors.core.tensor import Tensor
from ...tensors.operations.creation import zeros
from .. import init
from ..core.module import LayerVariants, Module
from ..core.parameter import Parameter
from ..functional.conv import MODES, convolve, convolve_transposed, fold, pad, unfold
from ..functional.sizes import Size, per_dim

__all__ = ["Conv1d", "Conv2d", "Conv3d", "ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d", "Fold", "Unfold"]
PADDINGS = {"zeros": "constant", **{name: name for name in MODES if name != "constant"}}


class _Conv(LayerVariants):
    """Base of all convolutions.

    Attributes:
        dims: dims of an image.
        transposed: whether the weight is [in, out / groups, ...] instead of [out, in / groups, ...].
    """

    dims = 0
    transposed = False
    output_padding: tuple[int, ...] = ()
    bias: Parameter | None

    def _prepare(
        self, channels: tuple[int, int], kernel_size: Size, stride: Size, padding: Any, dilation: Size, groups: int,
        bias: bool, options: tuple[str, Any, Any],
    ) -> None:  # fmt: skip
        self.in_channels, self.out_channels = channels
        self.groups = groups
        if groups < 1 or self.in_channels % groups or self.out_channels % groups:
            why = f"{self.in_channels} and {self.out_channels} channels do not make {groups} groups"
            raise UsageError("E-NN-VALUE", None, why)
        self.kernel_size = per_dim(kernel_size, self.dims, "kernel_size")
        self.stride = per_dim(stride, self.dims, "stride")
        self.padding = padding if isinstance(padding, str) else per_dim(padding, self.dims, "padding")
        self.dilation = per_dim(dilation, self.dims, "dilation")
        self.padding_mode, device, dtype = options
        if self.padding_mode not in PADDINGS:
            why = f"{self.padding_mode!r} is not a mode of padding"
            raise UsageError("E-NN-VALUE", None, why, expected=", ".join(PADDINGS))
        first, second = channels[::-1] if not self.transposed else channels
        shape = (first, second // groups, *self.kernel_size)
        self.weight = Parameter(zeros(shape, dtype=dtype, device=device))
        self.bias = Parameter(zeros(self.out_channels, dtype=dtype)) if bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the parameters."""
        init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        if self.bias is not None:
            fan_in = math.prod(self.weight.shape[1:])
            bound = 1 / math.sqrt(fan_in) if fan_in else 0
            init.uniform_(self.bias, -bound, bound)

    def extra_repr(self) -> str:
        """The settings that are not the usual ones, in torch's order."""
        none = (0,) * self.dims
        parts = [f"{self.in_channels}, {self.out_channels}", f"kernel_size={self.kernel_size}", f"stride={self.stride}"]
        if self.padding != none:
            parts.append(f"padding={self.padding}")
        if self.dilation != (1,) * self.dims:
            parts.append(f"dilation={self.dilation}")
        if self.transposed and self.output_padding != none:
            parts.append(f"output_padding={self.output_padding}")
        if self.groups != 1:
            parts.append(f"groups={self.groups}")
        if self.bias is None:
            parts.append("bias=False")
        if self.padding_mode != "zeros":
            parts.append(f"padding_mode={self.padding_mode}")
        return ", ".join(parts)


class _ConvNd(_Conv):
    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: Size, stride: Size = 1, padding: Any = 0,
        dilation: Size = 1, groups: int = 1, bias: bool = True, padding_mode: str = "zeros", device: Any = None,
        dtype: Any = None,
    ) -> None:  # fmt: skip
        super().__init__()
        channels, options = (in_channels, out_channels), (padding_mode, device, dtype)
        self._prepare(channels, kernel_size, stride, padding, dilation, groups, bias, options)

    def forward(self, input: Tensor) -> Tensor:
        """[N, out_channels, ...] or [out_channels, ...]."""
        padding: Any = self.padding
        if self.padding_mode != "zeros":
            input = pad(input, self._edges(), PADDINGS[self.padding_mode])
            padding = 0
        return convolve(input, self.weight, self.bias, self.stride, padding, self.dilation, self.groups)

    def _edges(self) -> list[int]:
        """The padding as `pad` takes it."""
        if self.padding == "valid":
            return [0, 0] * self.dims
        found = []
        for dim in reversed(range(self.dims)):
            if self.padding == "same":
                total = self.dilation[dim] * (self.kernel_size[dim] - 1)
                found += [total // 2, total - total // 2]
            else:
                found += [self.padding[dim]] * 2  # type: ignore[list-item]
        return found


class Conv1d(_ConvNd, dims=1):
    """Convolution of [N, in_channels, L] or [in_channels, L].

    Attributes:
        weight: [out_channels, in_channels / groups, kernel].
        bias: [out_channels], or None.
    """


class Conv2d(_ConvNd, dims=2):
    """Convolution of [N, in_channels, H, W] or [in_channels, H, W].

    Attributes:
        weight: [out_channels, in_channels / groups, kernel, kernel].
        bias: [out_channels], or None.
    """


class Conv3d(_ConvNd, dims=3):
    """Convolution of [N, in_channels, D, H, W] or [in_channels, D, H, W].

    Attributes:
        weight: [out_channels, in_channels / groups, kernel, kernel, kernel].
        bias: [out_channels], or None.
    """


class _ConvTransposeNd(_Conv):
    transposed = True

    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: Size, stride: Size = 1, padding: Size = 0,
        output_padding: Size = 0, groups: int = 1, bias: bool = True, dilation: Size = 1, padding_mode: str = "zeros",
        device: Any = None, dtype: Any = None,
    ) -> None:  # fmt: skip
        super().__init__()
        if padding_mode != "zeros":
            raise UsageError("E-NN-VALUE", None, f"padding_mode {padding_mode!r}", expected="zeros")
        self.output_padding = per_dim(output_padding, self.dims, "output_padding")
        channels, options = (in_channels, out_channels), (padding_mode, device, dtype)
        self._prepare(channels, kernel_size, stride, padding, dilation, groups, bias, options)

    def forward(self, input: Tensor, output_size: Sequence[int] | None = None) -> Tensor:
        """[N, out_channels, ...]; `output_size` chooses one of the sizes that a convolution makes `input` from."""
        extra = self.output_padding if output_size is None else self._extra(input, list(output_size)[-self.dims :])
        padding: Any = self.padding
        return convolve_transposed(
            input, self.weight, self.bias, self.stride, padding, extra, self.groups, self.dilation
        )

    def _extra(self, input: Tensor, size: Sequence[int]) -> tuple[int, ...]:
        found = []
        for dim, wanted in enumerate(size):
            reach = self.dilation[dim] * (self.kernel_size[dim] - 1) + 1
            padding: Any = self.padding[dim]
            smallest = (input.shape[dim - self.dims] - 1) * self.stride[dim] - 2 * padding + reach
            if not smallest <= wanted < smallest + self.stride[dim]:
                why = f"output_size {list(size)} of dim {dim} is not from {smallest}"
                raise shape_error(f"{why} to {smallest + self.stride[dim] - 1}")
            found.append(wanted - smallest)
        return tuple(found)


class ConvTranspose1d(_ConvTransposeNd, dims=1):
    """Transposed convolution of [N, in_channels, L].

    Attributes:
        weight: [in_channels, out_channels / groups, kernel].
        bias: [out_channels], or None.
    """


class ConvTranspose2d(_ConvTransposeNd, dims=2):
    """Transposed convolution of [N, in_channels, H, W].

    Attributes:
        weight: [in_channels, out_channels / groups, kernel, kernel].
        bias: [out_channels], or None.
    """


class ConvTranspose3d(_ConvTransposeNd, dims=3):
    """Transposed convolution of [N, in_channels, D, H, W].

    Attributes:
        weight: [in_channels, out_channels / groups, kernel, kernel, kernel].
        bias: [out_channels], or None.
    """


class Unfold(Module):
    """The windows of images [N, C, H, W] as columns [N, C * kernel elements, windows]."""

    def __init__(self, kernel_size: Size, dilation: Size = 1, padding: Size = 0, stride: Size = 1) -> None:
        super().__init__()
        self.kernel_size = kernel_size
        self.dilation = dilation
        self.padding = padding
        self.stride = stride

    def forward(self, input: Tensor) -> Tensor:
        """The columns."""
        return unfold(input, self.kernel_size, self.dilation, self.padding, self.stride)

    def extra_repr(self) -> str:
        """The settings."""
        names = ("kernel_size", "dilation", "padding", "stride")
        return ", ".join([f"{name}={getattr(self, name)}" for name in names])


class Fold(Module):
    """Images [N, C, H, W] that add up the windows of columns [N, C * kernel elements, windows]."""

    def __init__(
        self, output_size: Size, kernel_size: Size, dilation: Size = 1, padding: Size = 0, stride: Size = 1
    ) -> None:
        super().__init__()
        self.output_size = output_size
        self.kernel_size = kernel_size
        self.dilation = dilation
        self.padding = padding
        self.stride = stride

    def forward(self, input: Tensor) -> Tensor:
        """The images."""
        return fold(input, self.output_size, self.kernel_size, self.dilation, self.padding, self.stride)

    def extra_repr(self) -> str:
        """The settings."""
        names = ("output_size", "kernel_size", "dilation", "padding", "stride")
        return ", ".join([f"{name}={getattr(self, name)}" for name in names])
