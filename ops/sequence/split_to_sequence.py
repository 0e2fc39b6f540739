"""SplitToSequence: a tensor split along an axis into a sequence."""

from __future__ import annotations

import numpy as np

from ...runtime.ir.graph import Dim
from ...runtime.ir.op import case, op
from ...runtime.ir.shape_inference import Inference
from ..rules.axes import axis_in, axis_of, input_error
from .sequence import SEQUENCE


def infer_split_to_sequence(node: Inference) -> None:
    """The input's shape with the axis known only where all parts are of one length."""
    shape = node.shape(0)
    if shape is None:
        node.set(0, node.dtype(0), None, container=SEQUENCE)
        return
    axis = axis_of(node, node.attributes["axis"], len(shape))
    whole = shape[axis]
    if node.value(1) is None:
        part: tuple[Dim, ...] = (1,) if node.attributes["keepdims"] else ()
        node.set(0, node.dtype(0), (*shape[:axis], *part, *shape[axis + 1 :]), container=SEQUENCE)
        return
    lengths = node.data(1)
    each: Dim = None
    if lengths and node.shape(1) == () and isinstance(whole, int) and isinstance(lengths[0], int):
        each = lengths[0] if lengths[0] > 0 and whole % lengths[0] == 0 else None
    elif lengths and node.shape(1) != () and len(set(lengths)) == 1:
        each = lengths[0]
    node.set(0, node.dtype(0), (*shape[:axis], each, *shape[axis + 1 :]), container=SEQUENCE)


@op(
    "SplitToSequence",
    since=24,
    types="tensor index",
    infer=infer_split_to_sequence,
    examples=[
        case("f32[3,6]", np.array(2), axis=1),
        case("f32[3,6]", np.array(4), axis=-1),
        case("f32[3,6]", np.array([1, 2])),
        case("f32[3,2]"),
        case("f32[3,2]", keepdims=0, axis=1),
        case("string[4]", np.array([1, 3], np.int32)),
        case("f32[0,2]", np.array(2), axis=1),
    ],
)
def split_to_sequence(
    x: np.ndarray, lengths: np.ndarray | None = None, *, axis: int = 0, keepdims: int = 1
) -> list[np.ndarray]:
    """Parts of the lengths given, or of one length but for the last; single entries where nothing is given, without the
    axis if not `keepdims`."""
    along = axis_in("SplitToSequence", axis, x.ndim)
    whole = x.shape[along]
    if lengths is None and not keepdims:
        return [np.take(x, index, along) for index in range(whole)]
    if lengths is None or lengths.ndim == 0:
        each = 1 if lengths is None else int(lengths)
        if each < 1:
            raise input_error("SplitToSequence", "the length of a part is not positive", "E-OP-VALUE", found=each)
        ends = list(range(each, whole, each))
    else:
        parts = lengths.tolist()
        if min(parts, default=0) < 0 or sum(parts) != whole or not parts:
            raise input_error("SplitToSequence", "the parts do not make up the input", expected=whole, found=parts)
        ends = np.cumsum(parts)[:-1].tolist()
    return list(np.split(x, ends, axis=along)) if whole or ends else [] if lengths is None or lengths.ndim == 0 else [x]
