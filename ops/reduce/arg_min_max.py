"""ArgMax and ArgMin: index of the largest and smallest element along an axis."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from ...runtime.base.units import counted
from ...runtime.ir.graph import Dim
from ...runtime.ir.op import case, op
from ...runtime.ir.shape_inference import Inference
from ...runtime.plan.kernel_api import BaseStep
from ...runtime.plan.rows import Described, Fold, Output, Rows, element, found, larger, smaller
from ...runtime.tensor.dtype import I64
from ..rules.precision import widened
from ..rules.shape_rules import model_error

TIES = np.array([[3, 1, 3], [0, 5, 5], [-1, -1, -2]], np.float32)
EXAMPLES = [
    case("f32[2,3,4]"),
    case("f32[2,3,4]", axis=-2, keepdims=0),
    case(TIES, axis=1),
    case(TIES, axis=1, select_last_index=1),
    case("i32[2,3]", axis=1),
    case("f32[0,3]", axis=1),
]


def indexed(node: Inference) -> None:
    """i64 with the axis taken out, or 1."""
    shape, axis = node.shape(0), node.attributes["axis"]
    if shape is None:
        node.set(0, I64, None)
        return
    if not -len(shape) <= axis < len(shape):
        node.fail(f"axis {axis} does not exist in {counted(len(shape), 'dim')}")
    taken = axis % len(shape)
    left: list[Dim] = [
        1 if index == taken else dim for index, dim in enumerate(shape) if node.attributes["keepdims"] or index != taken
    ]
    node.set(0, I64, left)


def _found(
    name: str, search: Callable[..., np.ndarray], x: np.ndarray, axis: int, keepdims: int, select_last_index: int
) -> np.ndarray:
    if not -x.ndim <= axis < x.ndim or not x.shape[axis]:
        raise model_error(f"{name} along an axis without elements", "E-OP-AXIS", expected="a length", found=x.shape)
    found = x.shape[axis] - 1 - search(np.flip(x, axis), axis=axis) if select_last_index else search(x, axis=axis)
    return np.asarray(np.expand_dims(found, axis) if keepdims else found).astype(np.int64, copy=False)


INT64 = np.dtype(np.int64)


def first_place(x: float, best: float, index: int, count: int) -> int:
    """The index of an element that is the best one, or NaN as that is; `count` for others."""
    return index if x == best or (x != x and best != best) else count


def _last_place(x: float, best: float, index: int) -> int:
    return index if x == best or (x != x and best != best) else -1


def _rows(better: Callable[..., Any], step: BaseStep) -> Described:
    """The extreme of a row, then its first or last position."""
    x = step.inputs[0]
    assert x is not None
    last = step.attributes["select_last_index"]
    place = (
        Fold("found", _last_place, larger, dtype=INT64) if last else Fold("found", first_place, smaller, dtype=INT64)
    )
    folds = [Fold("best", element, better), place]
    return Rows(x.shape, [step.attributes["axis"]], {"x": x}, folds, [Output(found, step.output(), per_row=True)])


@op("ArgMax", since=13, types="number", infer=indexed, rows=functools.partial(_rows, larger), examples=EXAMPLES)
@widened
def arg_max(x: np.ndarray, *, axis: int = 0, keepdims: int = 1, select_last_index: int = 0) -> np.ndarray:
    """i64 index of the first (or last) largest element."""
    return _found("ArgMax", np.argmax, x, axis, keepdims, select_last_index)


@op("ArgMin", since=13, types="number", infer=indexed, rows=functools.partial(_rows, smaller), examples=EXAMPLES)
@widened
def arg_min(x: np.ndarray, *, axis: int = 0, keepdims: int = 1, select_last_index: int = 0) -> np.ndarray:
    """i64 index of the first (or last) smallest element."""
    return _found("ArgMin", np.argmin, x, axis, keepdims, select_last_index)
