"""Layers that move elements: shapes, padding and cropping, growing images."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ....nn import functional
from ....runtime.base.errors import UsageError
from ....tensors.core.tensor import Tensor
from ..core.layer import Layer
from .windows import channels_first, channels_last, sizes

__all__ = [
    "Cropping1D", "Cropping2D", "Cropping3D", "Flatten", "Permute", "RepeatVector", "Reshape", "UpSampling1D",
    "UpSampling2D", "UpSampling3D", "ZeroPadding1D", "ZeroPadding2D", "ZeroPadding3D",
]  # fmt: skip


class Flatten(Layer):
    """[N, ...] as [N, elements]."""

    def __init__(self, data_format: str | None = None, **options: Any) -> None:
        super().__init__(**options)
        self.require("data_format", data_format, (None, "channels_last"))

    def call(self, inputs: Tensor) -> Tensor:
        return inputs.reshape(inputs.shape[0], math.prod(inputs.shape[1:]))


class Reshape(Layer):
    """Items in another shape, in which -1 stands for what is left."""

    def __init__(self, target_shape: Sequence[int], **options: Any) -> None:
        super().__init__(**options)
        self.target_shape = tuple(target_shape)

    def call(self, inputs: Tensor) -> Tensor:
        return inputs.reshape(inputs.shape[0], *self.target_shape)


class Permute(Layer):
    """The dims of items in another order; they are counted from 1 on."""

    def __init__(self, dims: Sequence[int], **options: Any) -> None:
        super().__init__(**options)
        self.dims = tuple(dims)

    def call(self, inputs: Tensor) -> Tensor:
        return inputs.permute(0, *self.dims)


class RepeatVector(Layer):
    """[N, C] as [N, n, C]."""

    def __init__(self, n: int, **options: Any) -> None:
        super().__init__(**options)
        self.n = n

    def call(self, inputs: Tensor) -> Tensor:
        return inputs.unsqueeze(1).expand(inputs.shape[0], self.n, inputs.shape[1])


def pairs(given: Any, dims: int) -> list[tuple[int, int]]:
    """Padding before and after each dim: one number, one for each dim, or a pair for each."""
    if isinstance(given, int):
        return [(given, given)] * dims
    items = list(given)
    if dims == 1 and len(items) == 2:
        items = [items]
    if len(items) != dims:
        raise UsageError("E-NN-SHAPE", None, f"{given!r} does not have {dims} numbers")
    return [(each, each) if isinstance(each, int) else (int(each[0]), int(each[1])) for each in items]


def _padded(x: Tensor, ends: Sequence[tuple[int, int]], sign: int) -> Tensor:
    """[N, ..., C] with more elements around its dims, or fewer."""
    return functional.pad(x, [0, 0, *(sign * each for pair in reversed(ends) for each in pair)])


class ZeroPadding1D(Layer):
    """Zeros before and after the length of [N, length, C]."""

    def __init__(self, padding: Any = 1, data_format: str | None = None, **options: Any) -> None:
        super().__init__(**options)
        self.require("data_format", data_format, (None, "channels_last"))
        self.padding = pairs(padding, 1)

    def call(self, inputs: Tensor) -> Tensor:
        return _padded(inputs, self.padding, 1)


class ZeroPadding2D(Layer):
    """Zeros around images [N, height, width, C]."""

    def __init__(self, padding: Any = (1, 1), data_format: str | None = None, **options: Any) -> None:
        super().__init__(**options)
        self.require("data_format", data_format, (None, "channels_last"))
        self.padding = pairs(padding, 2)

    def call(self, inputs: Tensor) -> Tensor:
        return _padded(inputs, self.padding, 1)


class ZeroPadding3D(Layer):
    """Zeros around volumes [N, depth, height, width, C]."""

    def __init__(self, padding: Any = ((1, 1), (1, 1), (1, 1)), data_format: str | None = None, **options: Any) -> None:
        super().__init__(**options)
        self.require("data_format", data_format, (None, "channels_last"))
        self.padding = pairs(padding, 3)

    def call(self, inputs: Tensor) -> Tensor:
        return _padded(inputs, self.padding, 1)


class Cropping1D(Layer):
    """Without the first and last elements of [N, length, C]."""

    def __init__(self, cropping: Any = (1, 1), **options: Any) -> None:
        super().__init__(**options)
        self.cropping = pairs(cropping, 1)

    def call(self, inputs: Tensor) -> Tensor:
        return _padded(inputs, self.cropping, -1)


class Cropping2D(Layer):
    """Without the edges of images [N, height, width, C]."""

    def __init__(self, cropping: Any = ((0, 0), (0, 0)), data_format: str | None = None, **options: Any) -> None:
        super().__init__(**options)
        self.require("data_format", data_format, (None, "channels_last"))
        self.cropping = pairs(cropping, 2)

    def call(self, inputs: Tensor) -> Tensor:
        return _padded(inputs, self.cropping, -1)


class Cropping3D(Layer):
    """Without the edges of volumes [N, depth, height, width, C]."""

    def __init__(
        self, cropping: Any = ((1, 1), (1, 1), (1, 1)), data_format: str | None = None, **options: Any
    ) -> None:
        super().__init__(**options)
        self.require("data_format", data_format, (None, "channels_last"))
        self.cropping = pairs(cropping, 3)

    def call(self, inputs: Tensor) -> Tensor:
        return _padded(inputs, self.cropping, -1)


class UpSampling1D(Layer):
    """Each element of [N, length, C] several times."""

    def __init__(self, size: int = 2, **options: Any) -> None:
        super().__init__(**options)
        self.size = size

    def call(self, inputs: Tensor) -> Tensor:
        return inputs.repeat_interleave(self.size, 1)


class UpSampling2D(Layer):
    """Images [N, height, width, C] that are larger by whole factors, "nearest" or "bilinear"."""

    def __init__(
        self, size: Any = (2, 2), data_format: str | None = None, interpolation: str = "nearest", **options: Any
    ) -> None:
        super().__init__(**options)
        self.require("data_format", data_format, (None, "channels_last"))
        self.require("interpolation", interpolation, ("nearest", "bilinear"))
        self.size, self.interpolation = sizes(size, 2, "size"), interpolation

    def call(self, inputs: Tensor) -> Tensor:
        x = channels_first(inputs)
        lengths = [length * factor for length, factor in zip(x.shape[2:], self.size, strict=True)]
        return channels_last(functional.interpolate(x, lengths, mode=self.interpolation))


class UpSampling3D(Layer):
    """Each element of volumes [N, depth, height, width, C] several times along each dim."""

    def __init__(self, size: Any = (2, 2, 2), data_format: str | None = None, **options: Any) -> None:
        super().__init__(**options)
        self.require("data_format", data_format, (None, "channels_last"))
        self.size = sizes(size, 3, "size")

    def call(self, inputs: Tensor) -> Tensor:
        for dim, count in enumerate(self.size, 1):
            inputs = inputs.repeat_interleave(count, dim)
        return inputs
