"""Dropout: elements or channels are set to zero at random in training, and the others grow to keep the mean."""

from __future__ import annotations

from collections.abc import Sequence

from ...runtime.base.errors import UsageError
from ...tensors.core.tensor import Tensor
from ...tensors.operations.random import rand

__all__ = [
    "alpha_dropout", "dropout", "dropout1d", "dropout2d", "dropout3d", "feature_alpha_dropout",
]  # fmt: skip
ALPHA = -1.7580993408473766
"""Limit of SELU for x towards minus infinity."""


def _kept(shape: Sequence[int], p: float, like: Tensor) -> Tensor:
    """1 with the probability 1 - p, and 0 otherwise."""
    return (rand(tuple(shape)) >= p).to(like.dtype)


def check_probability(p: float) -> None:
    """UsageError for a probability of dropout that is not between 0 and 1."""
    if not 0 <= p <= 1:
        raise UsageError("E-NN-VALUE", None, f"the probability {p} of dropout is not between 0 and 1")


def _dropped(input: Tensor, p: float, training: bool, shape: Sequence[int]) -> Tensor:
    check_probability(p)
    if not training or p == 0:
        return input
    return input * 0 if p == 1 else input * (_kept(shape, p, input) * (1 / (1 - p)))


def dropout(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Elements become 0 with the probability p in training."""
    return _dropped(input, p, training, input.shape)


def _by_channel(input: Tensor, dims: int) -> list[int]:
    """The shape of a mask of whole channels of [N, C, ...] or [C, ...]."""
    return [*input.shape[: input.ndim - dims], *[1] * dims]


def dropout1d(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Channels of [N, C, L] become 0 with the probability p in training."""
    return _dropped(input, p, training, _by_channel(input, 1))


def dropout2d(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Channels of [N, C, H, W] become 0 with the probability p in training."""
    return _dropped(input, p, training, _by_channel(input, 2))


def dropout3d(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Channels of [N, C, D, H, W] become 0 with the probability p in training."""
    return _dropped(input, p, training, _by_channel(input, 3))


def _alpha(input: Tensor, p: float, training: bool, shape: Sequence[int]) -> Tensor:
    """Mean and variance stay those of the input of selu (Klambauer et al. 2017)."""
    check_probability(p)
    if not training or p == 0:
        return input
    if p == 1:
        return input * 0
    kept = _kept(shape, p, input)
    a = ((1 - p) * (1 + p * ALPHA**2)) ** -0.5
    return (input * kept + (1 - kept) * ALPHA) * a - a * p * ALPHA


def alpha_dropout(input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False) -> Tensor:
    """Dropout for selu: elements get the value of small x, then mean and variance are restored."""
    return _alpha(input, p, training, input.shape)


def feature_alpha_dropout(input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False) -> Tensor:
    """`alpha_dropout` of whole channels of [N, C, ...]."""
    return _alpha(input, p, training, _by_channel(input, max(0, input.ndim - 2)))
