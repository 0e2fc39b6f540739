"""SVMClassifier and SVMRegressor: support vector machines of libsvm and liblinear.

Probabilities of more than two classes are coupled pair by pair (Wu, Lin, Weng, "Probability Estimates for Multi-class
Classification by Pairwise Coupling", JMLR 5, 2004, second approach).
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...runtime.ir.graph import Dim
from ...runtime.ir.op import Tolerance, case, op
from ...runtime.ir.shape_inference import Inference
from ...runtime.tensor.dtype import F32, I64, STRING
from ..rules.axes import input_error
from .class_scores import floats, labels_of, logistic, of_two, rows_of, transformed
from .feature import DOMAIN

CLOSE = Tolerance(rtol=1e-4, atol=1e-5)
KERNELS = ("LINEAR", "POLY", "RBF", "SIGMOID")


def kernel(operator: str, kind: str, params: Sequence[float] | None, x: np.ndarray, vectors: np.ndarray) -> np.ndarray:
    """[rows, vectors] of the kernel; `params` are gamma, coef0 and degree."""
    if kind not in KERNELS or vectors.shape[1] != x.shape[1] or len(params or [0, 0, 0]) != 3:
        why = "kernel, support vectors and features do not fit"
        raise input_error(operator, why, "E-OP-ATTRIBUTE", found=f"{kind}, {vectors.shape[1]} features")
    gamma, offset, degree = params or (0, 0, 0)
    if kind == "RBF":
        distance = np.square(x).sum(1)[:, None] - 2 * (x @ vectors.T) + np.square(vectors).sum(1)
        return np.asarray(np.exp(-gamma * np.maximum(distance, 0)))
    products = x @ vectors.T
    if kind == "LINEAR":
        return np.asarray(products)
    scaled = products * gamma + offset
    return np.asarray(np.tanh(scaled) if kind == "SIGMOID" else scaled**degree)


def _shaped(operator: str, numbers: np.ndarray, rows: int, what: str) -> np.ndarray:
    if rows < 1 or numbers.size % rows:
        why = f"{what} do not make up rows"
        raise input_error(operator, why, "E-OP-ATTRIBUTE", expected=f"a multiple of {rows}", found=numbers.size)
    return numbers.reshape(rows, -1)


def pairwise(kernels: np.ndarray, coefficients: np.ndarray, rho: np.ndarray, counts: Sequence[int]) -> np.ndarray:
    """[rows, pairs] of decisions between two classes each, in libsvm's order; `coefficients` are [classes - 1,
    vectors]."""
    ends = np.cumsum(counts)
    spans = [slice(end - count, end) for end, count in zip(ends.tolist(), counts, strict=True)]
    columns = [
        kernels[:, spans[i]] @ coefficients[j - 1, spans[i]] + kernels[:, spans[j]] @ coefficients[i, spans[j]]
        for i, j in itertools.combinations(range(len(counts)), 2)
    ]  # fmt: skip
    return np.asarray(np.stack(columns, 1) + rho[: len(columns)])


def coupled(pairs: np.ndarray, classes: int) -> np.ndarray:
    """[rows, classes] of probabilities from those of the first class of each pair, [rows, pairs]."""
    upper = np.triu_indices(classes, 1)
    r = np.zeros((len(pairs), classes, classes))
    r[:, upper[0], upper[1]] = pairs
    r[:, upper[1], upper[0]] = 1 - pairs
    q = -np.swapaxes(r, 1, 2) * r
    q[:, range(classes), range(classes)] = np.square(r).sum(1)
    p = np.full((len(pairs), classes), 1 / classes)
    open_ = np.ones(len(pairs), bool)
    for _ in range(max(100, classes)):
        qp = np.einsum("nij,nj->ni", q, p)
        pqp = np.sum(p * qp, 1)
        open_ &= np.abs(qp - pqp[:, None]).max(1, initial=0) >= 0.005 / classes
        if not open_.any():
            break
        for t in range(classes):
            step = np.where(open_, (pqp - qp[:, t]) / q[:, t, t], 0)
            p[:, t] += step
            pqp = (pqp + step * (step * q[:, t, t] + 2 * qp[:, t])) / np.square(1 + step)
            qp = (qp + step[:, None] * q[:, t]) / (1 + step)[:, None]
            p /= (1 + step)[:, None]
    return p


def infer_svm_classifier(node: Inference) -> None:
    """One label for every row, and scores: of classes where they are probabilities or linear, else of pairs of them."""
    given, shape = node.attributes, node.shape(0)
    rows: Dim = None if shape is None else shape[0] if len(shape) == 2 else 1
    classes = len(given["classlabels_strings"] or given["classlabels_ints"] or ())
    pairs = bool(given["vectors_per_class"]) and not given["prob_a"]
    node.set(0, STRING if given["classlabels_strings"] else I64, (rows,))
    node.set(1, F32, (rows, max(classes * (classes - 1) // 2, 2) if pairs else classes))


THREE: dict[str, Any] = {
    "classlabels_ints": [3, 5, 7],
    "vectors_per_class": [2, 1, 1],
    "support_vectors": [0.5, -1.0, 1.5, 0.25, -0.5, 1.0, -1.25, 0.75],
    "coefficients": [1.0, 0.5, -0.75, -0.75, 0.25, 1.25, 0.5, -0.5],
    "rho": [0.1, -0.2, 0.3],
}
TWO: dict[str, Any] = {
    "classlabels_strings": ["no", "yes"],
    "vectors_per_class": [1, 2],
    "support_vectors": [0.5, -1.0, 1.5, 0.25, -0.5, 1.0],
    "coefficients": [1.0, -0.5, -0.5],
    "rho": [0.1],
}


@op(
    "SVMClassifier",
    DOMAIN,
    since=1,
    types="index+wide -> 2",
    infer=infer_svm_classifier,
    tolerance=CLOSE,
    examples=[
        case("f32[5,2]", outputs=2, kernel_type="RBF", kernel_params=[0.5, 0.0, 0.0], **THREE),
        case("f32[5,2]", outputs=2, **THREE),
        case(
            "f32[5,2]",
            outputs=2,
            kernel_type="POLY",
            kernel_params=[0.5, 1.0, 3.0],
            prob_a=[-1.0, -0.5, -2.0],
            prob_b=[0.1, 0.2, -0.3],
            **THREE,
        ),
        case("f32[5,2]", outputs=2, kernel_type="SIGMOID", kernel_params=[0.5, 0.25, 0.0], **TWO),
        case(
            "f32[5,2]", outputs=2, prob_a=[-1.5], prob_b=[0.2], kernel_type="RBF", kernel_params=[1.0, 0.0, 0.0], **TWO
        ),
        case(
            "f32[4,2]",
            outputs=2,
            classlabels_ints=[1, 2, 3],
            coefficients=[0.5, 1.0, -1.0, 0.25, 0.75, -0.5],
            rho=[0.25] * 3,
            post_transform="SOFTMAX",
        ),
    ],
)
def svm_classifier(
    x: np.ndarray,
    *,
    classlabels_ints: Sequence[int] | None = None,
    classlabels_strings: Sequence[str] | None = None,
    coefficients: Sequence[float] | None = None,
    kernel_params: Sequence[float] | None = None,
    kernel_type: str = "LINEAR",
    post_transform: str = "NONE",
    prob_a: Sequence[float] | None = None,
    prob_b: Sequence[float] | None = None,
    rho: Sequence[float] | None = None,
    support_vectors: Sequence[float] | None = None,
    vectors_per_class: Sequence[int] | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Labels [N] by votes of the pairs of classes, and f32 scores of the pairs, or probabilities of the classes.

    Without support vectors there is one product for each class, and the greatest one is chosen.
    """
    name, rows = "SVMClassifier", rows_of("SVMClassifier", x).astype(np.float64)
    labels, shift = labels_of(name, classlabels_strings, classlabels_ints), floats(rho, np.float64)
    factors, classes = floats(coefficients, np.float64), len(labels)
    if not vectors_per_class:
        if shift.size < 1:
            raise input_error(name, "rho is missing", "E-OP-ATTRIBUTE")
        scores = kernel(name, "LINEAR", None, rows, _shaped(name, factors, classes, "coefficients")) + shift[0]
        return labels[np.argmax(scores, axis=1)], transformed(name, scores, post_transform).astype(np.float32)
    total, pairs = sum(vectors_per_class), classes * (classes - 1) // 2
    if (
        len(vectors_per_class) != classes
        or min(vectors_per_class) < 0
        or factors.size != total * (classes - 1)
        or shift.size < pairs
        or pairs < 1
    ):
        why = "classes, vectors and coefficients do not fit"
        raise input_error(name, why, "E-OP-ATTRIBUTE", found=f"{classes}, {total}, {factors.size}")
    kernels = kernel(
        name,
        kernel_type,
        kernel_params,
        rows,
        _shaped(name, floats(support_vectors, np.float64), total, "support vectors"),
    )
    decisions = pairwise(kernels, factors.reshape(classes - 1, total), shift, vectors_per_class)
    best = _voted(decisions, classes)
    if prob_a:
        if len(prob_a) < pairs or len(prob_b or []) < pairs:
            why = "there are fewer coefficients of probabilities than pairs of classes"
            raise input_error(name, why, "E-OP-ATTRIBUTE", expected=pairs)
        single = 1 - logistic(decisions * floats(prob_a, np.float64)[:pairs] + floats(prob_b, np.float64)[:pairs])
        probable = coupled(np.clip(single, 1e-7, 1 - 1e-7), classes)
        return labels[best], transformed(name, probable, post_transform).astype(np.float32)
    if classes == 2:
        return labels[best], of_two(name, decisions[:, 0], post_transform, False).astype(np.float32)
    return labels[best], transformed(name, decisions, post_transform).astype(np.float32)


