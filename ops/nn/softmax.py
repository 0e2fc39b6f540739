"""Softmax: exp(x - max) / sum along an axis."""

from __future__ import annotations

import math

import numpy as np

from ...runtime.ir.builder import Builder
from ...runtime.ir.graph import Node
from ...runtime.ir.op import Trait, case, op, upgrade
from ...runtime.plan.kernel_api import BaseStep
from ...runtime.plan.rows import Described, Fold, Output, Rows, add, element, larger, stored
from ..rules.precision import is_narrow
from ..rules.shape_rules import along_axis


def _power(x: float, most: float) -> float:
    return stored(math.exp(stored(x - most)))


def _finite(total: float) -> float:
    return stored(total) if stored(total) - stored(total) == 0 else total


def _share(power: float, total: float) -> float:
    return power / total


def _reciprocal(total: float) -> float:
    return 1 / total


def _scaled(power: float, total: float) -> float:
    return power * total


MOST = Fold("most", element, larger)


def _rows(step: BaseStep) -> Described:
    x = step.inputs[0]
    assert x is not None
    # Narrow dtypes round the sum and divide, as the function body does.
    finish, share = (_finite, _share) if x.dtype.itemsize == 2 else (_reciprocal, _scaled)
    folds = [MOST, Fold("total", _power, add, finish, element="power")]
    return Rows(x.shape, [step.attributes["axis"]], {"x": x}, folds, [Output(share, step.output())])


@op(
    "Softmax",
    since=13,
    types="float",
    traits=(Trait.NON_NEGATIVE, Trait.MIXES_POSITIONS, Trait.SUMS, Trait.IMPRECISE_IN_F16),
    infer=along_axis,
    rows=_rows,
    examples=[case("f32[2,3,4]"), case("f32[2,3,4]", axis=0), case("f32[0,3]", axis=1)],
)
def softmax(x: np.ndarray, *, axis: int = -1) -> np.ndarray:
    """Shape of `x`; sums to one along `axis`.

    Steps are rounded to a narrow dtype as the function body of the standard does, a sum too large for it aside.
    """

    def rounded(step: np.ndarray) -> np.ndarray:
        return step.astype(x.dtype).astype(np.float32) if is_narrow(x) else step

    wide = x.astype(np.float32) if is_narrow(x) else x
    powers = rounded(np.exp(rounded(wide - np.max(wide, axis=axis, keepdims=True, initial=-np.inf))))
    total = np.sum(powers, axis=axis, keepdims=True)
    with np.errstate(over="ignore"):
        sums = rounded(total)
    made: np.ndarray = (powers / np.where(np.isfinite(sums), sums, total)).astype(x.dtype, copy=False)
    return made


@upgrade(softmax, below=13)
def over_flattened(node: Node, build: Builder) -> None:
    """Before opset 13 the input was taken as a matrix whose rows start at `axis` (1 where it is not given)."""
    axis = node.attributes.pop("axis", 1)
    (x,) = node.inputs
    flat = build.add("Flatten", [x], {"axis": axis})
    rows = build.add(softmax, [flat], {"axis": -1})
    build.add("Reshape", [rows, build.add("Shape", [x])], outputs=node.outputs)
