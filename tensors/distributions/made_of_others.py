"""Distributions that are made of others: outcomes of several dims, transformed outcomes, and mixtures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..core.tensor import Tensor
from ..operations.operands import lengths_of
from .discrete import Categorical
from .distribution import Distribution, draw, sum_last
from .transforms import ComposeTransform, Transform


class Independent(Distribution):
    """A distribution whose last batch dims are dims of one outcome: log probabilities are summed over them."""

    def __init__(
        self, base_distribution: Distribution, reinterpreted_batch_ndims: int, validate_args: Any = None
    ) -> None:
        self.base_dist, self.reinterpreted_batch_ndims = base_distribution, reinterpreted_batch_ndims
        batch, event = base_distribution.batch_shape, base_distribution.event_shape
        if not 0 <= reinterpreted_batch_ndims <= len(batch):
            raise ValueError(f"{reinterpreted_batch_ndims} dims of an outcome are not among {len(batch)} batch dims")
        kept = len(batch) - reinterpreted_batch_ndims
        super().__init__(batch[:kept], (*batch[kept:], *event))

    @property
    def has_rsample(self) -> bool:  # type: ignore[override]
        """Whether samples have gradients."""
        return self.base_dist.has_rsample

    @property
    def mean(self) -> Tensor:
        return self.base_dist.mean

    @property
    def mode(self) -> Tensor:
        return self.base_dist.mode

    @property
    def variance(self) -> Tensor:
        return self.base_dist.variance

    def sample(self, sample_shape: Any = ()) -> Tensor:
        return self.base_dist.sample(sample_shape)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        return self.base_dist.rsample(sample_shape)

    def log_prob(self, value: Tensor) -> Tensor:
        return sum_last(self.base_dist.log_prob(value), self.reinterpreted_batch_ndims)

    def entropy(self) -> Tensor:
        return sum_last(self.base_dist.entropy(), self.reinterpreted_batch_ndims)

    def expand(self, batch_shape: Any) -> Independent:
        inner = self.event_shape[: self.reinterpreted_batch_ndims]
        base = self.base_dist.expand((*lengths_of([batch_shape]), *inner))
        return Independent(base, self.reinterpreted_batch_ndims)

    def __repr__(self) -> str:
        return f"Independent({self.base_dist}, {self.reinterpreted_batch_ndims})"


class TransformedDistribution(Distribution):
    """The outcomes of a distribution after transforms."""

    def __init__(
        self, base_distribution: Distribution, transforms: Transform | Sequence[Transform], validate_args: Any = None
    ) -> None:
        self.base_dist = base_distribution
        self.transforms = [transforms] if isinstance(transforms, Transform) else list(transforms)
        self._all = self.transforms[0] if len(self.transforms) == 1 else ComposeTransform(self.transforms)
        super().__init__(base_distribution.batch_shape, base_distribution.event_shape)

    @property
    def has_rsample(self) -> bool:  # type: ignore[override]
        """Whether samples have gradients."""
        return self.base_dist.has_rsample

    def sample(self, sample_shape: Any = ()) -> Tensor:
        return self._all(self.base_dist.sample(sample_shape))

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        return self._all(self.base_dist.rsample(sample_shape))

    def log_prob(self, value: Tensor) -> Tensor:
        x = self._all.inv(value)
        slope = self._all.log_abs_det_jacobian(x, value)
        return self.base_dist.log_prob(x) - sum_last(slope, len(self.event_shape))

    def cdf(self, value: Tensor) -> Tensor:
        return self.base_dist.cdf(self._all.inv(value))

    def expand(self, batch_shape: Any) -> TransformedDistribution:
        return TransformedDistribution(self.base_dist.expand(batch_shape), self.transforms)

    def __repr__(self) -> str:
        return (
            f"TransformedDistribution({self.base_dist}, {[type(transform).__name__ for transform in self.transforms]})"
        )


class MixtureSameFamily(Distribution):
    """One of several distributions of a family, along their last batch dim, chosen by a `Categorical`."""

    def __init__(
        self, mixture_distribution: Categorical, component_distribution: Distribution, validate_args: Any = None
    ) -> None:
        self.mixture_distribution, self.component_distribution = mixture_distribution, component_distribution
        batch = component_distribution.batch_shape
        if not batch or mixture_distribution.logits.shape[-1] != batch[-1]:
            raise ValueError("the last batch dim of the components is not as long as the mixture has weights")
        super().__init__(np.broadcast_shapes(batch[:-1]), component_distribution.event_shape)

    def _weights(self) -> Tensor:
        probs = self.mixture_distribution.probs
        return probs.reshape(*probs.shape, *[1] * len(self.event_shape))

    def _place(self) -> int:
        return -1 - len(self.event_shape)

    @property
    def mean(self) -> Tensor:
        return (self._weights() * self.component_distribution.mean).sum(self._place())

    @property
    def variance(self) -> Tensor:
        weights, means = self._weights(), self.component_distribution.mean
        within = (weights * self.component_distribution.variance).sum(self._place())
        return within + (weights * (means - self.mean.unsqueeze(self._place())) ** 2).sum(self._place())

    def sample(self, sample_shape: Any = ()) -> Tensor:
        chosen = self.mixture_distribution.sample(sample_shape)
        found = self.component_distribution.sample(sample_shape)
        place = found.ndim + self._place()
        shape = (*found.shape[:place], 1, *found.shape[place + 1 :])
        chosen = chosen.reshape(*chosen.shape, *[1] * (1 + len(self.event_shape))).expand(shape)
        return found.gather(place, chosen).squeeze(place)

    def log_prob(self, value: Tensor) -> Tensor:
        each = self.component_distribution.log_prob(value.unsqueeze(self._place()))
        return draw("logsumexp", each + self.mixture_distribution.logits, -1)

    def cdf(self, value: Tensor) -> Tensor:
        return (self.component_distribution.cdf(value.unsqueeze(-1)) * self.mixture_distribution.probs).sum(-1)
