"""Pooling, unpooling and padding of images."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...tensors.core.tensor import Tensor
from ..core.module import LayerVariants
from ..functional import pooling
from ..functional.conv import pad
from ..functional.sizes import Size, per_dim

__all__ = [
    "AdaptiveAvgPool1d", "AdaptiveAvgPool2d", "AdaptiveAvgPool3d", "AdaptiveMaxPool1d", "AdaptiveMaxPool2d",
    "AdaptiveMaxPool3d", "AvgPool1d", "AvgPool2d", "AvgPool3d", "CircularPad1d", "CircularPad2d", "CircularPad3d",
    "ConstantPad1d", "ConstantPad2d", "ConstantPad3d", "FractionalMaxPool2d", "FractionalMaxPool3d", "LPPool1d",
    "LPPool2d", "LPPool3d", "MaxPool1d", "MaxPool2d", "MaxPool3d", "MaxUnpool1d", "MaxUnpool2d", "MaxUnpool3d",
    "ReflectionPad1d", "ReflectionPad2d", "ReflectionPad3d", "ReplicationPad1d", "ReplicationPad2d", "ReplicationPad3d",
    "ZeroPad1d", "ZeroPad2d", "ZeroPad3d",
]  # fmt: skip


def _own(size: Any, dims: int) -> Any:
    """Sizes as they are shown: one number stays one."""
    return size if size is None or isinstance(size, int) else per_dim(size, dims)


class _MaxPool(LayerVariants):
    dims = 0

    def __init__(
        self, kernel_size: Size, stride: Any = None, padding: Size = 0, dilation: Size = 1,
        return_indices: bool = False, ceil_mode: bool = False,
    ) -> None:  # fmt: skip
        super().__init__()
        self.kernel_size = _own(kernel_size, self.dims)
        self.stride = self.kernel_size if stride is None else _own(stride, self.dims)
        self.padding = _own(padding, self.dims)
        self.dilation = _own(dilation, self.dims)
        self.return_indices = return_indices
        self.ceil_mode = ceil_mode

    def forward(self, input: Tensor) -> Any:
        """The largest elements; with `return_indices` also their flat positions in each image."""
        return pooling.max_pooled(
            self.dims, input, self.kernel_size, self.stride, self.padding, self.dilation, self.ceil_mode,
            self.return_indices,
        )  # fmt: skip

    def extra_repr(self) -> str:
        """The settings."""
        names = ("kernel_size", "stride", "padding", "dilation", "ceil_mode")
        return ", ".join([f"{name}={getattr(self, name)}" for name in names])


class _AvgPool(LayerVariants):
    dims = 0

    def __init__(
        self, kernel_size: Size, stride: Any = None, padding: Size = 0, ceil_mode: bool = False,
        count_include_pad: bool = True, divisor_override: int | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        shown = per_dim(kernel_size, 1) if self.dims == 1 else _own(kernel_size, self.dims)
        self.kernel_size = shown
        wanted = kernel_size if stride is None else stride
        self.stride = per_dim(wanted, 1) if self.dims == 1 else _own(wanted, self.dims)
        self.padding = per_dim(padding, 1) if self.dims == 1 else _own(padding, self.dims)
        self.ceil_mode = ceil_mode
        self.count_include_pad = count_include_pad
        self.divisor_override = divisor_override

    def forward(self, input: Tensor) -> Tensor:
        """The means."""
        return pooling.averaged(
            self.dims, input, self.kernel_size, self.stride, self.padding, self.ceil_mode, self.count_include_pad,
            self.divisor_override,
        )  # fmt: skip

    def extra_repr(self) -> str:
        """The settings."""
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class _LPPool(LayerVariants):
    dims = 0

    def __init__(self, norm_type: float, kernel_size: Size, stride: Any = None, ceil_mode: bool = False) -> None:
        super().__init__()
        self.norm_type = norm_type
        self.kernel_size = kernel_size
        self.stride = stride
        self.ceil_mode = ceil_mode

    def forward(self, input: Tensor) -> Tensor:
        """The norms."""
        function = (pooling.lp_pool1d, pooling.lp_pool2d, pooling.lp_pool3d)[self.dims - 1]
        return function(input, self.norm_type, self.kernel_size, self.stride, self.ceil_mode)

    def extra_repr(self) -> str:
        """The settings."""
        names = ("norm_type", "kernel_size", "stride", "ceil_mode")
        return ", ".join([f"{name}={getattr(self, name)}" for name in names])


class _Adaptive(LayerVariants):
    dims = 0
    kind = ""

    def __init__(self, output_size: Any) -> None:
        super().__init__()
        self.output_size = output_size

    def forward(self, input: Tensor) -> Any:
        """One element for each window."""
        return getattr(pooling, f"adaptive_{self.kind}_pool{self.dims}d")(input, self.output_size)

    def extra_repr(self) -> str:
        """The size of the output."""
        return f"output_size={self.output_size}"


class _AdaptiveMax(_Adaptive):
    kind = "max"

    def __init__(self, output_size: Any, return_indices: bool = False) -> None:
        super().__init__(output_size)
        self.return_indices = return_indices

    def forward(self, input: Tensor) -> Any:
        """The largest elements; with `return_indices` also their flat positions in each image."""
        function = getattr(pooling, f"adaptive_{self.kind}_pool{self.dims}d")
        return function(input, self.output_size, self.return_indices)


class _FractionalMaxPool(LayerVariants):
    dims = 0

    def __init__(
        self, kernel_size: Size, output_size: Any = None, output_ratio: Any = None, return_indices: bool = False,
        _random_samples: Tensor | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self.kernel_size = per_dim(kernel_size, self.dims)
        self.output_size = None if output_size is None else per_dim(output_size, self.dims)
        self.output_ratio = output_ratio
        self.return_indices = return_indices
        self._random_samples = _random_samples

    def forward(self, input: Tensor) -> Any:
        """The largest elements; with `return_indices` also their flat positions in each image."""
        return pooling.fractional_pooled(
            self.dims, input, self.kernel_size, self.output_size, self.output_ratio, self.return_indices,
            self._random_samples,
        )  # fmt: skip


class _MaxUnpool(LayerVariants):
    dims = 0

    def __init__(self, kernel_size: Size, stride: Any = None, padding: Size = 0) -> None:
        super().__init__()
        self.kernel_size = per_dim(kernel_size, self.dims)
        self.stride = self.kernel_size if stride is None else per_dim(stride, self.dims)
        self.padding = per_dim(padding, self.dims)

    def forward(self, input: Tensor, indices: Tensor, output_size: Sequence[int] | None = None) -> Tensor:
        """Zeros, and the elements where max pooling found them."""
        function = (pooling.max_unpool1d, pooling.max_unpool2d, pooling.max_unpool3d)[self.dims - 1]
        return function(input, indices, self.kernel_size, self.stride, self.padding, output_size)

    def extra_repr(self) -> str:
        """The settings."""
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class _Pad(LayerVariants):
    dims = 0
    mode = ""

    def __init__(self, padding: Any) -> None:
        super().__init__()
        self.padding = per_dim(padding, 2 * self.dims, "padding")

    def forward(self, input: Tensor) -> Tensor:
        """The padded images."""
        return pad(input, self.padding, self.mode, getattr(self, "value", None))

    def extra_repr(self) -> str:
        """Elements before and after each dim, the last dim first."""
        return f"{self.padding}"


class _ConstantPad(_Pad):
    mode = "constant"

    def __init__(self, padding: Any, value: float) -> None:
        super().__init__(padding)
        self.value = value

    def extra_repr(self) -> str:
        """The settings."""
        return f"padding={self.padding}, value={self.value}"


class MaxPool1d(_MaxPool, dims=1):
    """The largest element of each window of [N, C, L]."""


class MaxPool2d(_MaxPool, dims=2):
    """The largest element of each window of [N, C, H, W]."""


class MaxPool3d(_MaxPool, dims=3):
    """The largest element of each window of [N, C, D, H, W]."""


class AvgPool1d(_AvgPool, dims=1):
    """The mean of each window of [N, C, L]."""


class AvgPool2d(_AvgPool, dims=2):
    """The mean of each window of [N, C, H, W]."""


class AvgPool3d(_AvgPool, dims=3):
    """The mean of each window of [N, C, D, H, W]."""


class LPPool1d(_LPPool, dims=1):
    """The p-norm of each window of [N, C, L]."""


class LPPool2d(_LPPool, dims=2):
    """The p-norm of each window of [N, C, H, W]."""


class LPPool3d(_LPPool, dims=3):
    """The p-norm of each window of [N, C, D, H, W]."""


class FractionalMaxPool2d(_FractionalMaxPool, dims=2):
    """The largest element of windows of [N, C, H, W] at random positions."""


class FractionalMaxPool3d(_FractionalMaxPool, dims=3):
    """The largest element of windows of [N, C, D, H, W] at random positions."""


class AdaptiveAvgPool1d(_Adaptive, dims=1, kind="avg"):
    """The means of as many windows of [N, C, L] as `output_size` says."""


class AdaptiveAvgPool2d(_Adaptive, dims=2, kind="avg"):
    """The means of as many windows of [N, C, H, W] as `output_size` says."""


class AdaptiveAvgPool3d(_Adaptive, dims=3, kind="avg"):
    """The means of as many windows of [N, C, D, H, W] as `output_size` says."""


class AdaptiveMaxPool1d(_AdaptiveMax, dims=1):
    """The largest elements of as many windows of [N, C, L] as `output_size` says."""


class AdaptiveMaxPool2d(_AdaptiveMax, dims=2):
    """The largest elements of as many windows of [N, C, H, W] as `output_size` says."""


class AdaptiveMaxPool3d(_AdaptiveMax, dims=3):
    """The largest elements of as many windows of [N, C, D, H, W] as `output_size` says."""


class MaxUnpool1d(_MaxUnpool, dims=1):
    """The inverse of MaxPool1d, with zeros where elements were lost."""


class MaxUnpool2d(_MaxUnpool, dims=2):
    """The inverse of MaxPool2d, with zeros where elements were lost."""


class MaxUnpool3d(_MaxUnpool, dims=3):
    """The inverse of MaxPool3d, with zeros where elements were lost."""


class ConstantPad1d(_ConstantPad, dims=1):
    """A number beyond the edges of [N, C, L]."""


class ConstantPad2d(_ConstantPad, dims=2):
    """A number beyond the edges of [N, C, H, W]."""


class ConstantPad3d(_ConstantPad, dims=3):
    """A number beyond the edges of [N, C, D, H, W]."""


class ReflectionPad1d(_Pad, dims=1, mode="reflect"):
    """Mirrored elements beyond the edges of [N, C, L]."""


class ReflectionPad2d(_Pad, dims=2, mode="reflect"):
    """Mirrored elements beyond the edges of [N, C, H, W]."""


class ReflectionPad3d(_Pad, dims=3, mode="reflect"):
    """Mirrored elements beyond the edges of [N, C, D, H, W]."""


class ReplicationPad1d(_Pad, dims=1, mode="replicate"):
    """The nearest element beyond the edges of [N, C, L]."""


class ReplicationPad2d(_Pad, dims=2, mode="replicate"):
    """The nearest element beyond the edges of [N, C, H, W]."""


class ReplicationPad3d(_Pad, dims=3, mode="replicate"):
    """The nearest element beyond the edges of [N, C, D, H, W]."""


class CircularPad1d(_Pad, dims=1, mode="circular"):
    """Elements of the other side beyond the edges of [N, C, L]."""


class CircularPad2d(_Pad, dims=2, mode="circular"):
    """Elements of the other side beyond the edges of [N, C, H, W]."""


class CircularPad3d(_Pad, dims=3, mode="circular"):
    """Elements of the other side beyond the edges of [N, C, D, H, W]."""


class ZeroPad1d(_Pad, dims=1, mode="constant"):
    """Zeros beyond the edges of [N, C, L]."""


class ZeroPad2d(_Pad, dims=2, mode="constant"):
    """Zeros beyond the edges of [N, C, H, W]."""


class ZeroPad3d(_Pad, dims=3, mode="constant"):
    """Zeros beyond the edges of [N, C, D, H, W]."""
