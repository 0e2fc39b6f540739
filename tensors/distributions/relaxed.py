"""Continuous distributions near those of classes, whose samples have gradients (Maddison et al. 2016, arXiv:1611.00712;
Jang et al. 2016, arXiv:1611.01144)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..core.tensor import Tensor
from ..special.gamma import lgamma
from .discrete import Bernoulli, Categorical
from .distribution import Distribution, draw, softplus


def _uniform(shape: tuple[int, ...], like: Tensor) -> Tensor:
    eps = float(np.finfo(like.dtype.as_numpy()).eps)
    return draw("rand", shape, dtype=like.dtype).clamp(eps, 1 - eps)


class RelaxedBernoulli(Distribution):
    """Near 0 or 1; the lower the temperature, the nearer."""

    has_rsample = True

    def __init__(self, temperature: Any, probs: Any = None, logits: Any = None, validate_args: Any = None) -> None:
        self.temperature, base = temperature, Bernoulli(probs, logits)
        self.probs, self.logits = base.probs, base.logits
        super().__init__(base.batch_shape)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        drawn = _uniform(self.shape_of(sample_shape), self.logits)
        return ((drawn.log() - (-drawn).log1p() + self.logits) / self.temperature).sigmoid()

    def log_prob(self, value: Tensor) -> Tensor:
        x = value.log() - (-value).log1p()
        away = self.logits - x * self.temperature
        temperature = self.temperature
        log = temperature.log() if isinstance(temperature, Tensor) else math.log(temperature)
        return log + away - 2 * softplus(away) + softplus(-x) + softplus(x)


class RelaxedOneHotCategorical(Distribution):
    """Near vectors with one 1; the lower the temperature, the nearer."""

    has_rsample = True

    def __init__(self, temperature: Any, probs: Any = None, logits: Any = None, validate_args: Any = None) -> None:
        self.temperature, base = temperature, Categorical(probs, logits)
        self.probs, self.logits = base.probs, base.logits
        super().__init__(base.batch_shape, base.logits.shape[-1:])

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        drawn = _uniform(self.shape_of(sample_shape), self.logits)
        scores = (self.logits - (-drawn.log()).log()) / self.temperature
        return (scores - draw("logsumexp", scores, -1, True)).exp()

    def log_prob(self, value: Tensor) -> Tensor:
        count, temperature = self.event_shape[0], self.temperature
        log = temperature.log() if isinstance(temperature, Tensor) else math.log(temperature)
        scale = (count - 1) * log + float(lgamma(float(count)).item())
        score = self.logits - value.log() * temperature
        return (score - draw("logsumexp", score, -1, True)).sum(-1) + scale - value.log().sum(-1)