def _voted(decisions: np.ndarray, classes: int) -> np.ndarray:
    """The class that wins most of its pairs, the first of several."""
    votes = np.zeros((len(decisions), classes), np.int64)
    for column, (i, j) in enumerate(itertools.combinations(range(classes), 2)):
        votes[:, i] += decisions[:, column] > 0
        votes[:, j] += decisions[:, column] <= 0
    return np.argmax(votes, axis=1)


def infer_svm_regressor(node: Inference) -> None:
    """One f32 number for every row."""
    shape = node.shape(0)
    node.set(0, F32, (None if shape is None else shape[0] if len(shape) == 2 else 1, 1))


@op(
    "SVMRegressor",
    DOMAIN,
    since=1,
    types="index+wide",
    infer=infer_svm_regressor,
    tolerance=CLOSE,
    examples=[
        case(
            "f32[5,2]",
            kernel_type="RBF",
            kernel_params=[0.5, 0.0, 0.0],
            n_supports=3,
            support_vectors=TWO["support_vectors"],
            coefficients=[1.0, -0.5, 0.75],
            rho=[0.3],
        ),
        case(
            "f32[5,2]",
            n_supports=2,
            support_vectors=[0.5, 1.0, -0.5, 0.25],
            coefficients=[1.0, -0.5],
            rho=[0.1],
            one_class=1,
        ),
        case("f32[5,2]", coefficients=[1.0, -0.5], rho=[0.1]),
        case("f32[0,2]", coefficients=[1.0, -0.5], rho=[0.1]),
    ],
)
def svm_regressor(
    x: np.ndarray,
    *,
    coefficients: Sequence[float] | None = None,
    kernel_params: Sequence[float] | None = None,
    kernel_type: str = "LINEAR",
    n_supports: int = 0,
    one_class: int = 0,
    post_transform: str = "NONE",
    rho: Sequence[float] | None = None,
    support_vectors: Sequence[float] | None = None,
) -> np.ndarray:
    """[N, 1] in f32: the weighted kernels plus rho, or whether that is positive as 1 and -1 for `one_class`."""
    name, rows = "SVMRegressor", rows_of("SVMRegressor", x).astype(np.float64)
    factors, shift = floats(coefficients, np.float64), floats(rho, np.float64)
    if n_supports > 0:
        vectors = _shaped(name, floats(support_vectors, np.float64), n_supports, "support vectors")
        columns = kernel(name, kernel_type, kernel_params, rows, vectors)
    else:
        columns = rows
    if shift.size < 1 or factors.size != columns.shape[1]:
        raise input_error(
            name, "coefficients and rho do not fit", "E-OP-ATTRIBUTE", expected=columns.shape[1], found=factors.size
        )
    scores = columns @ factors + shift[0]
    result = np.where(scores > 0, 1, -1) if one_class else scores
    return transformed(name, result.reshape(-1, 1).astype(np.float64), post_transform).astype(np.float32)
