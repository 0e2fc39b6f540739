"""Gamma distributions and those derived from them; samples have no gradients."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..core.tensor import Tensor
from ..operations.creation import made
from ..operations.joining import stack
from ..operations.random import GENERATOR
from ..special.gamma import digamma, igamma, lgamma
from .distribution import POSITIVE, Distribution, checked, draw, tensors


def _drawn(shape: tuple[int, ...], concentration: Tensor) -> np.ndarray:
    """Numbers of gamma distributions of rate 1, f64, which the default generator seeds."""
    state = np.random.RandomState(GENERATOR.bits(1)[0])
    found: np.ndarray = np.asarray(state.standard_gamma(np.broadcast_to(concentration.detach().array(), shape)))
    return found


class Gamma(Distribution):
    """Gamma distribution with a concentration and a rate."""

    parameters = {"concentration": 0, "rate": 0}  # noqa: RUF012

    def __init__(self, concentration: Any, rate: Any, validate_args: Any = None) -> None:
        self.concentration, self.rate = tensors(concentration, rate)
        checked(self, "concentration", self.concentration, POSITIVE)
        checked(self, "rate", self.rate, POSITIVE)
        super().__init__(self.rate.shape)

    @property
    def mean(self) -> Tensor:
        return self.concentration / self.rate

    @property
    def mode(self) -> Tensor:
        return ((self.concentration - 1) / self.rate).clamp(min=0)

    @property
    def variance(self) -> Tensor:
        return self.concentration / self.rate**2

    def sample(self, sample_shape: Any = ()) -> Tensor:
        numbers = _drawn(self.shape_of(sample_shape), self.concentration)
        return made(numbers.astype(self.rate.dtype.as_numpy())) / self.rate.detach()

    def log_prob(self, value: Tensor) -> Tensor:
        shape = self.concentration
        return draw("xlogy", shape, self.rate) + draw("xlogy", shape - 1, value) - self.rate * value - lgamma(shape)

    def entropy(self) -> Tensor:
        shape = self.concentration
        return shape - self.rate.log() + lgamma(shape) + (1 - shape) * digamma(shape)

    def cdf(self, value: Tensor) -> Tensor:
        return igamma(self.concentration, self.rate * value)


class Chi2(Gamma):
    """The sum of the squares of `df` standard normal numbers."""

    def __init__(self, df: Any, validate_args: Any = None) -> None:
        super().__init__(0.5 * df, 0.5)

    @property
    def df(self) -> Tensor:
        """Degrees of freedom."""
        return self.concentration * 2


class Dirichlet(Distribution):
    """Dirichlet distribution of shares that add up to 1 along the last dim."""

    parameters = {"concentration": 1}  # noqa: RUF012

    def __init__(self, concentration: Tensor, validate_args: Any = None) -> None:
        if not concentration.ndim:
            raise ValueError("the concentration of Dirichlet has one dim at least")
        self.concentration = checked(self, "concentration", concentration, POSITIVE)
        super().__init__(concentration.shape[:-1], concentration.shape[-1:])

    @property
    def mean(self) -> Tensor:
        return self.concentration / self.concentration.sum(-1, keepdim=True)

    @property
    def mode(self) -> Tensor:
        less = (self.concentration - 1).clamp(min=0)
        found = less / less.sum(-1, keepdim=True)
        flat = (self.concentration < 1).all(-1, keepdim=True)
        best = self.concentration.eq(self.concentration.amax(-1, keepdim=True)).to(found.dtype)
        return draw("where", flat, best, found)

    @property
    def variance(self) -> Tensor:
        total = self.concentration.sum(-1, keepdim=True)
        return self.concentration * (total - self.concentration) / (total**2 * (total + 1))

    def sample(self, sample_shape: Any = ()) -> Tensor:
        numbers = _drawn(self.shape_of(sample_shape), self.concentration)
        return made((numbers / numbers.sum(-1, keepdims=True)).astype(self.concentration.dtype.as_numpy()))

    def log_prob(self, value: Tensor) -> Tensor:
        shape = self.concentration
        return draw("xlogy", shape - 1, value).sum(-1) + lgamma(shape.sum(-1)) - lgamma(shape).sum(-1)

    def entropy(self) -> Tensor:
        shape, count = self.concentration, self.concentration.shape[-1]
        total = shape.sum(-1)
        spread = (count - total) * digamma(total) + ((shape - 1) * digamma(shape)).sum(-1)
        return lgamma(shape).sum(-1) - lgamma(total) - spread


class Beta(Distribution):
    """Beta distribution of a share, with two concentrations."""

    parameters = {"concentration1": 0, "concentration0": 0}  # noqa: RUF012

    def __init__(self, concentration1: Any, concentration0: Any, validate_args: Any = None) -> None:
        self.concentration1, self.concentration0 = tensors(concentration1, concentration0)
        checked(self, "concentration1", self.concentration1, POSITIVE)
        checked(self, "concentration0", self.concentration0, POSITIVE)
        super().__init__(self.concentration0.shape)

    def _dirichlet(self) -> Dirichlet:
        return Dirichlet(stack([self.concentration1, self.concentration0], -1))

    @property
    def mean(self) -> Tensor:
        return self.concentration1 / (self.concentration1 + self.concentration0)

    @property
    def mode(self) -> Tensor:
        return self._dirichlet().mode[..., 0]

    @property
    def variance(self) -> Tensor:
        total = self.concentration1 + self.concentration0
        return self.concentration1 * self.concentration0 / (total**2 * (total + 1))

    def sample(self, sample_shape: Any = ()) -> Tensor:
        return self._dirichlet().sample(sample_shape)[..., 0]

    def log_prob(self, value: Tensor) -> Tensor:
        return self._dirichlet().log_prob(stack([value, 1 - value], -1))

    def entropy(self) -> Tensor:
        return self._dirichlet().entropy()


class StudentT(Distribution):
    """Student's t-distribution with degrees of freedom, a center and a scale."""

    parameters = {"df": 0, "loc": 0, "scale": 0}  # noqa: RUF012

    def __init__(self, df: Any, loc: Any = 0.0, scale: Any = 1.0, validate_args: Any = None) -> None:
        self.df, self.loc, self.scale = tensors(df, loc, scale)
        checked(self, "df", self.df, POSITIVE)
        checked(self, "scale", self.scale, POSITIVE)
        super().__init__(self.df.shape)

    @property
    def mean(self) -> Tensor:
        return draw("where", self.df <= 1, math.nan, self.loc)

    @property
    def mode(self) -> Tensor:
        return self.loc

    @property
    def variance(self) -> Tensor:
        found = self.scale**2 * self.df / (self.df - 2)
        found = draw("where", self.df > 2, found, math.inf)
        return draw("where", self.df <= 1, math.nan, found)

    def sample(self, sample_shape: Any = ()) -> Tensor:
        shape = self.shape_of(sample_shape)
        noise = draw("randn", shape, dtype=self.df.dtype)
        spread = made((2 * _drawn(shape, self.df / 2)).astype(self.df.dtype.as_numpy()))
        return (self.loc + self.scale * noise * (self.df / spread).sqrt()).detach()

    def log_prob(self, value: Tensor) -> Tensor:
        y, half = (value - self.loc) / self.scale, (self.df + 1) / 2
        constant = self.scale.log() + 0.5 * self.df.log() + 0.5 * math.log(math.pi) + lgamma(self.df / 2) - lgamma(half)
        return -half * (y**2 / self.df).log1p() - constant

    def entropy(self) -> Tensor:
        half = (self.df + 1) / 2
        log_beta = lgamma(0.5 * self.df) + math.log(math.pi) / 2 - lgamma(half)
        return self.scale.log() + half * (digamma(half) - digamma(0.5 * self.df)) + 0.5 * self.df.log() + log_beta
