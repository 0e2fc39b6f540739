"""Gradient clipping: gradients scaled down to a norm, or bounded element by element."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Iterable

import numpy as np

from ..core.expression import leaf
from ..core.grad_mode import no_grad
from ..core.tensor import Tensor


@no_grad()
def clip_grad_norm_(parameters: Tensor | Iterable[Tensor], max_norm: float, norm_type: float = 2.0) -> Tensor:
    """Scale the gradients of `parameters` so that the norm of all elements together is at most `max_norm`.

    Args:
        norm_type: the exponent of the norm, which may be infinite.

    Returns: the norm before, 0-d f32; 0 where no parameter has a gradient.
    """
    having = _having_gradients(parameters)
    if not having:
        return Tensor(leaf(np.zeros((), np.float32)))
    total = _norm([_sizes(each.grad).flatten() for each in having], float(norm_type))  # type: ignore[arg-type]
    scale = (max_norm / (total + 1e-6)).clamp(max=1.0)
    for each in having:
        each.grad = (each.grad * scale).to(each.dtype)
    return total


@no_grad()
def clip_grad_value_(parameters: Tensor | Iterable[Tensor], clip_value: float) -> None:
    """Bound the elements of the gradients of `parameters` by `clip_value` and its negative."""
    for each in _having_gradients(parameters):
        each.grad = each.grad.clamp(-clip_value, clip_value)  # type: ignore[union-attr]


def _having_gradients(parameters: Tensor | Iterable[Tensor]) -> list[Tensor]:
    given = [parameters] if isinstance(parameters, Tensor) else parameters
    return [each for each in given if each.grad is not None]


def _sizes(grad: Tensor) -> Tensor:
    """Numbers of f32 whose norm is that of a gradient: of complex numbers their absolute values."""
    return (grad.abs() if grad.dtype.is_complex else grad).float()


def _norm(flat: list[Tensor], exponent: float) -> Tensor:
    if math.isinf(exponent):
        return functools.reduce(lambda a, b: a.maximum(b), [each.abs().max() for each in flat])
    if exponent == 2:
        return functools.reduce(operator.add, [(each * each).sum() for each in flat]).sqrt()
    return functools.reduce(operator.add, [(each.abs() ** exponent).sum() for each in flat]) ** (1 / exponent)
