"""Constants: Constant, ConstantOfShape, Range, EyeLike."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...runtime.dtype import BY_ONNX, F32, I64, STRING, of_numpy
from ...runtime.errors import UsageError
from ...runtime.infer import Inference
from ...runtime.op import case, op
from ..allocation import allowed
from ..precision import is_narrow
from ..rules import literal


def _given(attributes: dict[str, object]) -> np.ndarray:
    found = [(name, value) for name, value in attributes.items() if value is not None]
    if len(found) != 1:
        raise UsageError("E-OP-CONSTANT", None, f"a Constant has {len(found)} values, not one", hint="The model is malformed")
    ((name, value),) = found
    dtype = {"value_float": np.float32, "value_floats": np.float32, "value_int": np.int64, "value_ints": np.int64}.get(name)
    return np.asarray(value, dtype=object if name.startswith("value_string") else dtype)


def _constant(node: Inference) -> None:
    array = _given({name: value for name, value in node.attributes.items() if name != "sparse_value"})
    text = array.dtype.kind in "OUT"
    node.set(0, STRING if text else of_numpy(array.dtype), array.shape, data=literal(array))


@op("Constant", since=25, infer=_constant, examples=[case(value=np.arange(6.0).reshape(2, 3)), case(value_ints=[1, 2]), case(value_string="a")])
def constant(
    *, value: np.ndarray | None = None, value_float: float | None = None, value_floats: list[float] | None = None, value_int: int | None = None,
    value_ints: list[int] | None = None, value_string: str | None = None, value_strings: list[str] | None = None,
    sparse_value: np.ndarray | None = None,
) -> np.ndarray:
    """The one attribute that is given; a sparse tensor comes dense."""
    values = (value, value_float, value_floats, value_int, value_ints, value_string, value_strings, sparse_value)
    names = ("value", "value_float", "value_floats", "value_int", "value_ints", "value_string", "value_strings", "sparse_value")
    return _given(dict(zip(names, values, strict=True)))


def _filled(node: Inference) -> None:
    value = node.attributes["value"]
    dtype = F32 if value is None else of_numpy(np.asarray(value).dtype)
    dims = node.data(0)
    shape = node.shape(0)
    rank = shape[0] if shape else None
    known = dims if dims is not None else (None,) * rank if isinstance(rank, int) else None
    whole = known is not None and all(isinstance(dim, int) for dim in known)
    count = math.prod(dim for dim in known or () if isinstance(dim, int)) if whole else None
    data = None
    if count is not None and count <= 64 and dtype.kind in ("int", "uint") and len(known or ()) <= 1:
        data = (0 if value is None else int(np.ravel(value)[0]),) * count
    node.set(0, dtype, known, data=data)


@op("ConstantOfShape", since=25, infer=_filled, examples=[case([2, 3]), case([0]), case([4], value=np.array([7], np.int64))])
def constant_of_shape(shape: np.ndarray, *, value: np.ndarray | None = None) -> np.ndarray:
    """An array of that shape, filled with `value` (f32 zero when it is absent)."""
    fill = np.zeros(1, np.float32) if value is None else np.ravel(value)
    return np.full(allowed(shape.tolist(), fill.dtype.itemsize, "ConstantOfShape"), fill[0], fill.dtype)


def _range(node: Inference) -> None:
    ends = [node.array(index) for index in range(3)]
    if any(end is None for end in ends):
        node.set(0, node.dtype(0), (None,))
        return
    start, limit, delta = (end.reshape(())[()] for end in ends if end is not None)
    count = _count(start, limit, delta) if delta else 0
    data = [int(start + delta * index) for index in range(count)] if start.dtype.kind in "iu" and count <= 64 else None
    node.set(0, node.dtype(0), (count,), data=data)


def _count(start: Any, limit: Any, delta: Any) -> int:
    return max(0, math.ceil((float(limit) - float(start)) / float(delta)))


@op("Range", since=27, infer=_range, examples=[case(1.5, 4.0, 0.5), case([1], [5], [2]), case(np.int64(10), np.int64(4), np.int64(-3))][::2])
def range_(start: np.ndarray, limit: np.ndarray, delta: np.ndarray) -> np.ndarray:
    """Numbers from `start` in steps of `delta` up to and without `limit`."""
    first, last, step = (np.asarray(item).reshape(())[()] for item in (start, limit, delta))
    if not step:
        raise UsageError("E-OP-RANGE", None, "Range has a step of zero", hint="The model is malformed")
    (count,) = allowed([_count(first, last, step)], start.dtype.itemsize, "Range")
    wide = np.float32 if is_narrow(np.asarray(start)) else start.dtype
    return (np.asarray(first, wide) + np.arange(count).astype(wide) * np.asarray(step, wide)).astype(start.dtype)


def _eye(node: Inference) -> None:
    asked = node.attributes["dtype"]
    node.set(0, node.dtype(0) if asked is None else BY_ONNX.get(asked), node.shape(0))


@op("EyeLike", since=25, infer=_eye, examples=[case("f32[3,4]"), case("i32[4,3]", k=-1, dtype=I64.onnx)])
def eye_like(x: np.ndarray, *, dtype: int | None = None, k: int = 0) -> np.ndarray:
    """Ones on diagonal `k`, zeros elsewhere, in the shape of the matrix `x`."""
    rows, columns = x.shape
    return np.eye(rows, columns, k=k).astype(x.dtype if dtype is None else BY_ONNX[dtype].as_numpy())
