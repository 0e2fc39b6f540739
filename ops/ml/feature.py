"""Feature operators: ArrayFeatureExtractor, Binarizer, FeatureVectorizer, Imputer, Normalizer, Scaler."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ...runtime.base.units import counted
from ...runtime.ir.graph import Dim
from ...runtime.ir.op import case, op
from ...runtime.ir.shape_inference import Inference
from ...runtime.tensor.dtype import F32
from ..gather.gather import checked
from ..rules.axes import constants, input_error
from ..rules.shape_rules import same_as_input
from .class_scores import floats

DOMAIN = "ai.onnx.ml"


def infer_array_feature_extractor(node: Inference) -> None:
    """As many elements of the last axis as there are indices; a 1-D input is one row."""
    shape, indices = node.shape(0), node.shape(1)
    numbers = constants(indices)
    count: Dim = None if numbers is None else int(np.prod(numbers))
    node.set(0, node.dtype(0), None if shape is None else (1, count) if len(shape) == 1 else (*shape[:-1], count))


@op(
    "ArrayFeatureExtractor",
    DOMAIN,
    since=1,
    types="index+wide+string i64",
    infer=infer_array_feature_extractor,
    examples=[
        case("f32[3,4]", np.array([0, 2])),
        case("f32[5]", np.array([[1, 3]])),
        case("string[2,3]", np.array([2])),
        case("f32[0,3]", np.array([1])),
    ],
)
def array_feature_extractor(x: np.ndarray, indices: np.ndarray) -> np.ndarray:
    """Elements of the last axis by index."""
    if x.ndim == 0 or (indices.size and indices.min() < 0):
        raise input_error("ArrayFeatureExtractor", "the input is a scalar, or an index is negative", "E-OP-INDEX")
    checked("ArrayFeatureExtractor", indices, x.shape[-1])
    found = np.take(x, indices.reshape(-1), -1)
    return found.reshape(1, -1) if x.ndim == 1 else found


@op(
    "Binarizer",
    DOMAIN,
    since=1,
    types="index+wide",
    infer=same_as_input,
    examples=[case("f32[2,3]", threshold=0.5), case("f32[3]"), case("f32[0,3]")],
)
def binarizer(x: np.ndarray, *, threshold: float = 0.0) -> np.ndarray:
    """Ones where `x` is greater than the threshold, else zeros, in the dtype of `x`."""
    return (x > np.float32(threshold)).astype(x.dtype)


def infer_feature_vectorizer(node: Inference) -> None:
    """Rows of all features."""
    widths, shape = node.attributes["inputdimensions"], node.shape(0)
    rows: Dim = None if shape is None else shape[0] if len(shape) == 2 else 1
    node.set(0, F32, (rows, sum(widths) if widths else None))


@op(
    "FeatureVectorizer",
    DOMAIN,
    since=1,
    types="index+wide*",
    infer=infer_feature_vectorizer,
    examples=[
        case("f32[2,3]", "f32[2,1]", inputdimensions=[3, 1]),
        case("i64[2,3]", "i64[2,2]", inputdimensions=[2, 4]),
        case("f32[0,3]", inputdimensions=[3]),
    ],
)
def feature_vectorizer(*inputs: np.ndarray, inputdimensions: Sequence[int] | None = None) -> np.ndarray:
    """The inputs side by side in f32, each cut or filled up with zeros to its width."""
    rows = [
        item.reshape(1, -1) if item.ndim < 2 else item.reshape(item.shape[0], math.prod(item.shape[1:]))
        for item in inputs
    ]
    widths = [item.shape[1] for item in rows] if not inputdimensions else list(inputdimensions)
    if len(widths) != len(rows) or min(widths, default=0) < 0 or len({len(item) for item in rows}) != 1:
        raise input_error(
            "FeatureVectorizer", "widths and inputs do not fit", expected=f"{counted(len(rows), 'width')}", found=widths
        )
    result = np.zeros((len(rows[0]), sum(widths)), np.float32)
    start = 0
    for item, width in zip(rows, widths, strict=True):
        part = item[:, :width]
        result[:, start : start + part.shape[1]] = part
        start += width
    return result


@op(
    "Imputer",
    DOMAIN,
    since=1,
    types="index+wide",
    infer=same_as_input,
    examples=[
        case(
            np.array([[1, np.nan, 3], [np.nan, 5, 6]], np.float32),
            imputed_value_floats=[7.0, 8.0, 9.0],
            replaced_value_float=float("nan"),
        ),
        case(np.array([[1, -1], [3, -1]], np.int64), imputed_value_int64s=[5], replaced_value_int64=-1),
        case("f32[0,3]", imputed_value_floats=[1.0]),
    ],
)
def imputer(
    x: np.ndarray,
    *,
    imputed_value_floats: Sequence[float] | None = None,
    imputed_value_int64s: Sequence[int] | None = None,
    replaced_value_float: float = 0.0,
    replaced_value_int64: int = 0,
) -> np.ndarray:
    """`x` with one value (which may be NaN) replaced by another, or by one for each feature."""
    whole = x.dtype.kind in "iu"
    values = np.array((imputed_value_int64s if whole else imputed_value_floats) or [], x.dtype)
    if values.size not in (1, x.shape[-1] if x.ndim else 1) or not values.size:
        raise input_error(
            "Imputer", "there is not one value, or one for each feature", "E-OP-ATTRIBUTE", found=values.size
        )
    value = replaced_value_int64 if whole else np.float32(replaced_value_float)
    missing = np.isnan(x) if np.isnan(value) else x == value
    return np.where(missing, values, x)


def as_floats(node: Inference) -> None:
    """The input's shape in f32."""
    node.set(0, F32, node.shape(0))


