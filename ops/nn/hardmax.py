"""Hardmax: 1 where an axis has its first largest element, else 0."""

from __future__ import annotations

import numpy as np

from ...runtime.ir.builder import Builder
from ...runtime.ir.graph import Node
from ...runtime.ir.op import case, op, upgrade
from ...runtime.plan.kernel_api import BaseStep
from ...runtime.plan.rows import Described, Fold, Output, Rows, element, larger, smaller
from ..reduce.arg_min_max import INT64, first_place
from ..rules.precision import widened
from ..rules.shape_rules import along_axis


def _is_first(index: int, first: int) -> int:
    return 1 if index == first else 0


def _rows(step: BaseStep) -> Described:
    x = step.inputs[0]
    assert x is not None
    folds = [Fold("best", element, larger), Fold("first", first_place, smaller, dtype=INT64)]
    return Rows(x.shape, [step.attributes["axis"]], {"x": x}, folds, [Output(_is_first, step.output())])


@op(
    "Hardmax",
    since=13,
    types="float",
    infer=along_axis,
    rows=_rows,
    examples=[
        case("f32[2,3,4]"),
        case("f32[2,3,4]", axis=0),
        case(np.array([[3, 3, 1]], np.float32)),
        case("f32[0,3]", axis=1),
    ],
)
@widened
def hardmax(x: np.ndarray, *, axis: int = -1) -> np.ndarray:
    """Shape of `x`; sums to one along `axis`."""
    found = np.zeros_like(x)
    if x.size:
        np.put_along_axis(found, np.expand_dims(np.argmax(x, axis=axis), axis), 1, axis=axis)
    return found


@upgrade(hardmax, below=13)
def over_flattened(node: Node, build: Builder) -> None:
    """Before opset 13 the input was taken as a matrix whose rows start at `axis` (1 where it is not given)."""
    axis = node.attributes.pop("axis", 1)
    (x,) = node.inputs
    rows = build.add(hardmax, [build.add("Flatten", [x], {"axis": axis})], {"axis": -1})
    build.add("Reshape", [rows, build.add("Shape", [x])], outputs=node.outputs)
