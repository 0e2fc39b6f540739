"""Decoder states: the graph inputs that carry KV caches and recurrent states between runs, and their growing shapes."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from ...runtime.base.errors import UsageError
from ...runtime.ir.graph import Dim, Value
from ..layers.sliding_window import ring_length, window_of
from .kv_cache import resize_ring, zero_padded
from .prefill_chunk import MAX_CHUNK

PAST, PRESENT = "past_", "present_"
INITIAL_CAPACITY, GROWTH = 256, 1024
"""KV-cache capacity in tokens: doubled until 1,024, then grown by 1,024."""


def is_state(value: Value) -> bool:
    """Whether an input is a state, the previous run's output; exporters name them ``past_key_values.0.key``."""
    return value.name.startswith(PAST)


def empty_states(inputs: Iterable[Value], batch: int) -> dict[str, np.ndarray]:
    """Initial states of a graph's inputs, by name: zeros."""
    return {
        value.name: np.zeros(state_shape(value, batch, 0), numpy_dtype(value)) for value in inputs if is_state(value)
    }


def capacity_for(length: int, least: int = INITIAL_CAPACITY) -> int:
    """Capacity in tokens, at least `least`, that a KV cache of `length` tokens is allocated with."""
    return max(least, 1 << (length - 1).bit_length()) if length <= GROWTH else -(-length // GROWTH) * GROWTH


def state_shape(
    value: Value, batch: int, capacity: int, count: int = MAX_CHUNK, held: Sequence[int] = ()
) -> tuple[int, ...]:
    """Shape of a state with capacity for `capacity` tokens; a ring buffer fits runs of `count` tokens and never shrinks
    below `held`."""
    assert value.shape is not None
    first, *rest = value.shape
    lengths = (
        _length(dim, capacity, count, before) for dim, before in itertools.zip_longest(rest, held[1:], fillvalue=0)
    )
    return (batch if isinstance(first, str) else first or batch, *lengths)


def growing_axis(value: Value) -> int | None:
    """The axis along which a state holds all tokens; None for other states."""
    assert value.shape is not None
    axes = [axis for axis, dim in enumerate(value.shape) if axis and not isinstance(dim, int)]
    return axes[0] if len(axes) == 1 and window_of(value.shape[axes[0]]) is None else None


def _length(dim: Dim, capacity: int, count: int, held: int) -> int:
    if isinstance(dim, int):
        return dim
    window = window_of(dim)
    return capacity if window is None else max(held, min(capacity, ring_length(window, max(count, MAX_CHUNK))))


def resized(held: np.ndarray, value: Value, shape: tuple[int, ...], seen: int) -> np.ndarray:
    """A state after `seen` tokens, copied into a larger array of `shape`."""
    assert value.shape is not None
    axis = next((axis for axis, dim in enumerate(value.shape) if axis and window_of(dim) is not None), None)
    return zero_padded(held, shape) if axis is None else resize_ring(held, axis, shape[axis], seen)


def output_of(name: str, results: set[str]) -> str:
    """Name of the output with the next value of the state `name`. UsageError if it is missing."""
    rest = name.removeprefix(PAST)
    for candidate in (PRESENT + rest, PRESENT.rstrip("_") + rest.removeprefix("key_values")):
        if candidate in results:
            return candidate
    raise UsageError(
        "E-LM-STATE", None, f"the model has no output with the next value of {name}", expected=PRESENT + rest
    )


def numpy_dtype(value: Value) -> np.dtype[Any]:
    """NumPy dtype of a state's array."""
    assert value.dtype is not None
    return value.dtype.as_numpy()
