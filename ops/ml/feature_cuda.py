"""Feature operators, linear models and SVMs on the device, decomposed into other operators; string labels run on the
CPU."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import numpy as np

from ...runtime.cuda.plan.kernel_api import decomposed
from ...runtime.ir.op import Undecomposable
from ...runtime.tensor.dtype import F32, F64
from ..rules.decompose_cuda import Form, forms
from ..rules.expression import Term
from . import feature, linear_model, svm
from .class_scores import NEARLY_ZERO
from .svm_cuda import coupled_probabilities


def _probit(x: Term) -> Term:
    """See `scores.probit`."""
    y = x * 2 - 1
    log = ((1 - y) * (1 + y)).call("Log")
    part = log * 0.5 + 2 / (math.pi * 0.147)
    return y.call("Sign") * math.sqrt(2) * ((part * part - log / 0.147).call("Sqrt") - part).call("Sqrt")


def _softmax_zero(x: Term) -> Term:
    """See `scores.softmax_zero`."""
    last = x.integers([-1])
    highest, counts = x.call("ReduceMax", last, keepdims=1), x.call("Abs") > NEARLY_ZERO
    powers = counts.where((x - highest).call("Exp"), x * (-highest).call("Exp"))
    total = counts.where(powers, 0.0).call("ReduceSum", last, keepdims=1)
    return powers / total.call("Equal", total.number(0)).where(1.0, total)


TRANSFORMS: dict[str, Callable[[Term], Term]] = {
    "NONE": lambda x: x,
    "SOFTMAX": lambda x: x.call("Softmax", axis=-1),
    "LOGISTIC": lambda x: x.call("Sigmoid"),
    "PROBIT": _probit,
    "SOFTMAX_ZERO": _softmax_zero,
}


def transformed(scores: Term, name: str) -> Term:
    """Scores after a transform."""
    if name not in TRANSFORMS:
        raise Undecomposable(f"unknown transform {name}")
    return TRANSFORMS[name](scores)


def of_two(form: Form, score: Term, name: str, probable: bool) -> Term:
    """Scores [rows, 2] from those of the second class [rows, 1], as `scores.of_two`."""
    if name == "PROBIT":
        found = _probit(score)
        return (-found).call("Concat", found, axis=1)
    pair = (1 - score if probable and name != "LOGISTIC" else -score).call("Concat", score, axis=1)
    return pair.call("Sigmoid") if name == "LOGISTIC" else pair


def rows_of(form: Form) -> Term:
    """The input as rows."""
    x = form.input(0)
    return x.reshaped(1, -1) if len(x.lengths) == 1 else x


def _extracted(form: Form) -> None:
    x, indices = form.input(0), form.input(1).reshaped(-1)
    found = x.call("Gather", indices, axis=-1)
    form.give(0, found.reshaped(1, -1) if len(x.lengths) == 1 else found)


def _binarized(form: Form) -> None:
    x = form.input(0)
    wide = x if x.dtype.kind == "float" else x.cast(F64)
    form.give(0, (wide > float(np.float32(form.attributes["threshold"]))).cast(x.dtype))


def _joined(form: Form) -> None:
    widths, parts = form.attributes["inputdimensions"], []
    for index in range(len(form.node.inputs)):
        item = form.input(index).cast(F32)
        shape = item.lengths
        rows = item.reshaped(*((1, -1) if len(shape) < 2 else (shape[0], -1)))
        width = rows.lengths[1] if not widths else widths[index]
        if rows.lengths[1] > width:
            rows = rows.part(1, 0, width)
        elif rows.lengths[1] < width:
            rows = rows.call("Pad", form.constant([0, 0, 0, width - rows.lengths[1]]))
        parts.append(rows)
    form.give(0, parts[0].call("Concat", *parts[1:], axis=1))


def _imputed(form: Form) -> None:
    x, given = form.input(0), form.attributes
    dtype = x.dtype.as_numpy()
    whole = dtype.kind in "iu"
    values = form.constant(
        np.array(given["imputed_value_int64s" if whole else "imputed_value_floats"] or [], dtype), dtype
    )
    value = given["replaced_value_int64"] if whole else np.float32(given["replaced_value_float"])
    missing = x.call("IsNaN") if math.isnan(value) else x.call("Equal", form.constant(value, dtype))
    form.give(0, missing.where(values, x))


def _normalized(form: Form) -> None:
    wide = form.input(0).cast(F64)
    operators = {"MAX": "ReduceMax", "L1": "ReduceL1", "L2": "ReduceL2"}
    divisor = wide.call(operators[form.attributes["norm"]], form.constant([-1]), keepdims=1)
    form.give(0, (wide / divisor.call("Equal", divisor.number(0)).where(1.0, divisor)).cast(F32))


def _scaled(form: Form) -> None:
    shift, factor = (
        form.constant(form.attributes[name] or [default], "float32")
        for name, default in (("offset", 0.0), ("scale", 1.0))
    )
    form.give(0, (form.input(0).cast(F32) - shift) * factor)


def _products(form: Form, count: int) -> Term:
    rows = rows_of(form).cast(F32)
    weights = np.array(form.attributes["coefficients"] or [], np.float32).reshape(count, -1)
    scores = rows.call("MatMul", form.constant(weights.T, "float32"))
    intercepts = form.attributes["intercepts"]
    return scores + form.constant(intercepts, "float32") if intercepts else scores


def _regressed(form: Form) -> None:
    form.give(0, transformed(_products(form, form.attributes["targets"]), form.attributes["post_transform"]))


def chosen(form: Form, labels: list[int], best: Term) -> None:
    """Output 0: the labels of classes by number [rows]."""
    form.give(0, form.constant(labels).call("Gather", best))


def _classified(form: Form) -> None:
    labels, post = form.attributes["classlabels_ints"], form.attributes["post_transform"]
    count = len(form.attributes["intercepts"] or labels)
    scores = _products(form, count)
    if count == 1 and len(labels) == 2:
        chosen(form, labels, (scores > 0).call("Squeeze", form.constant([1])).cast(form.constant(0).dtype))
        form.give(1, of_two(form, scores, post, True))
        return
    chosen(form, labels, scores.call("ArgMax", axis=1, keepdims=0))
    form.give(1, transformed(scores, post))


def _kernels(form: Form, rows: Term, vectors: np.ndarray) -> Term:
    kind = form.attributes["kernel_type"]
    gamma, offset, degree = form.attributes["kernel_params"] or (0, 0, 0)
    products = rows.call("MatMul", form.constant(vectors.T, "float64"))
    if kind == "RBF":
        squares = (rows * rows).call("ReduceSum", form.constant([1]), keepdims=1)
        distance = squares - products * 2 + form.constant(np.square(vectors).sum(1), "float64")
        return (distance.call("Max", distance.number(0)) * -gamma).call("Exp")
    if kind == "LINEAR":
        return products
    scaled = products * gamma + offset
    return scaled.call("Tanh") if kind == "SIGMOID" else scaled.call("Pow", scaled.number(degree))


def _supported(form: Form) -> None:
    given, rows = form.attributes, rows_of(form).cast(F64)
    factors = np.array(given["coefficients"] or [], np.float64)
    if given["n_supports"] > 0:
        rows = _kernels(
            form, rows, np.array(given["support_vectors"] or [], np.float64).reshape(given["n_supports"], -1)
        )
    scores = rows.call("MatMul", form.constant(factors[:, None], "float64")) + (given["rho"] or [0.0])[0]
    if given["one_class"]:
        scores = (scores > 0).where(form.constant(1.0, "float64"), form.constant(-1.0, "float64"))
    form.give(0, transformed(scores, given["post_transform"]).cast(F32))


def _voted(form: Form) -> None:
    given, rows = form.attributes, rows_of(form).cast(F64)
    labels, counts = given["classlabels_ints"], given["vectors_per_class"]
    classes, factors = len(labels), np.array(given["coefficients"] or [], np.float64)
    if not counts:
        scores = rows.call("MatMul", form.constant(factors.reshape(classes, -1).T, "float64")) + given["rho"][0]
        chosen(form, labels, scores.call("ArgMax", axis=1, keepdims=0))
        form.give(1, transformed(scores, given["post_transform"]).cast(F32))
        return
    kernels = _kernels(form, rows, np.array(given["support_vectors"] or [], np.float64).reshape(sum(counts), -1))
    decisions = kernels.call("MatMul", form.constant(_pairs(factors.reshape(classes - 1, -1), counts), "float64"))
    pairs = list(itertools.combinations(range(classes), 2))
    decisions = decisions + form.constant(np.array(given["rho"], np.float64)[: len(pairs)], "float64")
    wins = (decisions > 0).cast(F64)
    first, second = (
        form.constant(
            np.array([[pair[side] == number for number in range(classes)] for pair in pairs], np.float64), "float64"
        )
        for side in (0, 1)
    )
    votes = wins.call("MatMul", first) + (1 - wins).call("MatMul", second)
    chosen(form, labels, votes.call("ArgMax", axis=1, keepdims=0))
    post = given["post_transform"]
    if given["prob_a"]:
        a, b = (
            form.constant(np.array(given[name], np.float64)[: len(pairs)], "float64") for name in ("prob_a", "prob_b")
        )
        single = 1 - (decisions * a + b).call("Sigmoid")
        single = single.call("Clip", single.number(1e-7), single.number(1 - 1e-7))
        form.give(1, transformed(coupled_probabilities(single, classes), post).cast(F32))
        return
    form.give(1, (of_two(form, decisions, post, False) if classes == 2 else transformed(decisions, post)).cast(F32))


def _pairs(factors: np.ndarray, counts: list[int]) -> np.ndarray:
    """[vectors, pairs]: what a vector counts in the decision between two classes, in libsvm's order."""
    starts = np.cumsum([0, *counts])
    columns = []
    for i, j in itertools.combinations(range(len(counts)), 2):
        column = np.zeros(factors.shape[1])
        column[starts[i] : starts[i + 1]] = factors[j - 1, starts[i] : starts[i + 1]]
        column[starts[j] : starts[j + 1]] = factors[i, starts[j] : starts[j + 1]]
        columns.append(column)
    return np.stack(columns, 1)


for _op, _formula in (
    (feature.array_feature_extractor, _extracted),
    (feature.binarizer, _binarized),
    (feature.feature_vectorizer, _joined),
    (feature.imputer, _imputed),
    (feature.normalizer, _normalized),
    (feature.scaler, _scaled),
    (linear_model.linear_regressor, _regressed),
    (linear_model.linear_classifier, _classified),
    (svm.svm_regressor, _supported),
    (svm.svm_classifier, _voted),
):
    decomposed(_op)(forms(_formula))
