"""Map operators: CastMap, DictVectorizer, ZipMap. A map is a dict."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...runtime.ir.call import Call
from ...runtime.ir.op import op
from ...runtime.ir.shape_inference import Inference
from ...runtime.tensor.dtype import F32, I64, STRING
from ..rules.axes import input_error
from ..rules.output_limit import allowed
from .class_scores import labels_of
from .feature import DOMAIN

CASTS = {"TO_FLOAT": np.float32, "TO_INT64": np.int64, "TO_STRING": object}
EMPTY = {"TO_FLOAT": 0.0, "TO_INT64": 0, "TO_STRING": "0.f"}
"""The value of keys that a sparse map lacks; the text is onnxruntime's."""


def infer_cast_map(node: Inference) -> None:
    """One row of the dtype asked for, as long as the largest map where it is sparse."""
    dtype = {"TO_FLOAT": F32, "TO_INT64": I64, "TO_STRING": STRING}.get(node.attributes["cast_to"])
    if dtype is None:
        node.fail(f"unknown cast {node.attributes['cast_to']!r}")
    node.set(0, dtype, (1, node.attributes["max_map"] if node.attributes["map_form"] == "SPARSE" else None))


@op("CastMap", DOMAIN, since=1, types="map", infer=infer_cast_map)
def cast_map(x: dict[int, Any], *, cast_to: str = "TO_FLOAT", map_form: str = "DENSE", max_map: int = 1) -> np.ndarray:
    """[1, count] of the values by ascending keys, or [1, max_map] of the values at their keys."""
    dtype, keys = CASTS.get(cast_to), sorted(x)
    if dtype is None or map_form not in ("DENSE", "SPARSE"):
        raise input_error("CastMap", "unknown cast or form", "E-OP-ATTRIBUTE", found=f"{cast_to}, {map_form}")
    values = [_cast(x[key], cast_to) for key in keys]
    if map_form == "DENSE":
        return np.array(values, dtype).reshape(1, -1)
    if keys and not 0 <= keys[0] <= keys[-1] < max_map:
        raise input_error(
            "CastMap", "a key is outside of the output", "E-OP-INDEX", expected=f"below {max_map}", found=keys[-1]
        )
    result = np.empty(allowed((1, max_map), 8, "CastMap"), dtype)
    result[...] = EMPTY[cast_to]
    result[0, np.array(keys, np.int64)] = values
    return result


def _cast(value: Any, to: str) -> Any:
    if to == "TO_STRING":
        return value if isinstance(value, str) else f"{float(value):f}"
    try:
        return float(value) if to == "TO_FLOAT" else int(float(value))
    except ValueError as error:
        raise input_error("CastMap", "a value is not a number", "E-OP-VALUE", found=value) from error


def infer_dict_vectorizer(node: Inference) -> None:
    """One row with a column for each word."""
    words = node.attributes["string_vocabulary"] or node.attributes["int64_vocabulary"] or ()
    node.set(0, node.dtype(0), (1, len(words)))


@op("DictVectorizer", DOMAIN, since=1, types="map", infer=infer_dict_vectorizer)
def dict_vectorizer(
    x: dict[Any, Any],
    *,
    int64_vocabulary: Sequence[int] | None = None,
    string_vocabulary: Sequence[str] | None = None,
    call: Call,
) -> np.ndarray:
    """[1, words]: the value of each word, zero for those that the map does not have."""
    words = labels_of("DictVectorizer", string_vocabulary, int64_vocabulary).tolist()
    strange = x.keys() - set(words)
    if strange:
        raise input_error("DictVectorizer", "a key is not in the vocabulary", "E-OP-VALUE", found=min(strange))
    source = call.node.inputs[0]
    known = None if source is None or source.dtype is None else source.dtype.as_numpy()
    kinds = {type(value) for value in x.values()}
    dtype = known or (object if str in kinds else np.int64 if kinds == {int} else np.float32)
    return np.array([x.get(word, "" if dtype in (object, np.dtype(object)) else 0) for word in words], dtype).reshape(
        1, -1
    )


def infer_zip_map(node: Inference) -> None:
    """A sequence of maps."""
    key = "string" if node.attributes["classlabels_strings"] else "i64"
    node.set(0, F32, (), container=("sequence", f"map:{key}"))


@op("ZipMap", DOMAIN, since=1, types="f32", infer=infer_zip_map)
def zip_map(
    x: np.ndarray, *, classlabels_int64s: Sequence[int] | None = None, classlabels_strings: Sequence[str] | None = None
) -> list[dict[Any, float]]:
    """A map from the labels to the columns for each row."""
    labels = labels_of("ZipMap", classlabels_strings, classlabels_int64s).tolist()
    rows = x.reshape(1, -1) if x.ndim == 1 else x
    if rows.ndim != 2 or rows.shape[1] != len(labels):
        raise input_error(
            "ZipMap", "there are not as many columns as labels", expected=len(labels), found=list(x.shape)
        )
    return [dict(zip(labels, values, strict=True)) for values in rows.tolist()]
