"""Post-transforms of classifier and regressor scores, and the choice of the class."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...runtime.ir.graph import Dim
from ...runtime.ir.shape_inference import Inference
from ...runtime.tensor.dtype import F32, I64, STRING
from ..rules.axes import input_error

NEARLY_ZERO = 1e-7
"""Scores up to here are zeros of SOFTMAX_ZERO."""


def logistic(x: np.ndarray) -> np.ndarray:
    """1 / (1 + exp(-x)), without overflow."""
    power = np.exp(-np.abs(x))
    return np.asarray(np.where(x >= 0, 1 / (1 + power), power / (1 + power)))


def probit(x: np.ndarray) -> np.ndarray:
    """The inverse of the normal distribution in Winitzki's approximation (2008), which implementations of the standard
    agree on."""
    y = 2 * x - 1
    log = np.log((1 - y) * (1 + y))
    part = 2 / (np.pi * 0.147) + 0.5 * log
    return np.asarray(np.sqrt(2) * np.sign(y) * np.sqrt(-part + np.sqrt(part * part - log / 0.147)))


def softmax(x: np.ndarray) -> np.ndarray:
    """Softmax of each row."""
    powers = np.exp(x - x.max(axis=1, keepdims=True, initial=-np.inf))
    return np.asarray(powers / powers.sum(axis=1, keepdims=True))


def softmax_zero(x: np.ndarray) -> np.ndarray:
    """Softmax of each row among the scores that are not zero; the others stay so."""
    highest = x.max(axis=1, keepdims=True, initial=-np.inf)
    counts = np.abs(x) > NEARLY_ZERO
    powers = np.where(counts, np.exp(x - highest), x * np.exp(-highest))
    total = np.sum(powers, axis=1, keepdims=True, where=counts)
    return np.asarray(np.where(total != 0, powers / np.where(total == 0, 1, total), powers))


TRANSFORMS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "NONE": np.asarray, "SOFTMAX": softmax, "LOGISTIC": logistic, "SOFTMAX_ZERO": softmax_zero, "PROBIT": probit,
}  # fmt: skip
NAMES = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")
"""Transforms by the numbers of TreeEnsemble."""


def transformed(operator: str, scores: np.ndarray, name: str) -> np.ndarray:
    """The rows of scores after a transform."""
    if name not in TRANSFORMS:
        raise input_error(
            operator, "unknown post transform", "E-OP-ATTRIBUTE", expected=", ".join(TRANSFORMS), found=name
        )
    with np.errstate(all="ignore"):
        return TRANSFORMS[name](scores)


def of_two(operator: str, score: np.ndarray, name: str, probable: bool) -> np.ndarray:
    """Scores of two classes from that of the second, [N].

    That of the first is the complement to one where scores are probabilities, else the negative; the softmaxes change
    nothing more.
    """
    if name == "PROBIT":
        score = transformed(operator, score, name)
        return np.stack([-score, score], 1)
    pair = np.stack([1 - score, score] if probable and name != "LOGISTIC" else [-score, score], 1)
    return transformed(operator, pair, name if name == "LOGISTIC" or name not in TRANSFORMS else "NONE")


def labels_of(operator: str, strings: Sequence[str] | None, integers: Sequence[int] | None) -> np.ndarray:
    """Class labels as an array; UsageError where both or none are given."""
    if bool(strings) == bool(integers):
        raise input_error(operator, "class labels must be either strings or integers", "E-OP-ATTRIBUTE")
    return np.array(strings, object) if strings else np.array(integers, np.int64)


def chosen(node: Inference, strings: str, integers: str) -> None:
    """One label and one score for each class for every row."""
    names, numbers = node.attributes[strings], node.attributes[integers]
    shape = node.shape(0)
    rows: Dim = None if shape is None else shape[0] if len(shape) == 2 else 1
    node.set(0, STRING if names else I64, (rows,))
    node.set(1, F32, (rows, len(names or numbers or ()) or None))


def rows_of(operator: str, x: np.ndarray) -> np.ndarray:
    """The input as rows of features in f32, or f64 where it is that; one row where it is 1-D."""
    if x.ndim not in (1, 2):
        raise input_error(operator, "the input is not rows of features", expected="[N, C] or [C]", found=list(x.shape))
    return x.reshape(1, -1) if x.ndim == 1 else x


def floats(values: Any, dtype: type = np.float32) -> np.ndarray:
    """A list of numbers as an array; an empty one for None."""
    return np.array([] if values is None else values, dtype)
