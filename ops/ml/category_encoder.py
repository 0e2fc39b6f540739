"""Category encoders: CategoryMapper, LabelEncoder, OneHotEncoder."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...runtime.base.errors import UnsupportedError
from ...runtime.ir.builder import Builder
from ...runtime.ir.graph import Node
from ...runtime.ir.op import case, op, upgrade
from ...runtime.ir.shape_inference import Inference
from ...runtime.tensor.dtype import F32, I64, STRING
from ..rules.axes import dtype_of, input_error
from ..rules.output_limit import allowed
from .feature import DOMAIN


def looked_up(x: np.ndarray, keys: np.ndarray, values: np.ndarray, default: Any) -> np.ndarray:
    """For each element the value of its key, the last one of equal keys; NaN is a key of its own."""
    result = np.empty(x.shape, values.dtype)
    if x.dtype.kind == "O":
        table = dict(zip(keys.tolist(), values.tolist(), strict=True))
        result.reshape(-1)[:] = [table.get(item, default) for item in x.reshape(-1).tolist()]
        return result
    result[...] = default
    if keys.size:
        known, first = np.unique(keys[::-1], return_index=True)
        place = np.minimum(np.searchsorted(known, x), len(known) - 1)
        same = (known[place] == x) | ((known[place] != known[place]) & (x != x))
        result[same] = values[::-1][first][place[same]]
    return result


def infer_category_mapper(node: Inference) -> None:
    """Integers for strings, strings for integers."""
    source = node.dtype(0)
    node.set(0, None if source is None else I64 if source is STRING else STRING, node.shape(0))


ANIMALS: dict[str, Any] = {"cats_strings": ["cat", "dog", "cow"], "cats_int64s": [3, 1, 2]}


@op(
    "CategoryMapper",
    DOMAIN,
    since=1,
    types="i64+string",
    infer=infer_category_mapper,
    examples=[
        case(np.array(["dog", "bee", "cat"], object), default_int64=-9, **ANIMALS),
        case(np.array([[1, 5, 3]]), default_string="none", **ANIMALS),
    ],
)
def category_mapper(
    x: np.ndarray,
    *,
    cats_int64s: Sequence[int] | None = None,
    cats_strings: Sequence[str] | None = None,
    default_int64: int = -1,
    default_string: str = "_Unused",
) -> np.ndarray:
    """The integer of each string, or the string of each integer; the default for those that are not listed."""
    integers, strings = np.array(cats_int64s or [], np.int64), np.array(cats_strings or [], object)
    if len(integers) != len(strings):
        why = "there are not as many integers as strings"
        raise input_error("CategoryMapper", why, "E-OP-ATTRIBUTE", expected=len(strings), found=len(integers))
    return (
        looked_up(x, strings, integers, default_int64)
        if x.dtype.kind == "O"
        else looked_up(x.astype(np.int64), integers, strings, default_string)
    )


def array_of(tensor: np.ndarray | None, *lists: Any) -> np.ndarray | None:
    """The tensor or list that is given; the lists are of strings, integers, floats."""
    if tensor is not None:
        return tensor.reshape(-1)
    return next(
        (
            np.array(item, dtype)
            for item, dtype in zip(lists, (object, np.int64, np.float32), strict=True)
            if item is not None
        ),
        None,
    )


def infer_label_encoder(node: Inference) -> None:
    """The dtype of the values."""
    given = node.attributes
    values = array_of(given["values_tensor"], given["values_strings"], given["values_int64s"], given["values_floats"])
    if values is None:
        node.fail("it has no values")
    node.set(0, dtype_of(values), node.shape(0))


@op(
    "LabelEncoder",
    DOMAIN,
    since=4,
    types="index+wide+i16+string",
    infer=infer_label_encoder,
    examples=[
        case(np.array(["a", "b", "z"], object), keys_strings=["a", "b"], values_int64s=[4, 5], default_int64=7),
        case(
            np.array([1.5, np.nan, 2], np.float32),
            keys_floats=[1.5, float("nan")],
            values_strings=["x", "nothing"],
            default_string="other",
        ),
        case(np.array([[1, 2], [3, 4]]), keys_int64s=[1, 2, 1], values_floats=[0.5, 1.5, 2.5], default_float=-1.0),
        case(np.array([5, 6]), keys_int64s=[5], values_int64s=[8]),
        case(
            np.array([1, 2], np.int64),
            keys_tensor=np.array([2, 1]),
            values_tensor=np.array([10, 20], np.int16),
            default_tensor=np.array([0], np.int16),
        ),
    ],
)
def label_encoder(
    x: np.ndarray,
    *,
    default_float: float = -0.0,
    default_int64: int = -1,
    default_string: str = "_Unused",
    default_tensor: np.ndarray | None = None,
    keys_floats: Sequence[float] | None = None,
    keys_int64s: Sequence[int] | None = None,
    keys_strings: Sequence[str] | None = None,
    keys_tensor: np.ndarray | None = None,
    values_floats: Sequence[float] | None = None,
    values_int64s: Sequence[int] | None = None,
    values_strings: Sequence[str] | None = None,
    values_tensor: np.ndarray | None = None,
) -> np.ndarray:
    """For each element the value of its key, or the default."""
    keys = array_of(keys_tensor, keys_strings, keys_int64s, keys_floats)
    values = array_of(values_tensor, values_strings, values_int64s, values_floats)
    default = default_float, default_int64, default_string, default_tensor
    return looked_up(x, *fitting(x.dtype, keys, values, *default))


def fitting(
    dtype: np.dtype[Any],
    keys: np.ndarray | None,
    values: np.ndarray | None,
    default_float: float,
    default_int64: int,
    default_string: str,
    default_tensor: np.ndarray | None,
) -> tuple[np.ndarray, np.ndarray, Any]:
    """Keys for elements of a dtype, their values, and the value of others; UsageError where they do not fit."""
    if keys is None or values is None or len(keys) != len(values) or (keys.dtype.kind == "O") != (dtype.kind == "O"):
        raise input_error("LabelEncoder", "keys, values and input do not fit", "E-OP-ATTRIBUTE")
    default: Any = (
        default_string if values.dtype.kind == "O" else default_int64 if values.dtype.kind in "iu" else default_float
    )
    return keys, values, default if default_tensor is None else default_tensor.reshape(-1)[0]


@upgrade(label_encoder, below=2)
def classes_by_index(node: Node, build: Builder) -> None:
    """Version 1 of the operator maps strings to their positions in one list, or back."""
    classes = node.attributes.pop("classes_strings", None)
    if classes is None:
        return
    source = node.inputs[0]
    if source is None or source.dtype is None:
        why = "a LabelEncoder of the first version has an input of unknown dtype"
        raise UnsupportedError("E-OP-DTYPE", None, why, hint="Run ONNX shape inference first")
    places, strings = list(range(len(classes))), list(classes)
    own, other = ("keys_strings", "values_int64s") if source.dtype is STRING else ("values_strings", "keys_int64s")
    node.attributes.update({own: strings, other: places})


def infer_one_hot_encoder(node: Inference) -> None:
    """One more axis, as long as there are categories."""
    shape = node.shape(0)
    count = len(node.attributes["cats_int64s"] or node.attributes["cats_strings"] or ())
    node.set(0, F32, None if shape is None else (*shape, count))


@op(
    "OneHotEncoder",
    DOMAIN,
    since=1,
    types="index+wide+string",
    infer=infer_one_hot_encoder,
    examples=[
        case(np.array([[1, 5], [3, 1]]), cats_int64s=[1, 2, 3]),
        case(np.array(["a", "c"], object), cats_strings=["c", "b", "a"], zeros=0),
        case(np.array([1.5, 2.0], np.float32), cats_int64s=[2, 1]),
        case("i64[0]", cats_int64s=[1]),
    ],
)
def one_hot_encoder(
    x: np.ndarray,
    *,
    cats_int64s: Sequence[int] | None = None,
    cats_strings: Sequence[str] | None = None,
    zeros: int = 1,
) -> np.ndarray:
    """One at the position of each element's category in f32; other elements are all zeros, or an error where `zeros` is
    not set."""
    text = x.dtype.kind == "O"
    keys = np.array((cats_strings if text else cats_int64s) or [], object if text else np.int64)
    positions = looked_up(x if text else x.astype(np.int64), keys, np.arange(len(keys)), -1).reshape(-1)
    if not zeros and (positions < 0).any():
        raise input_error(
            "OneHotEncoder", "an element is of no category", "E-OP-VALUE", found=x.reshape(-1)[positions < 0][0]
        )
    result = np.zeros(allowed((x.size, len(keys)), 4, "OneHotEncoder"), np.float32)
    (rows,) = np.nonzero(positions >= 0)
    result[rows, positions[rows]] = 1
    return result.reshape(*x.shape, len(keys))
