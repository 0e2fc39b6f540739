"""Dropout layers."""

from __future__ import annotations

from collections.abc import Callable

from ...tensors.core.tensor import Tensor
from ..core.module import Module
from ..functional.dropout import (
    alpha_dropout,
    check_probability,
    dropout,
    dropout1d,
    dropout2d,
    dropout3d,
    feature_alpha_dropout,
)  # fmt: skip

__all__ = ["AlphaDropout", "Dropout", "Dropout1d", "Dropout2d", "Dropout3d", "FeatureAlphaDropout"]


class _Dropout(Module):
    """A function of `functional.dropout` with its probability."""

    function: Callable[..., Tensor]

    def __init__(self, p: float = 0.5, inplace: bool = False) -> None:
        super().__init__()
        check_probability(p)
        self.p = p
        self.inplace = inplace

    def forward(self, input: Tensor) -> Tensor:
        """The input, of which parts are zero in training."""
        return self.function(input, self.p, self.training)

    def extra_repr(self) -> str:
        """The settings."""
        return f"p={self.p}, inplace={self.inplace}"


class Dropout(_Dropout):
    """Elements become 0 with the probability p in training; the others are divided by 1 - p."""

    function = staticmethod(dropout)


class Dropout1d(_Dropout):
    """Channels of [N, C, L] become 0 with the probability p in training."""

    function = staticmethod(dropout1d)


class Dropout2d(_Dropout):
    """Channels of [N, C, H, W] become 0 with the probability p in training."""

    function = staticmethod(dropout2d)


class Dropout3d(_Dropout):
    """Channels of [N, C, D, H, W] become 0 with the probability p in training."""

    function = staticmethod(dropout3d)


class AlphaDropout(_Dropout):
    """Dropout that keeps mean and variance of the outputs of SELU."""

    function = staticmethod(alpha_dropout)


class FeatureAlphaDropout(_Dropout):
    """AlphaDropout of whole channels of [N, C, ...]."""

    function = staticmethod(feature_alpha_dropout)
