"""Distributions of integers, and of classes."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...runtime.tensor.dtype import I64
from ..core.registry import FUNCTIONS
from ..core.tensor import Tensor
from ..operations.creation import arange, eye, made, tensor
from ..operations.random import GENERATOR
from ..special.gamma import lgamma
from .distribution import NOT_NEGATIVE, ROWS, UNIT, Distribution, checked, draw, logits_of, softplus, tensors


def _one(probs: Any, logits: Any) -> bool:
    if (probs is None) == (logits is None):
        raise ValueError("give one of probs and logits")
    return probs is not None


class _Chances(Distribution):
    """Base of distributions with `probs` of a success or their `logits`."""

    parameters = {"_probs": 0, "_logits": 0}  # noqa: RUF012

    def __init__(self, probs: Any = None, logits: Any = None, validate_args: Any = None) -> None:
        self._probs: Tensor | None = None
        self._logits: Tensor | None = None
        if _one(probs, logits):
            (self._probs,) = tensors(probs)
            checked(self, "probs", self._probs, UNIT)
        else:
            (self._logits,) = tensors(logits)
        super().__init__((self._probs if self._logits is None else self._logits).shape)  # type: ignore[union-attr]

    @property
    def probs(self) -> Tensor:
        """Probabilities."""
        if self._probs is None:
            assert self._logits is not None
            return self._logits.sigmoid()
        return self._probs

    @property
    def logits(self) -> Tensor:
        """log(p / (1 - p))."""
        if self._logits is None:
            assert self._probs is not None
            return logits_of(self._probs, True)
        return self._logits

    def __repr__(self) -> str:
        return f"{type(self).__name__}({'probs' if self._logits is None else 'logits'}: {list(self.batch_shape)})"


class Bernoulli(_Chances):
    """1 with a probability, and 0 otherwise."""

    @property
    def mean(self) -> Tensor:
        return self.probs

    @property
    def mode(self) -> Tensor:
        probs = self.probs
        return draw("where", probs.eq(0.5), float("nan"), probs.ge(0.5).to(probs.dtype))

    @property
    def variance(self) -> Tensor:
        return self.probs * (1 - self.probs)

    def sample(self, sample_shape: Any = ()) -> Tensor:
        return draw("bernoulli", self.probs.detach().expand(self.shape_of(sample_shape)))

    def log_prob(self, value: Tensor) -> Tensor:
        return value * self.logits - softplus(self.logits)

    def entropy(self) -> Tensor:
        return softplus(self.logits) - self.logits * self.probs

    def enumerate_support(self, expand: bool = True) -> Tensor:
        values = arange(2, dtype=self.probs.dtype).reshape(2, *[1] * len(self.batch_shape))
        return values.expand(2, *self.batch_shape) if expand else values


class Geometric(_Chances):
    """Geometric distribution: number of failures before the first success."""

    @property
    def mean(self) -> Tensor:
        return 1 / self.probs - 1

    @property
    def mode(self) -> Tensor:
        return self.probs * 0

    @property
    def variance(self) -> Tensor:
        return (1 / self.probs - 1) / self.probs

    def sample(self, sample_shape: Any = ()) -> Tensor:
        probs = self.probs.detach().expand(self.shape_of(sample_shape))
        tiny = float(np.finfo(probs.dtype.as_numpy()).tiny)
        drawn = draw("rand", probs.shape, dtype=probs.dtype).clamp(min=tiny)
        return (drawn.log() / (-probs).log1p()).floor()

    def log_prob(self, value: Tensor) -> Tensor:
        probs = FUNCTIONS["where"](self.probs.eq(1).logical_and(value.eq(0)), 0.0, self.probs)
        return value * (-probs).log1p() + self.probs.log()

    def entropy(self) -> Tensor:
        return (softplus(self.logits) - self.logits * self.probs) / self.probs


class Binomial(_Chances):
    """Binomial distribution: number of successes among `total_count` attempts."""

    def __init__(self, total_count: Any = 1, probs: Any = None, logits: Any = None, validate_args: Any = None) -> None:
        super().__init__(probs, logits)
        self.total_count = (
            total_count if isinstance(total_count, Tensor) else tensor(total_count, dtype=self.probs.dtype)
        )

    @property
    def mean(self) -> Tensor:
        return self.total_count * self.probs

    @property
    def mode(self) -> Tensor:
        return ((self.total_count + 1) * self.probs).floor().clamp(max=self.total_count)

    @property
    def variance(self) -> Tensor:
        return self.total_count * self.probs * (1 - self.probs)

    def sample(self, sample_shape: Any = ()) -> Tensor:
        probs = self.probs.detach().expand(self.shape_of(sample_shape))
        state = np.random.RandomState(GENERATOR.bits(1)[0])
        counts = np.broadcast_to(self.total_count.array(), probs.shape).astype(np.int64)
        return made(np.asarray(state.binomial(counts, probs.array()), probs.dtype.as_numpy()))

    def log_prob(self, value: Tensor) -> Tensor:
        count = self.total_count
        ways = lgamma(count + 1) - lgamma(value + 1) - lgamma(count - value + 1)
        return ways + value * self.logits - count * softplus(self.logits)

    def entropy(self) -> Tensor:
        counts = set(self.total_count.array().reshape(-1).tolist())
        if len(counts) > 1:
            raise NotImplementedError("the entropy of Binomial with different counts is not known")
        log = self.log_prob(self.enumerate_support())
        return -(log.exp() * log).sum(0)

    def enumerate_support(self, expand: bool = True) -> Tensor:
        count = int(self.total_count.array().max()) + 1
        values = arange(count, dtype=self.probs.dtype).reshape(count, *[1] * len(self.batch_shape))
        return values.expand(count, *self.batch_shape) if expand else values


class Poisson(Distribution):
    """Poisson distribution: number of events of a rate."""

    parameters = {"rate": 0}  # noqa: RUF012

    def __init__(self, rate: Any, validate_args: Any = None) -> None:
        (self.rate,) = tensors(rate)
        checked(self, "rate", self.rate, NOT_NEGATIVE)
        super().__init__(self.rate.shape)

    @property
    def mean(self) -> Tensor:
        return self.rate

    @property
    def mode(self) -> Tensor:
        return self.rate.floor()

    @property
    def variance(self) -> Tensor:
        return self.rate

    def sample(self, sample_shape: Any = ()) -> Tensor:
        rate = self.rate.detach().expand(self.shape_of(sample_shape))
        state = np.random.RandomState(GENERATOR.bits(1)[0])
        return made(np.asarray(state.poisson(rate.array()), rate.dtype.as_numpy()))

    def log_prob(self, value: Tensor) -> Tensor:
        return draw("xlogy", value, self.rate) - self.rate - lgamma(value + 1)


class Categorical(Distribution):
    """Numbers of classes, with `probs` or `logits` along the last dim; probabilities need not add up to 1."""

    parameters = {"logits": 1}  # noqa: RUF012

    def __init__(self, probs: Any = None, logits: Any = None, validate_args: Any = None) -> None:
        if _one(probs, logits):
            checked(self, "probs", probs, ROWS)
            shares = probs / probs.sum(-1, keepdim=True)
            self.logits, self._shares = logits_of(shares, False), shares
        else:
            self.logits, self._shares = logits - draw("logsumexp", logits, -1, True), None
        if not self.logits.ndim:
            raise ValueError("the probabilities of classes have one dim at least")
        super().__init__(self.logits.shape[:-1])

    @property
    def probs(self) -> Tensor:
        """Probabilities, which add up to 1."""
        shares = self._shares
        if shares is None:
            return self.logits.softmax(-1)
        return shares if shares.shape == self.logits.shape else shares.expand(self.logits.shape)

    @property
    def mean(self) -> Tensor:
        return self.logits.detach().sum(-1) * float("nan")

    @property
    def mode(self) -> Tensor:
        return self.probs.argmax(-1)

    @property
    def variance(self) -> Tensor:
        return self.mean

    def sample(self, sample_shape: Any = ()) -> Tensor:
        shape = self.shape_of(sample_shape)
        rows = self.probs.detach().reshape(-1, self.logits.shape[-1])
        count = int(np.prod(shape)) // max(rows.shape[0], 1)
        return draw("multinomial", rows, count, True).T.reshape(shape)

    def log_prob(self, value: Tensor) -> Tensor:
        wanted = value.long()
        shape = np.broadcast_shapes(wanted.shape, self.batch_shape)
        logits = self.logits.expand(*shape, self.logits.shape[-1])
        return logits.gather(-1, wanted.expand(shape).unsqueeze(-1)).squeeze(-1)

    def entropy(self) -> Tensor:
        least = float(np.finfo(self.logits.dtype.as_numpy()).min)
        return -(self.logits.clamp(min=least) * self.probs).sum(-1)

    def enumerate_support(self, expand: bool = True) -> Tensor:
        count = self.logits.shape[-1]
        values = arange(count, dtype=I64).reshape(count, *[1] * len(self.batch_shape))
        return values.expand(count, *self.batch_shape) if expand else values

    def __repr__(self) -> str:
        return f"Categorical(logits: {list(self.logits.shape)})"


class OneHotCategorical(Distribution):
    """As `Categorical`, of one-hot vectors."""

    parameters = {}  # noqa: RUF012

    def __init__(self, probs: Any = None, logits: Any = None, validate_args: Any = None) -> None:
        self._categorical = Categorical(probs, logits)
        super().__init__(self._categorical.batch_shape, self._categorical.logits.shape[-1:])

    @property
    def probs(self) -> Tensor:
        """Probabilities."""
        return self._categorical.probs

    @property
    def logits(self) -> Tensor:
        """Logarithms of probabilities."""
        return self._categorical.logits

    @property
    def mean(self) -> Tensor:
        return self.probs

    @property
    def mode(self) -> Tensor:
        return self._as_vectors(self.probs.argmax(-1))

    @property
    def variance(self) -> Tensor:
        return self.probs * (1 - self.probs)

    def _as_vectors(self, classes: Tensor) -> Tensor:
        return classes.unsqueeze(-1).eq(arange(self.event_shape[0])).to(self.probs.dtype)

    def sample(self, sample_shape: Any = ()) -> Tensor:
        return self._as_vectors(self._categorical.sample(sample_shape))

    def log_prob(self, value: Tensor) -> Tensor:
        return self._categorical.log_prob(value.argmax(-1))

    def entropy(self) -> Tensor:
        return self._categorical.entropy()

    def enumerate_support(self, expand: bool = True) -> Tensor:
        count = self.event_shape[0]
        values = eye(count, dtype=self.probs.dtype).reshape(count, *[1] * len(self.batch_shape), count)
        return values.expand(count, *self.batch_shape, count) if expand else values

    def expand(self, batch_shape: Any) -> OneHotCategorical:
        return type(self)(logits=self._categorical.expand(batch_shape).logits)


class OneHotCategoricalStraightThrough(OneHotCategorical):
    """As `OneHotCategorical`, with the gradients of the probabilities."""

    has_rsample = True

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        return self.sample(sample_shape) + (self.probs - self.probs.detach())
