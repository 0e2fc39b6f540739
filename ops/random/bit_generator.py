"""Random number streams: NumPy's Mersenne Twister, so that a seed gives the values of the ONNX tests."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ...runtime.ir.shape_inference import Inference
from ..cast.cast import element_type
from ..rules.output_limit import allowed


def stream(seed: float | None) -> np.random.RandomState:
    """The stream of a seed; an unseeded one without a seed."""
    return (
        np.random.RandomState() if seed is None or not math.isfinite(seed) else np.random.RandomState(int(seed) % 2**32)
    )


def filled(shape: Sequence[int], what: str) -> tuple[int, ...]:
    """`shape`, when f64 numbers for it can be held; LimitError otherwise."""
    return allowed(shape, 8, what)


def of_shape(node: Inference) -> None:
    """Shape and dtype are attributes."""
    shape = node.attributes["shape"]
    if any(length < 0 for length in shape):
        node.fail(f"shape {shape} has negative lengths")
    node.set(0, element_type(node.attributes["dtype"]), shape)


def like_input(node: Inference) -> None:
    """The shape of the input, its dtype unless an attribute gives one."""
    number = node.attributes["dtype"]
    node.set(0, node.dtype(0) if number is None else element_type(number), node.shape(0))
