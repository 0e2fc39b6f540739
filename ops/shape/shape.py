"""Shapes as values: Shape, Size."""

from __future__ import annotations

import math

import numpy as np

from ...runtime.dtype import I64
from ...runtime.infer import Inference
from ...runtime.op import case, op


def _shape(node: Inference) -> None:
    shape = node.shape(0)
    if shape is None:
        node.set(0, I64, (None,))
        return
    dims = shape[node.attributes["start"] : node.attributes["end"]]
    node.set(0, I64, (len(dims),), data=dims)


@op(
    "Shape", since=25, infer=_shape,
    examples=[case("f32[2,3,4]"), case("f32[2,3,4]", start=1), case("f32[2,0,4]", start=-2, end=10), case("f32[2,3]", end=-1)],
)
def shape(data: np.ndarray, *, start: int = 0, end: int | None = None) -> np.ndarray:
    """The lengths from `start` up to and without `end`, both clamped to the rank."""
    return np.array(np.shape(data)[start:end], np.int64)


def _size(node: Inference) -> None:
    dims = node.shape(0)
    known = dims is not None and all(isinstance(dim, int) for dim in dims)
    node.set(0, I64, (), data=[math.prod(dim for dim in dims if isinstance(dim, int))] if known and dims is not None else None)


@op("Size", since=25, infer=_size, examples=[case("f32[2,3,4]"), case("f32[0,3]")])
def size(data: np.ndarray) -> np.ndarray:
    """The number of elements."""
    return np.array(np.size(data), np.int64)
