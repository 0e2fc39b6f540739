"""Streams of random numbers: NumPy's Mersenne Twister, which the standard's own tests draw from, so that a seed gives what they expect."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ...runtime.infer import Inference
from ..allocation import allowed
from ..math.cast import element_type


def stream(seed: float | None) -> np.random.RandomState:
    """The stream of a seed; one that nobody can repeat where there is none."""
    return np.random.RandomState() if seed is None or not math.isfinite(seed) else np.random.RandomState(int(seed) % 2**32)


def filled(shape: Sequence[int], what: str) -> tuple[int, ...]:
    """`shape`, when f64 numbers for it can be held; LimitError otherwise."""
    return allowed(shape, 8, what)


def of_shape(node: Inference) -> None:
    """Shape and dtype are attributes."""
    shape = node.attributes["shape"]
    if any(length < 0 for length in shape):
        node.refuse(f"shape {shape} has negative lengths")
    node.set(0, element_type(node.attributes["dtype"]), shape)


def like_input(node: Inference) -> None:
    """The shape of the input, its dtype unless an attribute gives one."""
    number = node.attributes["dtype"]
    node.set(0, node.dtype(0) if number is None else element_type(number), node.shape(0))
