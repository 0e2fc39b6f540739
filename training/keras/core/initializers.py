"""Initial values of weights by Keras' names. The last two dims of a weight are its inputs and outputs."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any

import numpy as np

from .... import nn
from ....runtime.base.errors import LimitError
from ....tensors.core.tensor import Tensor
from ....tensors.operations.creation import made
from .settings import Configured, by_name

__all__ = [
    "Constant", "GlorotNormal", "GlorotUniform", "HeNormal", "HeUniform", "Identity", "LecunNormal",
    "LecunUniform", "Ones", "Orthogonal", "RandomNormal", "RandomUniform", "TruncatedNormal", "VarianceScaling",
    "Zeros", "constant", "get", "glorot_normal", "glorot_uniform", "he_normal", "he_uniform", "identity",
    "lecun_normal", "lecun_uniform", "ones", "orthogonal", "random_normal", "random_uniform", "truncated_normal",
    "variance_scaling", "zeros",
]  # fmt: skip
DEVIATION_OF_TRUNCATED = 0.87962566103423978
"""The standard deviation of a normal distribution cut at two deviations."""


_left: ContextVar[list[int] | None] = ContextVar("_left", default=None)
"""Elements of new values that are left to a model that is read from a file; None for any number."""


@contextlib.contextmanager
def limited(elements: int) -> Iterator[None]:
    """Let initializers make this many elements and no more."""
    token = _left.set([elements])
    try:
        yield
    finally:
        _left.reset(token)


def _charge(shape: tuple[int, ...]) -> None:
    left = _left.get()
    if left is None:
        return
    left[0] -= math.prod(shape)
    if left[0] < 0:
        why = f"the model has a weight of shape {list(shape)}, and the file does not hold so many elements"
        raise LimitError("E-KERAS-SIZE", None, why, hint="Save the model again, as .keras")


class Initializer(Configured):
    """Base of initializers: ``initializer(shape)`` is a tensor."""

    file_module = "keras.initializers"

    def __call__(self, shape: tuple[int, ...], dtype: Any = None) -> Tensor:
        """New values of a shape.

        Raises LimitError for more elements than `limited` allows.
        """
        _charge(shape)
        return self.fill(made(np.zeros(tuple(shape), np.float32))).to(dtype or "f32")

    def fill(self, tensor: Tensor) -> Tensor:
        """Give a tensor its values."""
        raise NotImplementedError(f"{type(self).__name__} does not define fill()")


class Constant(Initializer):
    """One value."""

    def __init__(self, value: float = 0.0) -> None:
        self.value = value

    def fill(self, tensor: Tensor) -> Tensor:
        return nn.init.constant_(tensor, self.value)


class Zeros(Initializer):
    """Zeros."""

    def __init__(self) -> None:
        pass

    def fill(self, tensor: Tensor) -> Tensor:
        return tensor


class Ones(Initializer):
    """Ones."""

    def __init__(self) -> None:
        pass

    def fill(self, tensor: Tensor) -> Tensor:
        return nn.init.ones_(tensor)


class Identity(Initializer):
    """`gain` on the diagonal."""

    def __init__(self, gain: float = 1.0) -> None:
        self.gain = gain

    def fill(self, tensor: Tensor) -> Tensor:
        return nn.init.eye_(tensor) * self.gain


class RandomNormal(Initializer):
    """Normal numbers."""

    def __init__(self, mean: float = 0.0, stddev: float = 0.05, seed: int | None = None) -> None:
        self.mean, self.stddev = mean, stddev

    def fill(self, tensor: Tensor) -> Tensor:
        return nn.init.normal_(tensor, self.mean, self.stddev)


class RandomUniform(Initializer):
    """Uniform numbers."""

    def __init__(self, minval: float = -0.05, maxval: float = 0.05, seed: int | None = None) -> None:
        self.minval, self.maxval = minval, maxval

    def fill(self, tensor: Tensor) -> Tensor:
        return nn.init.uniform_(tensor, self.minval, self.maxval)


class TruncatedNormal(Initializer):
    """Normal numbers at most two deviations from their mean."""

    def __init__(self, mean: float = 0.0, stddev: float = 0.05, seed: int | None = None) -> None:
        self.mean, self.stddev = mean, stddev

    def fill(self, tensor: Tensor) -> Tensor:
        reach = 2 * self.stddev
        return nn.init.trunc_normal_(tensor, self.mean, self.stddev, self.mean - reach, self.mean + reach)


class Orthogonal(Initializer):
    """Orthogonal rows or columns (Saxe et al. 2013)."""

    def __init__(self, gain: float = 1.0, seed: int | None = None) -> None:
        self.gain = gain

    def fill(self, tensor: Tensor) -> Tensor:
        flat = made(np.zeros((math.prod(tensor.shape[:-1]), tensor.shape[-1]), np.float32))
        return nn.init.orthogonal_(flat, self.gain).reshape(tensor.shape)


class VarianceScaling(Initializer):
    """Numbers of variance ``scale / n``, where n is the number of inputs, of outputs, or their mean.

    Args:
        mode: "fan_in", "fan_out" or "fan_avg".
        distribution: "truncated_normal", "untruncated_normal" or "uniform".
    """

    def __init__(
        self, scale: float = 1.0, mode: str = "fan_in", distribution: str = "truncated_normal", seed: int | None = None
    ) -> None:
        self.scale, self.mode, self.distribution = scale, mode, distribution

    def fill(self, tensor: Tensor) -> Tensor:
        inputs, outputs = _fans(tensor.shape)
        variance = self.scale / max(1.0, {"fan_in": inputs, "fan_out": outputs}.get(self.mode, (inputs + outputs) / 2))
        if self.distribution == "uniform":
            bound = math.sqrt(3 * variance)
            return nn.init.uniform_(tensor, -bound, bound)
        if self.distribution == "untruncated_normal":
            return nn.init.normal_(tensor, 0.0, math.sqrt(variance))
        deviation = math.sqrt(variance) / DEVIATION_OF_TRUNCATED
        return nn.init.trunc_normal_(tensor, 0.0, deviation, -2 * deviation, 2 * deviation)


def _scaled(name: str, scale: float, mode: str, distribution: str, document: str) -> Any:
    """A class of `VarianceScaling` with settings of its own."""

    def __init__(self: Any, seed: int | None = None) -> None:  # noqa: N807
        VarianceScaling.__init__(self, scale, mode, distribution)

    return type(name, (VarianceScaling,), {"__init__": __init__, "__doc__": document, "__module__": __name__})


GlorotUniform = _scaled("GlorotUniform", 1.0, "fan_avg", "uniform", "Uniform numbers by inputs and outputs.")
GlorotNormal = _scaled("GlorotNormal", 1.0, "fan_avg", "truncated_normal", "Normal numbers by inputs and outputs.")
HeUniform = _scaled("HeUniform", 2.0, "fan_in", "uniform", "Uniform numbers for layers before a ReLU.")
HeNormal = _scaled("HeNormal", 2.0, "fan_in", "truncated_normal", "Normal numbers for layers before a ReLU.")
LecunUniform = _scaled("LecunUniform", 1.0, "fan_in", "uniform", "Uniform numbers by inputs.")
LecunNormal = _scaled("LecunNormal", 1.0, "fan_in", "truncated_normal", "Normal numbers by inputs.")


def _fans(shape: tuple[int, ...]) -> tuple[float, float]:
    """Inputs of each output, and outputs of each input, of a weight [..., in, out]."""
    if len(shape) < 2:
        return math.prod(shape), math.prod(shape)
    field = math.prod(shape[:-2])
    return shape[-2] * field, shape[-1] * field


constant, identity, ones, orthogonal, zeros = Constant, Identity, Ones, Orthogonal, Zeros
glorot_normal, glorot_uniform, he_normal, he_uniform = GlorotNormal, GlorotUniform, HeNormal, HeUniform
lecun_normal, lecun_uniform, truncated_normal = LecunNormal, LecunUniform, TruncatedNormal
random_normal, random_uniform, variance_scaling = RandomNormal, RandomUniform, VarianceScaling

INITIALIZERS: dict[str, Any] = {
    each.__name__: each for each in list(globals().values()) if isinstance(each, type) and issubclass(each, Initializer)
}
ALIASES = {
    "normal": RandomNormal, "uniform": RandomUniform, "one": Ones, "zero": Zeros, "IdentityInitializer": Identity,
    "OrthogonalInitializer": Orthogonal,
}  # fmt: skip
"""Initializers by Keras' shorter and older names."""


def get(identifier: Any) -> Any:
    """An initializer: of its name, a class, a file's description, or a function of a shape as it is."""
    return by_name({**INITIALIZERS, **ALIASES}, identifier, "initializer")


def __dir__() -> list[str]:
    return list(__all__)
