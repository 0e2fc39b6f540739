"""Dropout: elements, channels or whole features are set to zero at random in training."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ....nn import functional
from ....tensors.core.tensor import Tensor
from ....tensors.operations.creation import ones
from ....tensors.operations.random import rand, randn
from ..core.layer import Layer

__all__ = ["AlphaDropout", "Dropout", "GaussianDropout", "SpatialDropout1D", "SpatialDropout2D", "SpatialDropout3D"]
SELU_FLOOR = -1.7580993408473766
"""Limit of SELU for low inputs: -alpha * scale of Klambauer et al. 2017."""


def dropped(x: Tensor, rate: float, shape: Sequence[int]) -> Tensor:
    """x times a random mask of a shape that x is broadcast from."""
    return x * functional.dropout(ones(*shape, dtype=x.dtype), rate)


class Dropout(Layer):
    """Elements become 0 with the probability `rate` in training, and the others grow to keep the mean.

    Args:
        noise_shape: the shape of the mask, None for the length of the input.
    """

    supports_masking = True

    def __init__(self, rate: float, noise_shape: Any = None, seed: int | None = None, **options: Any) -> None:
        super().__init__(**options)
        self.rate, self.noise_shape = rate, noise_shape

    def call(self, inputs: Tensor) -> Tensor:
        if not self.training or not self.rate:
            return inputs
        if self.noise_shape is None:
            return functional.dropout(inputs, self.rate)
        return dropped(inputs, self.rate, self.mask_shape(inputs))

    def mask_shape(self, inputs: Tensor) -> list[int]:
        """The shape of the mask for inputs."""
        given = self.noise_shape or [None] * inputs.ndim
        return [length if wanted is None else wanted for wanted, length in zip(given, inputs.shape)]  # noqa: B905


class SpatialDropout1D(Layer):
    """Channels of [N, length, C] become 0 in training."""

    supports_masking = True

    def __init__(self, rate: float, seed: int | None = None, **options: Any) -> None:
        super().__init__(**options)
        self.rate = rate

    def call(self, inputs: Tensor) -> Tensor:
        if not self.training or not self.rate:
            return inputs
        return dropped(inputs, self.rate, (inputs.shape[0], *[1] * (inputs.ndim - 2), inputs.shape[-1]))


class SpatialDropout2D(SpatialDropout1D):
    """Channels of [N, height, width, C] become 0 in training."""


class SpatialDropout3D(SpatialDropout1D):
    """Channels of [N, depth, height, width, C] become 0 in training."""


class AlphaDropout(Dropout):
    """Elements become SELU's lowest value in training, and all are scaled to keep mean and variance (Klambauer et al.
    2017); arguments as of `Dropout`."""

    def call(self, inputs: Tensor) -> Tensor:
        if not self.training or not self.rate:
            return inputs
        kept = (rand(*self.mask_shape(inputs)) >= self.rate).to(inputs.dtype)
        scale = ((1 - self.rate) * (1 + self.rate * SELU_FLOOR**2)) ** -0.5
        return (inputs * kept + SELU_FLOOR * (1 - kept)) * scale - scale * SELU_FLOOR * self.rate


class GaussianDropout(Layer):
    """Elements times normal numbers of mean 1 and variance rate / (1 - rate) in training."""

    supports_masking = True

    def __init__(self, rate: float, seed: int | None = None, **options: Any) -> None:
        super().__init__(**options)
        self.rate = rate

    def call(self, inputs: Tensor) -> Tensor:
        if not self.training or not self.rate:
            return inputs
        return inputs * (1 + randn(*inputs.shape) * (self.rate / (1 - self.rate)) ** 0.5)
