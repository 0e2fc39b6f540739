"""TopK: the k largest or smallest elements along an axis, with their indices."""

from __future__ import annotations

import numpy as np

from ...runtime.ir.builder import Builder
from ...runtime.ir.graph import Node
from ...runtime.ir.op import case, op, upgrade
from ...runtime.ir.shape_inference import Inference
from ...runtime.tensor.dtype import I64
from ..rules.axes import axis_in, axis_of, input_error
from ..rules.precision import is_narrow

PARTITION = 8
"""Rows of this many times k elements are partitioned rather than sorted."""


def infer_top_k(node: Inference) -> None:
    """The input's shape with k along the axis."""
    shape, known = node.shape(0), node.data(1)
    result = None
    if shape is not None:
        axis = axis_of(node, node.attributes["axis"], len(shape))
        result = (*shape[:axis], known[0] if known else None, *shape[axis + 1 :])
        if (
            known
            and isinstance(known[0], int)
            and isinstance(shape[axis], int)
            and not 0 <= known[0] <= int(shape[axis] or 0)
        ):
            node.fail(f"k is {known[0]} for a length of {shape[axis]}")
    node.set(0, node.dtype(0), result)
    node.set(1, I64, result)


def _sorted(rows: np.ndarray, k: int, largest: bool) -> np.ndarray:
    """Indices of the first k of each row in order; of equal elements the one with the lower index comes first, NaN
    counts as the largest."""
    if not largest:
        return np.argsort(rows, axis=1, kind="stable")[:, :k]
    backwards = np.argsort(rows[:, ::-1], axis=1, kind="stable")
    return rows.shape[1] - 1 - backwards[:, ::-1][:, :k]


def _partitioned(rows: np.ndarray, k: int, largest: bool) -> np.ndarray | None:
    """The same of long rows; None where elements equal to the last one are left out, since an index order among them is
    then not kept."""
    length = rows.shape[1]
    part = np.argpartition(rows, length - k if largest else k - 1, axis=1)
    part = np.sort(part[:, length - k :] if largest else part[:, :k], axis=1)
    values = np.take_along_axis(rows, part, 1)
    last = values.min(axis=1, keepdims=True) if largest else values.max(axis=1, keepdims=True)
    if (np.count_nonzero(rows == last, axis=1) != np.count_nonzero(values == last, axis=1)).any() or np.isnan(
        last
    ).any():
        return None
    return np.take_along_axis(part, _sorted(values, k, largest), 1)


@op(
    "TopK",
    since=24,
    types="number i64 -> 2",
    infer=infer_top_k,
    examples=[
        case("f32[3,5]", np.array([2]), outputs=2),
        case("f32[3,5]", np.array([2]), axis=0, largest=0, outputs=2),
        case(np.array([[1, 3, 3, 2, 3]], np.int64), np.array([4]), outputs=2),
        case("f32[2,100]", np.array([3]), outputs=2),
        case("f32[3,5]", np.array([0]), outputs=2),
        case("f64[2,100]", np.array([100]), sorted=1, outputs=2),
        case("f32[0,5]", np.array([2]), outputs=2),
    ],
)
def top_k(
    x: np.ndarray, k: np.ndarray, *, axis: int = -1, largest: int = 1, sorted: int = 1
) -> tuple[np.ndarray, np.ndarray]:
    """Values and i64 indices, in order (also where it is not asked for)."""
    at = axis_in("TopK", axis, x.ndim)
    count = int(k.reshape(-1)[0]) if k.size == 1 else -1
    if not 0 <= count <= x.shape[at]:
        why = "there are not as many elements"
        raise input_error("TopK", why, "E-OP-VALUE", expected=f"from 0 to {x.shape[at]}", found=k.tolist())
    wide = x.astype(np.float32) if is_narrow(x) else x
    moved = np.moveaxis(wide, at, -1)
    rows = moved.reshape(-1, x.shape[at]) if x.size else np.zeros((0, x.shape[at]), wide.dtype)
    found = _partitioned(rows, count, bool(largest)) if 0 < count * PARTITION <= x.shape[at] and len(rows) else None
    if found is None:
        found = _sorted(rows, count, bool(largest))
    shape = (*moved.shape[:-1], count)
    indices = np.moveaxis(found.reshape(shape), -1, at)
    return np.take_along_axis(x, indices, at), np.ascontiguousarray(indices)


@upgrade(top_k, below=10)
def k_was_an_attribute(node: Node, build: Builder) -> None:
    """Before opset 10 k was an attribute."""
    if "k" in node.attributes:
        node.inputs.append(build.constant([node.attributes.pop("k")]))
