"""Unique: distinct elements of a tensor, or distinct slices along an axis."""

from __future__ import annotations

import numpy as np

from ...runtime.ir.op import case, op
from ...runtime.ir.shape_inference import Inference
from ...runtime.tensor.dtype import I64
from ..rules.axes import axis_in, unknown_along_axis
from ..rules.precision import is_narrow


def infer_unique(node: Inference) -> None:
    """An unknown number of elements or entries; as many positions in the second output's order as there are in the
    input."""
    unknown_along_axis(node)
    for index in (1, 2, 3):
        node.set(index, I64, (None,))


@op(
    "Unique",
    since=28,
    types="tensor -> 4",
    infer=infer_unique,
    examples=[
        case(np.array([2, 1, 1, 3, 4, 3], np.float32), outputs=4),
        case(np.array([2, 1, 1, 3, 4, 3], np.float32), sorted=0, outputs=4),
        case(np.array([[1, 0, 0], [1, 0, 0], [2, 3, 4]], np.float32), axis=0, outputs=4),
        case(np.array([[1, 3, 0, 3], [2, 0, 1, 0]], np.int64), axis=-1, sorted=0, outputs=4),
        case(np.array(["b", "a", "b"], object), outputs=4),
        case(np.array([[1, 0], [1, 0]], np.int64), outputs=4),
        case("f32[0]", outputs=4),
    ],
)
def unique(x: np.ndarray, *, axis: int | None = None, sorted: int = 1) -> tuple[np.ndarray, ...]:
    """Different elements in ascending order (or that of their first indices), their first indices, each element's own,
    and their numbers."""
    codes = np.unique(x.astype(np.float32) if is_narrow(x) else x, return_inverse=True)[1].reshape(x.shape)
    at = None if axis is None else axis_in("Unique", axis, x.ndim)
    entries = codes.reshape(-1, 1) if at is None else np.moveaxis(codes, at, 0).reshape(x.shape[at], -1)
    _, first, inverse, counts = np.unique(entries, return_index=True, return_inverse=True, return_counts=True, axis=0)
    inverse = inverse.reshape(-1)
    if not sorted:
        order = np.argsort(first)
        rank = np.empty_like(order)
        rank[order] = np.arange(len(order))
        first, counts, inverse = first[order], counts[order], rank[inverse]
    values = np.take(x.reshape(-1) if at is None else x, first, at or 0)
    return values, first.astype(np.int64), inverse.astype(np.int64), counts.astype(np.int64)
