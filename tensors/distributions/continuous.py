"""Distributions of real numbers that are drawn from uniform or exponential ones."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..core.tensor import Tensor
from ..operations.random import exponential
from .distribution import POSITIVE, Distribution, LocationScale, checked, draw, tensors

EULER = 0.57721566490153286061


def _limits(like: Tensor) -> tuple[float, float]:
    """The smallest normal number, and the distance of 1 to the next one."""
    facts = np.finfo(like.dtype.as_numpy())
    return float(facts.tiny), float(facts.eps)


class Uniform(Distribution):
    """From `low` on and below `high`."""

    has_rsample = True
    parameters = {"low": 0, "high": 0}  # noqa: RUF012

    def __init__(self, low: Any, high: Any, validate_args: Any = None) -> None:
        self.low, self.high = tensors(low, high)
        checked(self, "high - low", (self.high - self.low).detach().realize(), POSITIVE)
        super().__init__(self.low.shape)

    @property
    def mean(self) -> Tensor:
        return (self.high + self.low) / 2

    @property
    def mode(self) -> Tensor:
        return self.high * math.nan

    @property
    def stddev(self) -> Tensor:
        return (self.high - self.low) / 12**0.5

    @property
    def variance(self) -> Tensor:
        return (self.high - self.low) ** 2 / 12

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        drawn = draw("rand", self.shape_of(sample_shape), dtype=self.low.dtype)
        return self.low + drawn * (self.high - self.low)

    def log_prob(self, value: Tensor) -> Tensor:
        inside = (self.low <= value).to(self.low.dtype) * (self.high > value).to(self.low.dtype)
        return inside.log() - (self.high - self.low).log()

    def entropy(self) -> Tensor:
        return (self.high - self.low).log()

    def cdf(self, value: Tensor) -> Tensor:
        return ((value - self.low) / (self.high - self.low)).clamp(0, 1)

    def icdf(self, value: Tensor) -> Tensor:
        return value * (self.high - self.low) + self.low


class Exponential(Distribution):
    """Exponential distribution with a rate."""

    has_rsample = True
    parameters = {"rate": 0}  # noqa: RUF012

    def __init__(self, rate: Any, validate_args: Any = None) -> None:
        (self.rate,) = tensors(rate)
        checked(self, "rate", self.rate, POSITIVE)
        super().__init__(self.rate.shape)

    @property
    def mean(self) -> Tensor:
        return self.rate.reciprocal()

    @property
    def mode(self) -> Tensor:
        return self.rate * 0

    @property
    def stddev(self) -> Tensor:
        return self.rate.reciprocal()

    @property
    def variance(self) -> Tensor:
        return self.rate ** (-2)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        return exponential(self.shape_of(sample_shape), self.rate.dtype) / self.rate

    def log_prob(self, value: Tensor) -> Tensor:
        return self.rate.log() - self.rate * value

    def entropy(self) -> Tensor:
        return 1 - self.rate.log()

    def cdf(self, value: Tensor) -> Tensor:
        return 1 - (-self.rate * value).exp()

    def icdf(self, value: Tensor) -> Tensor:
        return -(-value).log1p() / self.rate


class Laplace(LocationScale):
    """Laplace distribution with a center and a scale."""

    @property
    def stddev(self) -> Tensor:
        return 2**0.5 * self.scale

    @property
    def variance(self) -> Tensor:
        return 2 * self.scale.square()

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        tiny, eps = _limits(self.loc)
        drawn = draw("zeros", self.shape_of(sample_shape), dtype=self.loc.dtype).uniform_(eps - 1, 1)
        return self.loc - self.scale * drawn.sign() * (-drawn.abs().clamp(min=tiny)).log1p()

    def log_prob(self, value: Tensor) -> Tensor:
        return -(2 * self.scale).log() - (value - self.loc).abs() / self.scale

    def entropy(self) -> Tensor:
        return 1 + (2 * self.scale).log()

    def cdf(self, value: Tensor) -> Tensor:
        away = value - self.loc
        return 0.5 - 0.5 * away.sign() * (-away.abs() / self.scale).expm1()

    def icdf(self, value: Tensor) -> Tensor:
        term = value - 0.5
        return self.loc - self.scale * term.sign() * (-2 * term.abs()).log1p()


class Cauchy(LocationScale):
    """Cauchy distribution with a median and half of the width at half of the height."""

    @property
    def mean(self) -> Tensor:
        return self.loc * math.nan

    @property
    def variance(self) -> Tensor:
        return self.loc * 0 + math.inf

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        return self.loc + draw("zeros", self.shape_of(sample_shape), dtype=self.loc.dtype).cauchy_() * self.scale

    def log_prob(self, value: Tensor) -> Tensor:
        return -math.log(math.pi) - self.scale.log() - ((value - self.loc) / self.scale).square().log1p()

    def entropy(self) -> Tensor:
        return math.log(4 * math.pi) + self.scale.log()

    def cdf(self, value: Tensor) -> Tensor:
        return ((value - self.loc) / self.scale).atan() / math.pi + 0.5

    def icdf(self, value: Tensor) -> Tensor:
        return (math.pi * (value - 0.5)).tan() * self.scale + self.loc


class Gumbel(LocationScale):
    """Gumbel distribution, of the largest of many numbers, with a location and a scale."""

    @property
    def mean(self) -> Tensor:
        return self.loc + self.scale * EULER

    @property
    def stddev(self) -> Tensor:
        return math.pi / math.sqrt(6) * self.scale

    @property
    def variance(self) -> Tensor:
        return self.stddev.square()

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        tiny, eps = _limits(self.loc)
        drawn = draw("rand", self.shape_of(sample_shape), dtype=self.loc.dtype) * (1 - eps - tiny) + tiny
        return self.loc - self.scale * (-drawn.log()).log()

    def log_prob(self, value: Tensor) -> Tensor:
        y = (self.loc - value) / self.scale
        return (y - y.exp()) - self.scale.log()

    def entropy(self) -> Tensor:
        return self.scale.log() + (1 + EULER)

    def cdf(self, value: Tensor) -> Tensor:
        return (-(-(value - self.loc) / self.scale).exp()).exp()
