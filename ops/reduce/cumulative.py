"""Cumulative sums and products along an axis: CumSum, CumProd."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from ...runtime.base.units import counted
from ...runtime.ir.op import Trait, case, op
from ...runtime.ir.shape_inference import Inference
from ...runtime.plan.kernel_api import BaseStep
from ...runtime.plan.rows import Described, Fold, Output, Rows, Scan, add, element, found, times
from ..elementwise.declare import quiet
from ..rules.precision import widened
from ..rules.shape_rules import model_error, same_as_input


def _accumulated(
    name: str,
    function: Callable[..., np.ndarray],
    start: int,
    x: np.ndarray,
    axis: np.ndarray,
    exclusive: int,
    reverse: int,
) -> np.ndarray:
    along = int(axis.reshape(-1)[0]) if axis.size == 1 else None
    if along is None or not -x.ndim <= along < x.ndim:
        raise model_error(
            f"{name} has an axis outside of its input", "E-OP-AXIS", expected=f"below {x.ndim}", found=axis.tolist()
        )
    moved = np.moveaxis(x, along, 0)
    if reverse:
        moved = moved[::-1]
    if exclusive and len(moved):
        moved = np.concatenate([np.full_like(moved[:1], start), moved[:-1]])
    found = function(moved, axis=0, dtype=x.dtype)
    return np.ascontiguousarray(np.moveaxis(found[::-1] if reverse else found, 0, along))


def along_input(node: Inference) -> None:
    """As the first input, which has the axis that the second one gives."""
    shape, axis = node.shape(0), node.data(1)
    if shape is not None and axis and isinstance(axis[0], int) and not -len(shape) <= axis[0] < len(shape):
        node.fail(f"axis {axis[0]} does not exist in {counted(len(shape), 'dim')}")
    same_as_input(node)


def _rows(join: Callable[..., Any], step: BaseStep) -> Described:
    """Running totals along an axis that is a constant."""
    x, axis = step.inputs[0], step.constant(1)
    assert x is not None
    if axis is None or axis.size != 1:
        return "its axis is not a constant"
    scan = Scan(bool(step.attributes["reverse"]), bool(step.attributes["exclusive"]))
    folds = [Fold("found", element, join)]
    return Rows(x.shape, [int(axis.reshape(-1)[0])], {"x": x}, folds, [Output(found, step.output())], scan=scan)


AXIS = np.array(1)


@op(
    "CumSum",
    since=14,
    types="float+long index",
    traits=(Trait.MIXES_POSITIONS, Trait.KEEPS_F32, Trait.SUMS),
    infer=along_input,
    rows=functools.partial(_rows, add),
    examples=[
        case("f32[2,3]", AXIS),
        case("f32[2,3]", np.array([-2]), exclusive=1),
        case("i32[2,3]", AXIS, reverse=1),
        case("f32[2,3,4]", AXIS, exclusive=1, reverse=1),
        case("f32[2,0]", AXIS, exclusive=1),
    ],
)
@quiet
@widened
def cum_sum(x: np.ndarray, axis: np.ndarray, *, exclusive: int = 0, reverse: int = 0) -> np.ndarray:
    """Each element is the sum of those up to it, itself left out for `exclusive`, from the end for `reverse`."""
    return _accumulated("CumSum", np.cumsum, 0, x, axis, exclusive, reverse)


@op(
    "CumProd",
    since=26,
    types="float+long index",
    infer=along_input,
    rows=functools.partial(_rows, times),
    examples=[
        case("f32[2,3]", AXIS),
        case("f32[2,3]", np.array(-2), exclusive=1),
        case("i32[2,3]", AXIS, reverse=1),
        case("f32[2,3,4]", AXIS, exclusive=1, reverse=1),
        case("f32[2,0]", AXIS, exclusive=1),
    ],
)
@quiet
@widened
def cum_prod(x: np.ndarray, axis: np.ndarray, *, exclusive: int = 0, reverse: int = 0) -> np.ndarray:
    """Each element is the product of those up to it, itself left out for `exclusive`, from the end for `reverse`."""
    return _accumulated("CumProd", np.cumprod, 1, x, axis, exclusive, reverse)
