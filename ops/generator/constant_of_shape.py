"""ConstantOfShape and EyeLike: filled tensors and identity matrices."""

from __future__ import annotations

import numpy as np

from ...runtime.ir.op import Trait, case, op
from ...runtime.ir.shape_inference import MAX_DATA, Inference
from ...runtime.tensor.dtype import F32
from ..cast.cast import element_type
from ..rules.axes import constants, dtype_of, elements, input_error
from ..rules.output_limit import allowed


def infer_constant_of_shape(node: Inference) -> None:
    """The shape that the input spells, and elements where they are few integers."""
    value = node.attributes["value"]
    dtype = F32 if value is None else dtype_of(value)
    shape = elements(node, 0)
    lengths = constants(shape)
    if lengths is not None and any(length < 0 for length in lengths):
        node.fail(f"lengths {list(lengths)} are negative")
    few = lengths is not None and len(lengths) <= 1 and sum(lengths) <= MAX_DATA and dtype.kind in ("int", "uint")
    node.set(
        0,
        dtype,
        shape,
        data=[int(value.reshape(-1)[0])] * (lengths[0] if lengths else 1) if few and lengths is not None else None,
    )


@op(
    "ConstantOfShape",
    since=25,
    types="i64",
    traits=(Trait.MOVES,),
    infer=infer_constant_of_shape,
    examples=[
        case(np.array([2, 3])),
        case(np.array([4]), value=np.array([7], np.int64)),
        case(np.array([0, 3])),
        case(np.zeros(0, np.int64)),
        case(np.array([2]), value=np.array([True])),
    ],
)
def constant_of_shape(shape: np.ndarray, *, value: np.ndarray | None = None) -> np.ndarray:
    """`value` (f32 zero where it is not given) everywhere."""
    if shape.ndim != 1 or (shape < 0).any():
        raise input_error("ConstantOfShape", "the input is not a shape", found=shape.tolist())
    fill = np.zeros(1, np.float32) if value is None else value.reshape(-1)
    if fill.size != 1:
        raise input_error("ConstantOfShape", "the value is not one element", expected=1, found=fill.size)
    lengths = allowed(shape.tolist(), fill.dtype.itemsize, "ConstantOfShape")
    result = np.empty(lengths, fill.dtype)
    result[...] = fill[0]
    return result


def infer_eye_like(node: Inference) -> None:
    """The input's shape, with the dtype that is asked for."""
    if node.shape(0) is not None and len(node.shape(0) or ()) != 2:
        node.fail("the input is not a matrix")
    asked = node.attributes["dtype"]
    node.set(0, node.dtype(0) if asked is None else element_type(asked), node.shape(0) or (None, None))


@op(
    "EyeLike",
    since=22,
    types="number+bool",
    infer=infer_eye_like,
    examples=[
        case("f32[3,4]"),
        case("f32[4,3]", k=1),
        case("i32[3,3]", k=-2, dtype=11),
        case("bool[2,3]", dtype=9),
        case("f32[0,3]"),
    ],
)
def eye_like(x: np.ndarray, *, dtype: int | None = None, k: int = 0) -> np.ndarray:
    """Ones on the diagonal `k` above the main one, zeros elsewhere, of the shape of a matrix."""
    if x.ndim != 2:
        raise input_error("EyeLike", "the input is not a matrix", expected=2, found=x.ndim)
    result = np.zeros(x.shape, x.dtype if dtype is None else element_type(dtype).as_numpy())
    rows = np.arange(max(0, -k), min(x.shape[0], x.shape[1] - k))
    result[rows, rows + k] = 1
    return result
