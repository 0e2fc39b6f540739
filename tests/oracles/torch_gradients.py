"""torch as the oracle of functions of real and complex arrays: values, dtypes, and gradients of a real loss."""

from collections.abc import Callable
from typing import Any

import candle_convert as cc
import numpy as np
import torch


def _results(m: Any, compute: Callable[..., Any], arrays: tuple[np.ndarray, ...]) -> list[np.ndarray]:
    """What a function gives, followed by the gradients of a weighted sum of it."""
    inputs = [m.tensor(each) for each in arrays]
    for each in inputs:
        if each.is_floating_point() or each.is_complex():
            each.requires_grad_()
    found = compute(m, *inputs)
    value = found.detach().resolve_conj().resolve_neg().numpy()
    if not found.requires_grad:
        return [value]
    numbers = np.arange(value.size, dtype=value.real.dtype).reshape(value.shape)
    weights = np.cos(numbers) + (1j * np.sin(2 * numbers) if value.dtype.kind == "c" else 0)
    (found * m.tensor(weights.astype(value.dtype))).sum().real.backward()
    grads = [each.grad for each in inputs if each.grad is not None]
    return [value, *[each.resolve_conj().resolve_neg().numpy() for each in grads]]


def compare_with_torch(
    compute: Callable[..., Any], *arrays: np.ndarray, rtol: float = 1e-4, atol: float = 2e-5
) -> None:
    """A function of the module, torch or ours, and of tensors of the arrays gives torch's values and gradients."""
    theirs, ours = (_results(m, compute, arrays) for m in (torch, cc))
    assert len(theirs) == len(ours)
    for one, other in zip(theirs, ours, strict=True):
        assert one.dtype == other.dtype
        assert one.shape == other.shape
        np.testing.assert_allclose(other, one, rtol, atol)


def complex_array(*shape: int, dtype: Any = np.complex64, seed: int = 0) -> np.ndarray:
    """Normal numbers, complex ones if the dtype is."""
    rng = np.random.default_rng([seed, *shape])
    found = rng.standard_normal(shape)
    return np.asarray(found + 1j * rng.standard_normal(shape) if np.dtype(dtype).kind == "c" else found).astype(dtype)
