"""Normalization with Keras' settings: epsilon 1e-3, momentum 0.99 of what running statistics keep."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from ....nn import functional
from ....runtime.base.errors import UsageError
from ....tensors.core.conversion import array_of
from ....tensors.core.grad_mode import no_grad
from ....tensors.core.tensor import Tensor
from ....tensors.operations.creation import as_tensor, zeros
from ..core import initializers, regularizers
from ..core.layer import Layer
from .basic import as_float

__all__ = [
    "BatchNormalization", "GroupNormalization", "LayerNormalization", "Normalization", "RMSNormalization",
    "UnitNormalization",
]  # fmt: skip


EPSILON = 1e-7
"""Keras' epsilon: added to numbers of steps that are divided by."""


class BatchNormalization(Layer):
    """Zero mean and unit variance of the channels of a batch, then gamma and beta.

    Args:
        momentum: what the running statistics keep at each step; the variance is that of the batch, without Bessel's
            correction.
    """

    constrained: ClassVar[Mapping[str, str]] = {"gamma_constraint": "gamma", "beta_constraint": "beta"}
    supports_masking = True

    def __init__(
        self, axis: int = -1, momentum: float = 0.99, epsilon: float = 1e-3, center: bool = True, scale: bool = True,
        beta_initializer: Any = "zeros", gamma_initializer: Any = "ones", moving_mean_initializer: Any = "zeros",
        moving_variance_initializer: Any = "ones", beta_regularizer: Any = None, gamma_regularizer: Any = None,
        **options: Any,
    ) -> None:  # fmt: skip
        super().__init__(**options)
        self.axis = axis[0] if isinstance(axis, list | tuple) else axis
        self.momentum, self.epsilon, self.center, self.scale = momentum, epsilon, center, scale
        given = (gamma_initializer, beta_initializer, moving_mean_initializer, moving_variance_initializer)
        self.initial = [initializers.get(each) for each in given]
        self.penalties = [regularizers.get(gamma_regularizer), regularizers.get(beta_regularizer)]

    def build(self, input_shape: Any) -> None:
        shape = (input_shape[self.axis],)
        self.gamma = self.beta = None
        if self.scale:
            self.gamma = self.add_weight(shape, self.initial[0], regularizer=self.penalties[0])
        if self.center:
            self.beta = self.add_weight(shape, self.initial[1], regularizer=self.penalties[1])
        self.moving_mean = self.add_weight(shape, self.initial[2], trainable=False)
        self.moving_variance = self.add_weight(shape, self.initial[3], trainable=False)

    def call(self, inputs: Tensor, mask: Any = None) -> Tensor:
        """The output; statistics of a batch are those of the steps whose mask is true."""
        if mask is not None and self.training and vars(self).get("trainable") is not False:
            return self._of_steps(as_float(inputs, self.moving_mean), as_tensor(mask).unsqueeze(-1))
        x = as_float(inputs, self.moving_mean).movedim(self.axis, 1 if inputs.ndim > 1 else -1)
        weights = (self.gamma, self.beta)
        if not self.training or vars(self).get("trainable") is False:
            found = functional.batch_norm(x, self.moving_mean, self.moving_variance, *weights, False, 0.0, self.epsilon)
        else:
            found = self._of_batch(x)
        return found.movedim(1, self.axis)

    def _of_steps(self, x: Tensor, mask: Tensor) -> Tensor:
        """By the statistics of steps [N, length, C] whose mask [N, length, 1] is true."""
        axes = [dim for dim in range(x.ndim) if dim != self.axis % x.ndim]
        shown = mask.to(x.dtype).expand(x.shape)
        count = shown.sum(axes, True) + EPSILON
        mean = (shown * x).sum(axes, True) / count
        variance = (shown * (shown * x - mean).square()).sum(axes, True) / count
        keep = self.momentum
        with no_grad():
            for running, new in ((self.moving_mean, mean), (self.moving_variance, variance)):
                running.become(running * keep + new.detach().reshape(-1) * (1 - keep))
        found = (x - mean) * (variance + self.epsilon).rsqrt()
        found = found if self.gamma is None else found * self.gamma.reshape(mean.shape)
        return found if self.beta is None else found + self.beta.reshape(mean.shape)

    def _of_batch(self, x: Tensor) -> Tensor:
        """By the statistics of the batch, which the running ones are moved towards."""
        count = x.numel() // x.shape[1]
        mean, variance = zeros(x.shape[1]), zeros(x.shape[1])
        if count == 1:
            found = x - x.detach() if self.beta is None else x * 0 + self.beta.reshape(1, -1, *[1] * (x.ndim - 2))
            mean = x.detach().reshape(-1)
        else:
            found = functional.batch_norm(x, mean, variance, self.gamma, self.beta, True, 1.0, self.epsilon)
        with no_grad():
            keep = self.momentum
            unbiased = variance * ((count - 1) / count)
            self.moving_mean.become(self.moving_mean * keep + mean * (1 - keep))
            self.moving_variance.become(self.moving_variance * keep + unbiased * (1 - keep))
        return found