@op(
    "Normalizer",
    DOMAIN,
    since=1,
    types="index+wide",
    infer=as_floats,
    examples=[
        case("f32[2,3]"),
        case("f32[2,3]", norm="L1"),
        case("f32[2,3]", norm="L2"),
        case("i64[4]", norm="L2"),
        case(np.zeros((1, 3), np.float32), norm="L1"),
    ],
)
def normalizer(x: np.ndarray, *, norm: str = "MAX") -> np.ndarray:
    """Each row divided by its maximum, the sum of its absolute values, or its length; rows whose divisor is zero stay
    as they are."""
    wide = x.astype(np.float64)
    divisors = {
        "MAX": lambda: wide.max(axis=-1, keepdims=True, initial=-np.inf),
        "L1": lambda: np.abs(wide).sum(axis=-1, keepdims=True),
        "L2": lambda: np.sqrt(np.square(wide).sum(axis=-1, keepdims=True)),
    }
    if norm not in divisors or x.ndim not in (1, 2):
        why = "unknown norm, or the input is not a matrix"
        raise input_error("Normalizer", why, "E-OP-ATTRIBUTE", expected=", ".join(divisors), found=norm)
    divisor = divisors[norm]()
    return (wide / np.where(divisor == 0, 1, divisor)).astype(np.float32)


@op(
    "Scaler",
    DOMAIN,
    since=1,
    types="index+wide",
    infer=as_floats,
    examples=[
        case("f32[2,3]", offset=[1.0, 2.0, 3.0], scale=[0.5, 2.0, 4.0]),
        case("i64[2,3]", offset=[1.0], scale=[0.5]),
        case("f32[0,3]", offset=[1.0], scale=[2.0]),
    ],
)
def scaler(x: np.ndarray, *, offset: Sequence[float] | None = None, scale: Sequence[float] | None = None) -> np.ndarray:
    """(x - offset) * scale in f32; both are one number or one for each feature."""
    shift, factor = floats(offset or [0.0]), floats(scale or [1.0])
    if any(item.size not in (1, x.shape[-1] if x.ndim else 1) for item in (shift, factor)):
        raise input_error(
            "Scaler", "offset and scale do not fit the features", "E-OP-ATTRIBUTE", found=f"{shift.size}, {factor.size}"
        )
    return ((x.astype(np.float32) - shift) * factor).astype(np.float32)
