"""Computation in f32 for storage-only dtypes, rounded once."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

F = TypeVar("F", bound=Callable[..., Any])


def is_narrow(array: Any) -> bool:
    """Whether an input is an array of a floating-point dtype below 32 bits."""
    return isinstance(array, np.ndarray) and (
        array.dtype == np.float16 or (array.dtype.kind == "V" and array.dtype.itemsize <= 2)
    )


def stored_narrower(compute: F) -> F:
    """Inputs after a first one of f32 are taken in f32: weights may be stored in less than the activations they
    meet."""

    @functools.wraps(compute)
    def wide(first: Any, *others: Any, **attributes: Any) -> Any:
        if isinstance(first, np.ndarray) and first.dtype == np.float32:
            others = tuple(item.astype(np.float32) if is_narrow(item) else item for item in others)
        return compute(first, *others, **attributes)

    return wide  # type: ignore[return-value]


def widened(compute: F) -> F:
    """Compute f16, bf16 and f8 inputs in f32; f32 results are rounded to the dtype of the first floating-point input
    where that is one of them."""
    return _widened(compute, is_narrow)


def widened_but_codes(compute: F) -> F:
    """The same where inputs of f8 are codes, which the operator itself decodes."""
    return _widened(compute, lambda item: is_narrow(item) and item.dtype.itemsize == 2)


def _widened(compute: F, widens: Callable[[Any], bool]) -> F:
    @functools.wraps(compute)
    def wide(*inputs: Any, **attributes: Any) -> Any:
        if not any(widens(item) for item in inputs):
            return compute(*inputs, **attributes)
        first = next(
            item for item in inputs if isinstance(item, np.ndarray) and (item.dtype.kind == "f" or is_narrow(item))
        )
        results = compute(*(item.astype(np.float32) if widens(item) else item for item in inputs), **attributes)

        def rounded(item: Any) -> Any:
            fits = isinstance(item, np.ndarray | np.generic) and item.dtype == np.float32 and is_narrow(first)
            return item.astype(first.dtype) if fits else item

        return tuple(rounded(item) for item in results) if isinstance(results, tuple) else rounded(results)

    return wide  # type: ignore[return-value]
