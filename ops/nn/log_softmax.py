"""LogSoftmax: x - max - log(sum(exp(x - max))) along an axis."""

from __future__ import annotations

import math

import numpy as np

from ...runtime.ir.builder import Builder
from ...runtime.ir.graph import Node
from ...runtime.ir.op import Trait, case, op, upgrade
from ...runtime.plan.kernel_api import BaseStep
from ...runtime.plan.rows import Described, Fold, Output, Rows, add
from ..rules.precision import widened
from ..rules.shape_rules import along_axis
from .softmax import MOST


def _power(x: float, most: float) -> float:
    return math.exp(x - most)


def _logarithm(total: float) -> float:
    return math.log(total)


def log_share(x: float, most: float, log: float) -> float:
    """The logarithm of an element's share of its row."""
    return x - most - log


LOG_SUM = (MOST, Fold("log", _power, add, _logarithm))
"""The folds that `log_share` takes."""


def _rows(step: BaseStep) -> Described:
    x = step.inputs[0]
    assert x is not None
    return Rows(x.shape, [step.attributes["axis"]], {"x": x}, LOG_SUM, [Output(log_share, step.output())])


@op(
    "LogSoftmax",
    since=13,
    types="float",
    traits=(Trait.SUMS, Trait.IMPRECISE_IN_F16),
    infer=along_axis,
    rows=_rows,
    examples=[
        case("f32[2,3,4]"),
        case("f32[2,3,4]", axis=0),
        case(np.array([[1e4, 0, -1e4]], np.float32)),
        case("f32[0,3]", axis=1),
    ],
)
@widened
def log_softmax(x: np.ndarray, *, axis: int = -1) -> np.ndarray:
    """Shape of `x`; exponentials sum to one along `axis`."""
    moved = x - np.max(x, axis=axis, keepdims=True, initial=-np.inf)
    with np.errstate(divide="ignore"):
        return moved - np.log(np.sum(np.exp(moved), axis=axis, keepdims=True))


@upgrade(log_softmax, below=13)
def over_flattened(node: Node, build: Builder) -> None:
    """Before opset 13 the input was taken as a matrix whose rows start at `axis` (1 where it is not given)."""
    axis = node.attributes.pop("axis", 1)
    (x,) = node.inputs
    rows = build.add(log_softmax, [build.add("Flatten", [x], {"axis": axis})], {"axis": -1})
    build.add("Reshape", [rows, build.add("Shape", [x])], outputs=node.outputs)