class LayerNormalization(Layer):
    """Zero mean and unit variance of each item along the last axes, then gamma and beta."""

    constrained: ClassVar[Mapping[str, str]] = {"gamma_constraint": "gamma", "beta_constraint": "beta"}
    supports_masking = True

    def __init__(
        self, axis: Any = -1, epsilon: float = 1e-3, center: bool = True, scale: bool = True,
        beta_initializer: Any = "zeros", gamma_initializer: Any = "ones", beta_regularizer: Any = None,
        gamma_regularizer: Any = None, **options: Any,
    ) -> None:  # fmt: skip
        super().__init__(**options)
        self.axis = [axis] if isinstance(axis, int) else list(axis)
        self.epsilon, self.center, self.scale = epsilon, center, scale
        self.initial = [initializers.get(gamma_initializer), initializers.get(beta_initializer)]
        self.penalties = [regularizers.get(gamma_regularizer), regularizers.get(beta_regularizer)]

    def build(self, input_shape: Any) -> None:
        rank = len(input_shape)
        axes = sorted(each % rank for each in self.axis)
        self.require("axis", axes, (list(range(rank - len(axes), rank)),))
        shape = tuple(input_shape[each] for each in axes)
        self.gamma = self.beta = None
        if self.scale:
            self.gamma = self.add_weight(shape, self.initial[0], regularizer=self.penalties[0])
        if self.center:
            self.beta = self.add_weight(shape, self.initial[1], regularizer=self.penalties[1])

    def call(self, inputs: Tensor) -> Tensor:
        shape = inputs.shape[-len(self.axis) :]
        return functional.layer_norm(inputs, shape, self.gamma, self.beta, self.epsilon)


class GroupNormalization(Layer):
    """Zero mean and unit variance of groups of channels, which are last; -1 groups are as many as channels."""

    constrained: ClassVar[Mapping[str, str]] = {"gamma_constraint": "gamma", "beta_constraint": "beta"}
    supports_masking = True

    def __init__(
        self, groups: int = 32, axis: int = -1, epsilon: float = 1e-3, center: bool = True, scale: bool = True,
        beta_initializer: Any = "zeros", gamma_initializer: Any = "ones", **options: Any,
    ) -> None:  # fmt: skip
        super().__init__(**options)
        self.require("axis", axis, (-1,))
        self.groups, self.epsilon, self.center, self.scale = groups, epsilon, center, scale
        self.initial = [initializers.get(gamma_initializer), initializers.get(beta_initializer)]

    def build(self, input_shape: Any) -> None:
        shape = (input_shape[-1],)
        self.gamma = self.add_weight(shape, self.initial[0]) if self.scale else None
        self.beta = self.add_weight(shape, self.initial[1]) if self.center else None

    def call(self, inputs: Tensor) -> Tensor:
        count = inputs.shape[-1] if self.groups == -1 else self.groups
        x = functional.group_norm(inputs.movedim(-1, 1), count, self.gamma, self.beta, self.epsilon)
        return x.movedim(1, -1)


class UnitNormalization(Layer):
    """A Euclidean norm of 1 along an axis."""

    supports_masking = True

    def __init__(self, axis: int = -1, **options: Any) -> None:
        super().__init__(**options)
        self.axis = axis

    def call(self, inputs: Tensor) -> Tensor:
        return inputs / inputs.square().sum(self.axis, True).clamp(min=1e-12).sqrt()


class RMSNormalization(Layer):
    """A mean square of 1 along the axes, then a scale (Zhang and Sennrich 2019)."""

    def __init__(self, axis: Any = -1, epsilon: float = 1e-6, **options: Any) -> None:
        super().__init__(**options)
        self.axis = sorted(axis) if isinstance(axis, list | tuple) else [axis]
        self.epsilon = epsilon

    def build(self, input_shape: Any) -> None:
        self.scale = self.add_weight([input_shape[each] for each in self.axis], "ones")

    def call(self, inputs: Tensor) -> Tensor:
        axes = [each % inputs.ndim for each in self.axis]
        scale = self.scale.reshape([length if dim in axes else 1 for dim, length in enumerate(inputs.shape)])
        return inputs * (inputs.square().mean(axes, True) + self.epsilon).rsqrt() * scale


class Normalization(Layer):
    """Zero mean and unit variance by statistics that are given, or those of the data that `adapt` takes.

    Args:
        axis: dims with statistics of their own; None for one mean and variance of all elements.
        invert: undo the normalization.
    """

    supports_masking = True

    def __init__(
        self, axis: Any = -1, mean: Any = None, variance: Any = None, invert: bool = False, **options: Any
    ) -> None:
        super().__init__(**options)
        if (mean is None) != (variance is None):
            raise UsageError("E-OPTION", None, "Normalization takes both mean and variance, or neither")
        self.axis = () if axis is None else (axis,) if isinstance(axis, int) else tuple(axis)
        self.given, self.invert = (mean, variance), invert

    def build(self, input_shape: Any) -> None:
        self.kept = sorted(each % len(input_shape) for each in self.axis)
        shape = [input_shape[each] for each in self.kept]
        if self.given[0] is None:
            names = ("adapt_mean", "adapt_variance", "count")
            made = [self.add_weight(() if name == "count" else shape, "zeros", trainable=False) for name in names]
            self.adapt_mean, self.adapt_variance, self.count = made
        else:
            self.adapt_mean, self.adapt_variance = (
                as_tensor(np.broadcast_to(np.asarray(each, np.float32), shape).copy()) for each in self.given
            )

    def adapt(self, data: Any) -> None:
        """Take the mean and variance of an array."""
        array = np.asarray(array_of(data), np.float64)
        if not self.built:
            self.build(array.shape)
        axes = tuple(dim for dim in range(array.ndim) if dim not in self.kept)
        self.adapt_mean.become(as_tensor(array.mean(axes).astype(np.float32)))
        self.adapt_variance.become(as_tensor(array.var(axes).astype(np.float32)))

    def call(self, inputs: Tensor) -> Tensor:
        x = as_float(inputs, self.adapt_mean)
        shape = [length if dim in self.kept else 1 for dim, length in enumerate(x.shape)]
        mean = self.adapt_mean.reshape(shape)
        deviation = self.adapt_variance.reshape(shape).sqrt().clamp(min=1e-7)
        return mean + x * deviation if self.invert else (x - mean) / deviation
