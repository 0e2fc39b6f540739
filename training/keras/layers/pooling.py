"""Pooling of images with channels last, in windows and of whole images."""

from __future__ import annotations

from typing import Any, ClassVar

from ....nn.core.module import LayerVariants
from ....tensors.core.expression import op_named
from ....tensors.core.tensor import Tensor
from ....tensors.operations.creation import as_tensor
from ....tensors.operations.indexing import where
from ....tensors.operations.operands import apply_in
from ..core.layer import Layer
from .windows import channels_first, channels_last, checked_padding, same, sizes

__all__ = [
    "AveragePooling1D", "AveragePooling2D", "AveragePooling3D", "GlobalAveragePooling1D", "GlobalAveragePooling2D",
    "GlobalAveragePooling3D", "GlobalMaxPooling1D", "GlobalMaxPooling2D", "GlobalMaxPooling3D", "MaxPooling1D",
    "MaxPooling2D", "MaxPooling3D",
]  # fmt: skip


class _Pool(Layer, LayerVariants):
    """Pooling in windows; elements that padding adds do not count."""

    dims: ClassVar[int] = 2
    operator: ClassVar[str] = "MaxPool"

    def __init__(
        self, pool_size: Any = 2, strides: Any = None, padding: str = "valid", data_format: str | None = None,
        **options: Any,
    ) -> None:  # fmt: skip
        super().__init__(**options)
        self.require("data_format", data_format, (None, "channels_last"))
        self.pool_size = sizes(pool_size, self.dims, "pool_size")
        self.strides = self.pool_size if strides is None else sizes(strides, self.dims, "strides")
        self.padding = checked_padding(padding)

    def call(self, inputs: Tensor) -> Tensor:
        x = channels_first(inputs)
        pads = [0] * (2 * self.dims)
        if self.padding == "same":
            pads = same(x.shape[2:], self.pool_size, self.strides, (1,) * self.dims)
        options = {"kernel_shape": self.pool_size, "strides": self.strides, "pads": pads}
        return channels_last(Tensor(apply_in(op_named(self.operator), [x.expression], options)))


class MaxPooling1D(_Pool, dims=1):
    """The largest element of each window of [N, length, C]."""


class MaxPooling2D(_Pool, dims=2):
    """The largest element of each window of [N, height, width, C]."""


class MaxPooling3D(_Pool, dims=3):
    """The largest element of each window of [N, depth, height, width, C]."""


class AveragePooling1D(_Pool, dims=1, operator="AveragePool"):
    """The mean of each window of [N, length, C]."""


class AveragePooling2D(_Pool, dims=2, operator="AveragePool"):
    """The mean of each window of [N, height, width, C]."""


class AveragePooling3D(_Pool, dims=3, operator="AveragePool"):
    """The mean of each window of [N, depth, height, width, C]."""


class _Global(Layer, LayerVariants):
    dims: ClassVar[int] = 2
    largest: ClassVar[bool] = False

    def __init__(self, data_format: str | None = None, keepdims: bool = False, **options: Any) -> None:
        super().__init__(**options)
        self.require("data_format", data_format, (None, "channels_last"))
        self.keepdims = keepdims

    def call(self, inputs: Tensor) -> Tensor:
        dims = list(range(1, 1 + self.dims))
        found: Tensor = inputs.amax(dims, self.keepdims) if self.largest else inputs.mean(dims, self.keepdims)
        return found


class GlobalAveragePooling1D(_Global, dims=1):
    """The mean of each channel of [N, length, C], over the steps whose mask is true."""

    def compute_mask(self, inputs: Any, mask: Any = None) -> Any:
        """None: the output does not have steps."""
        return None

    def call(self, inputs: Tensor, mask: Any = None) -> Tensor:
        """The means."""
        if mask is None:
            return super().call(inputs)
        counted = as_tensor(mask).bool().unsqueeze(-1)
        return where(counted, inputs, 0).sum(1, self.keepdims) / counted.to(inputs.dtype).sum(1, self.keepdims)


class GlobalAveragePooling2D(_Global, dims=2):
    """The mean of each channel of [N, height, width, C]."""


class GlobalAveragePooling3D(_Global, dims=3):
    """The mean of each channel of [N, depth, height, width, C]."""


class GlobalMaxPooling1D(_Global, dims=1, largest=True):
    """The largest element of each channel of [N, length, C]."""


class GlobalMaxPooling2D(_Global, dims=2, largest=True):
    """The largest element of each channel of [N, height, width, C]."""


class GlobalMaxPooling3D(_Global, dims=3, largest=True):
    """The largest element of each channel of [N, depth, height, width, C]."""
