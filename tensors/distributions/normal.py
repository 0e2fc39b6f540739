"""Normal distributions and those derived from them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..core.tensor import Tensor
from ..operations.creation import eye
from ..special.inverse import erfinv
from .distribution import POSITIVE, Distribution, LocationScale, checked, draw, sum_last, tensors

HALF_LOG_2_PI = 0.5 * math.log(2 * math.pi)


class Normal(LocationScale):
    """Normal distribution with a mean `loc` and a standard deviation `scale`."""

    @property
    def stddev(self) -> Tensor:
        return self.scale

    @property
    def variance(self) -> Tensor:
        return self.scale.square()

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        noise = draw("randn", self.shape_of(sample_shape), dtype=self.loc.dtype)
        return self.loc + noise * self.scale

    def log_prob(self, value: Tensor) -> Tensor:
        return -((value - self.loc) ** 2) / (2 * self.scale**2) - self.scale.log() - HALF_LOG_2_PI

    def entropy(self) -> Tensor:
        return 0.5 + HALF_LOG_2_PI + self.scale.log()

    def cdf(self, value: Tensor) -> Tensor:
        return 0.5 * (1 + ((value - self.loc) * self.scale.reciprocal() / math.sqrt(2)).erf())

    def icdf(self, value: Tensor) -> Tensor:
        return self.loc + self.scale * erfinv(2 * value - 1) * math.sqrt(2)


class LogNormal(Distribution):
    """exp of a normal distribution of mean `loc` and standard deviation `scale`."""

    has_rsample = True
    parameters = {"loc": 0, "scale": 0}  # noqa: RUF012

    def __init__(self, loc: Any, scale: Any, validate_args: Any = None) -> None:
        self.base_dist = Normal(loc, scale)
        self.loc, self.scale = self.base_dist.loc, self.base_dist.scale
        super().__init__(self.loc.shape)

    @property
    def mean(self) -> Tensor:
        return (self.loc + self.scale**2 / 2).exp()

    @property
    def mode(self) -> Tensor:
        return (self.loc - self.scale.square()).exp()

    @property
    def variance(self) -> Tensor:
        squares = self.scale**2
        return squares.expm1() * (2 * self.loc + squares).exp()

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        return Normal(self.loc, self.scale).rsample(sample_shape).exp()

    def log_prob(self, value: Tensor) -> Tensor:
        return Normal(self.loc, self.scale).log_prob(value.log()) - value.log()

    def entropy(self) -> Tensor:
        return Normal(self.loc, self.scale).entropy() + self.loc

    def cdf(self, value: Tensor) -> Tensor:
        return Normal(self.loc, self.scale).cdf(value.log())

    def icdf(self, value: Tensor) -> Tensor:
        return Normal(self.loc, self.scale).icdf(value).exp()


class HalfNormal(Distribution):
    """The absolute value of a normal distribution of mean 0."""

    has_rsample = True
    parameters = {"scale": 0}  # noqa: RUF012

    def __init__(self, scale: Any, validate_args: Any = None) -> None:
        (self.scale,) = tensors(scale)
        checked(self, "scale", self.scale, POSITIVE)
        super().__init__(self.scale.shape)

    def _base(self) -> Normal:
        return Normal(0, self.scale)

    @property
    def mean(self) -> Tensor:
        return self.scale * math.sqrt(2 / math.pi)

    @property
    def mode(self) -> Tensor:
        return self.scale * 0

    @property
    def variance(self) -> Tensor:
        return self.scale**2 * (1 - 2 / math.pi)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        return self._base().rsample(sample_shape).abs()

    def log_prob(self, value: Tensor) -> Tensor:
        found = self._base().log_prob(value) + math.log(2)
        return draw("where", value >= 0, found, -math.inf)

    def entropy(self) -> Tensor:
        return self._base().entropy() - math.log(2)

    def cdf(self, value: Tensor) -> Tensor:
        return 2 * self._base().cdf(value) - 1

    def icdf(self, value: Tensor) -> Tensor:
        return self._base().icdf((value + 1) / 2)


class MultivariateNormal(Distribution):
    """Normal distribution of vectors with a mean and one of a covariance, its inverse, or its triangular factor.

    Args:
        loc: [..., n].
        covariance_matrix, precision_matrix, scale_tril: [..., n, n].
    """

    has_rsample = True
    parameters = {"loc": 1, "scale_tril": 2}  # noqa: RUF012

    def __init__(
        self, loc: Any, covariance_matrix: Any = None, precision_matrix: Any = None, scale_tril: Any = None,
        validate_args: Any = None,
    ) -> None:  # fmt: skip
        from ..linalg.decompositions import cholesky, inv

        given = [each for each in (covariance_matrix, precision_matrix, scale_tril) if each is not None]
        if len(given) != 1:
            raise ValueError("give one of covariance_matrix, precision_matrix and scale_tril")
        if scale_tril is not None:
            factor = scale_tril
        else:
            factor = cholesky(covariance_matrix if precision_matrix is None else inv(precision_matrix))
        batch = np.broadcast_shapes(loc.shape[:-1], factor.shape[:-2])
        count = loc.shape[-1]
        self.loc, self.scale_tril = loc.expand(*batch, count), factor.expand(*batch, count, count)
        super().__init__(batch, (count,))

    @property
    def covariance_matrix(self) -> Tensor:
        """[..., n, n]."""
        return self.scale_tril @ self.scale_tril.mT

    @property
    def mean(self) -> Tensor:
        return self.loc

    @property
    def mode(self) -> Tensor:
        return self.loc

    @property
    def variance(self) -> Tensor:
        return self.scale_tril.square().sum(-1)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        noise = draw("randn", self.shape_of(sample_shape), dtype=self.loc.dtype)
        return self.loc + (self.scale_tril @ noise.unsqueeze(-1)).squeeze(-1)

    def _half_log_det(self) -> Tensor:
        return (self.scale_tril * eye(self.loc.shape[-1])).sum(-1).log().sum(-1)

    def log_prob(self, value: Tensor) -> Tensor:
        from ..linalg.decompositions import solve_triangular

        away = value - self.loc
        factor = self.scale_tril.expand(*away.shape[:-1], *self.scale_tril.shape[-2:])
        solved = solve_triangular(factor, away.unsqueeze(-1), upper=False).squeeze(-1)
        return -0.5 * sum_last(solved.square(), 1) - self._half_log_det() - self.loc.shape[-1] * HALF_LOG_2_PI

    def entropy(self) -> Tensor:
        return self.loc.shape[-1] * (0.5 + HALF_LOG_2_PI) + self._half_log_det()
