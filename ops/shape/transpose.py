"""Transpose: dimensions in another order."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...runtime.infer import Inference
from ...runtime.op import case, op


def _transpose(node: Inference) -> None:
    shape, order = node.shape(0), node.attributes["perm"]
    if shape is None:
        node.set(0, node.dtype(0), None if order is None else (None,) * len(order))
        return
    places = range(len(shape))[::-1] if order is None else order
    if sorted(places) != list(range(len(shape))):
        node.refuse(f"perm {list(places)} is no order of {len(shape)} dimensions")
    node.set(0, node.dtype(0), [shape[place] for place in places], data=node.data(0) if len(shape) <= 1 else None)


@op("Transpose", since=25, infer=_transpose, examples=[case("f32[2,3,4]"), case("f32[2,3,4]", perm=[1, 0, 2]), case("f32[0,3]", perm=[1, 0])])
def transpose(data: np.ndarray, *, perm: Sequence[int] | None = None) -> np.ndarray:
    """Dimension i of the result is dimension ``perm[i]`` of `data`; reversed order where `perm` is absent."""
    return np.transpose(data, perm)
