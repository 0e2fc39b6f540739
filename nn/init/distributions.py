"""Initialisers that fill a tensor with constants, or draw from a distribution that the arguments describe."""

from __future__ import annotations

import contextlib
import math
import threading
from collections.abc import Iterator

import numpy as np

from ...runtime.base.errors import UsageError
from ...tensors.core.expression import leaf
from ...tensors.core.grad_mode import no_grad
from ...tensors.core.tensor import Tensor
from ...tensors.operations.random import Generator, randperm

__all__ = [
    "constant_", "dirac_", "eye_", "normal_", "ones_", "sparse_", "trunc_normal_", "uniform_", "zeros_",
]  # fmt: skip


class _Drawing(threading.local):
    on = True


_DRAWING = _Drawing()


@contextlib.contextmanager
def skipped(skip: bool = True) -> Iterator[None]:
    """A context in which new layers do not draw initial values, because they get others."""
    before, _DRAWING.on = _DRAWING.on, not skip
    try:
        yield
    finally:
        _DRAWING.on = before


def filled(tensor: Tensor, array: np.ndarray) -> Tensor:
    """Let a tensor have the elements of an array."""
    with no_grad():
        return tensor.become(Tensor(leaf(np.ascontiguousarray(array, tensor.dtype.as_numpy()))))


def uniform_(tensor: Tensor, a: float = 0.0, b: float = 1.0, generator: Generator | None = None) -> Tensor:
    """Uniform numbers from `a` on and below `b`."""
    if not _DRAWING.on:
        return tensor
    with no_grad():
        return tensor.uniform_(a, b, generator)


def normal_(tensor: Tensor, mean: float = 0.0, std: float = 1.0, generator: Generator | None = None) -> Tensor:
    """Normal numbers."""
    if not _DRAWING.on:
        return tensor
    with no_grad():
        return tensor.normal_(mean, std, generator)


def trunc_normal_(
    tensor: Tensor, mean: float = 0.0, std: float = 1.0, a: float = -2.0, b: float = 2.0,
    generator: Generator | None = None,
) -> Tensor:  # fmt: skip
    """Normal numbers between `a` and `b`, by the inverse of the distribution function."""
    low, high = (math.erf((bound - mean) / std / math.sqrt(2)) for bound in (a, b))
    with no_grad():
        tensor.uniform_(low, high, generator)
        return filled(tensor, np.clip(_inverse_erf(tensor.array()) * (std * math.sqrt(2)) + mean, a, b))


def _inverse_erf(y: np.ndarray) -> np.ndarray:
    """x with erf(x) = y: Giles' polynomial (2010) and two steps of Newton's method."""
    y = np.clip(y.astype(np.float64), -1 + 1e-16, 1 - 1e-16)
    w = -np.log1p(-y * y)
    near = np.polyval(
        [2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087, -0.00125372503,
         -0.00417768164, 0.246640727, 1.50140941], w - 2.5,
    )  # fmt: skip
    far = np.polyval(
        [-0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773, -0.0076224613, 0.00943887047,
         1.00167406, 2.83297682], np.sqrt(w) - 3,
    )  # fmt: skip
    x = np.where(w < 5, near, far) * y
    erf = np.vectorize(math.erf, otypes=[np.float64])
    for _ in range(2):
        x -= (erf(x) - y) * (math.sqrt(math.pi) / 2) * np.exp(x * x)
    return x


def constant_(tensor: Tensor, val: float) -> Tensor:
    """One number."""
    with no_grad():
        return tensor.fill_(val)


def ones_(tensor: Tensor) -> Tensor:
    """Ones."""
    return constant_(tensor, 1)


def zeros_(tensor: Tensor) -> Tensor:
    """Zeros."""
    return constant_(tensor, 0)


def eye_(tensor: Tensor) -> Tensor:
    """Ones on the diagonal of a matrix."""
    if tensor.ndim != 2:
        raise UsageError("E-NN-SHAPE", None, f"eye_ fills matrices, not {list(tensor.shape)}")
    return filled(tensor, np.eye(tensor.shape[0], tensor.shape[1]))


def dirac_(tensor: Tensor, groups: int = 1) -> Tensor:
    """A convolution's weight that passes as many channels on as it can."""
    if not 3 <= tensor.ndim <= 5 or tensor.shape[0] % groups:
        why = f"dirac_ of {groups} groups does not fit {list(tensor.shape)}"
        raise UsageError("E-NN-SHAPE", None, why, hint="Pass the weight of a convolution")
    found = np.zeros(tensor.shape)
    out = tensor.shape[0] // groups
    middle = tuple(length // 2 for length in tensor.shape[2:])
    for group in range(groups):
        for channel in range(min(out, tensor.shape[1])):
            found[(group * out + channel, channel, *middle)] = 1
    return filled(tensor, found)


def sparse_(tensor: Tensor, sparsity: float, std: float = 0.01) -> Tensor:
    """Normal numbers in a matrix, a share of each column set to zero."""
    if tensor.ndim != 2:
        raise UsageError("E-NN-SHAPE", None, f"sparse_ fills matrices, not {list(tensor.shape)}")
    rows, columns = tensor.shape
    found = np.array(normal_(tensor, 0, std).array())
    for column in range(columns):
        found[randperm(rows).array()[: math.ceil(sparsity * rows)], column] = 0
    return filled(tensor, found)
