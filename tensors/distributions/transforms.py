"""Transforms of outcomes that can be inverted, with the logarithm of their derivative."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..core.tensor import Tensor
from .distribution import softplus


class Transform:
    """Base of transforms: subclasses define `forward`, `inverse` and `log_abs_det_jacobian`.

    Args:
        cache_size: PyTorch's number of kept results; the last one is kept if it is not 0, so that the inverse of what
            was computed is exact.
    """

    def __init__(self, cache_size: int = 0) -> None:
        self._kept: tuple[Tensor, Tensor] | None = None
        self._cache_size = cache_size

    def forward(self, x: Tensor) -> Tensor:
        """The transformed outcomes."""
        raise NotImplementedError(f"{type(self).__name__} has no forward")

    def inverse(self, y: Tensor) -> Tensor:
        """The outcomes of which these were made."""
        raise NotImplementedError(f"{type(self).__name__} has no inverse")

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        """log |dy / dx|, of the shape of the elements."""
        raise NotImplementedError(f"{type(self).__name__} has no log_abs_det_jacobian")

    def __call__(self, x: Tensor) -> Tensor:
        if self._kept is not None and self._kept[0] is x:
            return self._kept[1]
        y = self.forward(x)
        if self._cache_size:
            self._kept = x, y
        return y

    def inv(self, y: Tensor) -> Tensor:
        """The outcomes of which these were made, exactly if they are kept."""
        return self._kept[0] if self._kept is not None and self._kept[1] is y else self.inverse(y)


class ExpTransform(Transform):
    """exp(x)."""

    def forward(self, x: Tensor) -> Tensor:
        return x.exp()

    def inverse(self, y: Tensor) -> Tensor:
        return y.log()

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return x


class AffineTransform(Transform):
    """loc + scale * x."""

    def __init__(self, loc: Any, scale: Any, event_dim: int = 0, cache_size: int = 0) -> None:
        super().__init__(cache_size)
        self.loc, self.scale, self.event_dim = loc, scale, event_dim

    def forward(self, x: Tensor) -> Tensor:
        return self.loc + self.scale * x

    def inverse(self, y: Tensor) -> Tensor:
        return (y - self.loc) / self.scale

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        scale = self.scale
        found = x * 0 + (scale.abs().log() if isinstance(scale, Tensor) else math.log(abs(scale)))
        return found.sum(tuple(range(-self.event_dim, 0))) if self.event_dim else found


class SigmoidTransform(Transform):
    """1 / (1 + exp(-x))."""

    def forward(self, x: Tensor) -> Tensor:
        facts = np.finfo(x.dtype.as_numpy())
        return x.sigmoid().clamp(float(facts.tiny), 1 - float(facts.eps))

    def inverse(self, y: Tensor) -> Tensor:
        facts = np.finfo(y.dtype.as_numpy())
        y = y.clamp(float(facts.tiny), 1 - float(facts.eps))
        return y.log() - (-y).log1p()

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return -softplus(-x) - softplus(x)


class TanhTransform(Transform):
    """tanh(x)."""

    def forward(self, x: Tensor) -> Tensor:
        return x.tanh()

    def inverse(self, y: Tensor) -> Tensor:
        return y.atanh()

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return 2 * (math.log(2) - x - softplus(-2 * x))


class ComposeTransform(Transform):
    """Transforms one after another."""

    def __init__(self, parts: Sequence[Transform], cache_size: int = 0) -> None:
        super().__init__(cache_size)
        self.parts = list(parts)

    def forward(self, x: Tensor) -> Tensor:
        for part in self.parts:
            x = part(x)
        return x

    def inverse(self, y: Tensor) -> Tensor:
        for part in reversed(self.parts):
            y = part.inv(y)
        return y

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        total: Any = 0
        for part in self.parts:
            following = part(x)
            total = total + part.log_abs_det_jacobian(x, following)
            x = following
        return total
