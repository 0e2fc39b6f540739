"""OneHot: indices encoded along a new axis."""

from __future__ import annotations

import numpy as np

from ...runtime.ir.graph import Dim
from ...runtime.ir.op import case, op
from ...runtime.ir.shape_inference import Inference
from ..rules.axes import axis_in, axis_of, input_error
from ..rules.output_limit import allowed


def infer_one_hot(node: Inference) -> None:
    """The indices' shape with one more axis."""
    shape, array = node.shape(0), node.array(1)
    known = node.data(1)
    depth: Dim = int(array.reshape(-1)[0]) if array is not None and array.size == 1 else known[0] if known else None
    if shape is None:
        node.set(0, node.dtype(2), None)
        return
    axis = axis_of(node, node.attributes["axis"], len(shape) + 1)
    node.set(0, node.dtype(2), (*shape[:axis], depth, *shape[axis:]))


@op(
    "OneHot",
    since=28,
    types="integer+ieee integer+ieee tensor",
    infer=infer_one_hot,
    examples=[
        case("i64[2,3]", np.array(5), np.array([0, 1], np.float32)),
        case(np.array([0, 7, -1, -9]), np.array([4]), np.array([2, 9], np.int64), axis=0),
        case(np.array([[1.0, 2.0]], np.float32), np.array(3.0, np.float32), np.array([-1, 1], np.float32), axis=1),
        case("i64[0]", np.array(3), np.array([0, 1], np.float32)),
        case(np.array([1, 0], np.int64), np.array(3), np.array(["off", "on"], object)),
    ],
)
def one_hot(indices: np.ndarray, depth: np.ndarray, values: np.ndarray, *, axis: int = -1) -> np.ndarray:
    """``values[1]`` where the new axis, of length `depth`, is at the index, ``values[0]`` elsewhere; indices outside
    are nowhere."""
    at = axis_in("OneHot", axis, indices.ndim + 1)
    if depth.size != 1 or values.size != 2 or depth.reshape(-1)[0] < 0:
        why = "depth is not a length, or values does not have two elements"
        raise input_error("OneHot", why, found=f"depth {depth.tolist()}, {values.size} values")
    length = int(depth.reshape(-1)[0])
    shape = allowed((*indices.shape, length), values.dtype.itemsize, "OneHot")
    result = np.empty((indices.size, length), values.dtype)
    result[...] = values.reshape(-1)[0]
    places = np.minimum(indices.reshape(-1), 2**62 if indices.dtype == np.uint64 else indices.reshape(-1))
    with np.errstate(invalid="ignore"):
        places = places.astype(np.int64)
    (rows,) = np.nonzero((places >= -length) & (places < length))
    result[rows, places[rows]] = values.reshape(-1)[1]
    return np.moveaxis(result.reshape(shape), -1, at)
