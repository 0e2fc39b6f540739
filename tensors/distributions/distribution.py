"""Distribution: base of distributions, and what their formulas share."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import numpy as np

from ...runtime.base.errors import UsageError
from ..core.grad_mode import no_grad
from ..core.promotion import get_default_dtype
from ..core.registry import FUNCTIONS
from ..core.tensor import Tensor
from ..operations.creation import tensor
from ..operations.operands import lengths_of

CODE = "E-TENSOR-DISTRIBUTION"


class DistributionError(UsageError, ValueError):
    """A parameter or a value that a distribution does not have; a ValueError, as PyTorch's."""


Check = tuple[str, Callable[[np.ndarray], Any]]
REAL: Check = ("finite", np.isfinite)
POSITIVE: Check = ("above 0", lambda x: x > 0)
NOT_NEGATIVE: Check = ("at least 0", lambda x: x >= 0)
UNIT: Check = ("from 0 to 1", lambda x: (x >= 0) & (x <= 1))
ROWS: Check = ("rows of numbers from 0 on, not all 0", lambda x: (x >= 0) & (x.sum(-1, keepdims=True) > 0))


def checked(owner: Any, name: str, value: Tensor, check: Check) -> Tensor:
    """A parameter or value; DistributionError unless all its elements are such numbers."""
    what, holds = check
    if value.expression.data is not None and not np.all(holds(value.expression.data)):
        raise DistributionError(CODE, None, f"{name} of {type(owner).__name__} has other elements", expected=what)
    return value


class Distribution:
    """A distribution of tensors.

    Subclasses define `rsample` if samples have gradients, else `sample`, and `log_prob`.

    Attributes:
        batch_shape: of independent distributions with parameters of their own.
        event_shape: of one outcome.
        has_rsample: whether samples have gradients by the parameters.
    """

    has_rsample: ClassVar[bool] = False
    parameters: ClassVar[Mapping[str, int]] = {}
    """Attributes that are parameters, and how many of their last dims belong to one outcome."""

    def __init__(
        self, batch_shape: tuple[int, ...] = (), event_shape: tuple[int, ...] = (), validate_args: Any = None
    ) -> None:
        self.batch_shape, self.event_shape = tuple(batch_shape), tuple(event_shape)

    @staticmethod
    def set_default_validate_args(value: bool) -> None:
        """PyTorch's switch of checks, which are made of values that are known either way."""

    def sample(self, sample_shape: Any = ()) -> Tensor:
        """Outcomes without gradients."""
        with no_grad():
            return self.rsample(sample_shape).detach()

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        """Outcomes with gradients by the parameters; NotImplementedError where `has_rsample` is False."""
        raise NotImplementedError(f"samples of {type(self).__name__} have no gradients")

    def sample_n(self, n: int) -> Tensor:
        """n outcomes."""
        return self.sample((n,))

    def log_prob(self, value: Tensor) -> Tensor:
        """The logarithm of the density or probability of a value, of the shape of the value without outcomes' dims."""
        raise NotImplementedError(f"{type(self).__name__} has no log_prob")

    def prob(self, value: Tensor) -> Tensor:
        """The density or probability of a value."""
        return self.log_prob(value).exp()

    def entropy(self) -> Tensor:
        """The entropy in nats."""
        raise NotImplementedError(f"{type(self).__name__} has no entropy")

    def cdf(self, value: Tensor) -> Tensor:
        """The probability of outcomes up to a value."""
        raise NotImplementedError(f"{type(self).__name__} has no cdf")

    def icdf(self, value: Tensor) -> Tensor:
        """The value up to which outcomes have a probability."""
        raise NotImplementedError(f"{type(self).__name__} has no icdf")

    def enumerate_support(self, expand: bool = True) -> Tensor:
        """All outcomes along a new first dim."""
        raise NotImplementedError(f"{type(self).__name__} has no enumerate_support")

    @property
    def mean(self) -> Tensor:
        """The mean."""
        raise NotImplementedError(f"{type(self).__name__} has no mean")

    @property
    def mode(self) -> Tensor:
        """The most probable outcome."""
        raise NotImplementedError(f"{type(self).__name__} has no mode")

    @property
    def variance(self) -> Tensor:
        """The variance."""
        raise NotImplementedError(f"{type(self).__name__} has no variance")

    @property
    def stddev(self) -> Tensor:
        """The standard deviation."""
        return self.variance.sqrt()

    def perplexity(self) -> Tensor:
        """exp of the entropy."""
        return self.entropy().exp()

    def expand(self, batch_shape: Any) -> Any:
        """The same distribution for more parameters, which broadcast to another batch shape."""
        made = copy.copy(self)
        made.batch_shape = lengths_of([batch_shape])
        for name, dims in self.parameters.items():
            value = vars(self).get(name)
            if value is not None:
                own = value.shape[value.ndim - dims :]
                setattr(made, name, value.expand(*made.batch_shape, *own))
        return made

    def shape_of(self, sample_shape: Any) -> tuple[int, ...]:
        """The shape of samples."""
        return (*lengths_of([sample_shape]), *self.batch_shape, *self.event_shape)

    def __repr__(self) -> str:
        shown = [
            f"{name}: {value.item() if value.numel() == 1 else list(value.shape)}"
            for name in self.parameters
            if (value := vars(self).get(name)) is not None
        ]
        return f"{type(self).__name__}({', '.join(shown)})"


def tensors(*values: Any) -> list[Tensor]:
    """Numbers and tensors as float tensors of one shape."""
    found = [value for value in values if isinstance(value, Tensor)]
    kind = found[0].dtype if found else get_default_dtype()
    made = [value if isinstance(value, Tensor) else tensor(value, dtype=kind) for value in values]
    shape = np.broadcast_shapes(*[each.shape for each in made])
    return [each if each.shape == shape else each.expand(shape) for each in made]


class LocationScale(Distribution):
    """A location-scale family: `loc` is its mean and its mode unless it says otherwise, and a positive `scale`."""

    has_rsample = True
    parameters = {"loc": 0, "scale": 0}  # noqa: RUF012

    def __init__(self, loc: Any, scale: Any, validate_args: Any = None) -> None:
        self.loc, self.scale = tensors(loc, scale)
        checked(self, "loc", self.loc, REAL)
        checked(self, "scale", self.scale, POSITIVE)
        super().__init__(self.loc.shape)

    @property
    def mean(self) -> Tensor:
        return self.loc

    @property
    def mode(self) -> Tensor:
        return self.loc


def sum_last(value: Tensor, dims: int) -> Tensor:
    """Summed over the last dims."""
    return value.sum(tuple(range(-dims, 0))) if dims else value


def draw(name: str, *arguments: Any, **options: Any) -> Tensor:
    """The result of a function of the package, such as ``rand``."""
    found: Tensor = FUNCTIONS[name](*arguments, **options)
    return found


def logits_of(probs: Tensor, binary: bool) -> Tensor:
    """Logits of probabilities, which are kept within the float's eps from 0 and 1."""
    eps = float(np.finfo(probs.dtype.as_numpy()).eps) if probs.dtype.bits >= 32 else 2.0**-7
    kept = probs.clamp(eps, 1 - eps)
    return kept.log() - (-kept).log1p() if binary else kept.log()


def softplus(x: Tensor) -> Tensor:
    """log(1 + exp(x)) without overflow."""
    return x.clamp(min=0) + (-x.abs()).exp().log1p()
