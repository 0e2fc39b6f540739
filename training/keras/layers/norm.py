"""Normalization with Keras' settings: epsilon 1e-3, momentum 0.99 of what running statistics keep."""

from __future__ import annotations

from typing import Any

from ....nn import functional
from ....tensors.core.grad_mode import no_grad
from ....tensors.core.tensor import Tensor
from ....tensors.operations.creation import zeros
from ..core import initializers, regularizers
from ..core.layer import Layer
from .basic import as_float

__all__ = ["BatchNormalization", "GroupNormalization", "LayerNormalization", "UnitNormalization"]


class BatchNormalization(Layer):
    """Zero mean and unit variance of the channels of a batch, then gamma and beta.

    Args:
        momentum: what the running statistics keep at each step; the variance is that of the batch, without Bessel's
            correction.
    """

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

    def call(self, inputs: Tensor) -> Tensor:
        x = as_float(inputs, self.moving_mean).movedim(self.axis, 1 if inputs.ndim > 1 else -1)
        weights = (self.gamma, self.beta)
        if not self.training or vars(self).get("trainable") is False:
            found = functional.batch_norm(x, self.moving_mean, self.moving_variance, *weights, False, 0.0, self.epsilon)
        else:
            found = self._of_batch(x)
        return found.movedim(1, self.axis)

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

    def __init__(self, axis: int = -1, **options: Any) -> None:
        super().__init__(**options)
        self.axis = axis

    def call(self, inputs: Tensor) -> Tensor:
        return inputs / inputs.square().sum(self.axis, True).clamp(min=1e-12).sqrt()
