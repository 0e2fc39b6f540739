"""LpNormalization: elements divided by the p-norm of their axis; LRN: by the squares of neighbouring channels."""

from __future__ import annotations

import numpy as np

from ...runtime.ir.op import Trait, case, op
from ...runtime.ir.shape_inference import Inference
from ...runtime.plan.kernel_api import BaseStep
from ...runtime.plan.rows import Described, Fold, Output, Rows, add, magnitude, square
from ..elementwise.declare import quiet
from ..reduce.reduce import root_of
from ..rules.p_norm import powers, root
from ..rules.precision import widened
from ..rules.shape_rules import same_as_input, shape_error
from ..rules.sliding_window import Axis, fold
from .layer_norm import first_axis


def _infer(node: Inference) -> None:
    x = node.shape(0)
    if x is not None:
        first_axis(node.attributes["axis"], len(x), "LpNormalization")
    same_as_input(node)


def _over(x: float, norm: float) -> float:
    return x / norm if norm != 0 else x * 0


def _rows(step: BaseStep) -> Described:
    x, p = step.inputs[0], step.attributes["p"]
    assert x is not None
    if p not in (1, 2):
        return f"there is no norm of order {p}"
    fold = Fold("norm", magnitude, add) if p == 1 else Fold("norm", square, add, root_of)
    return Rows(x.shape, [step.attributes["axis"]], {"x": x}, [fold], [Output(_over, step.output())])


@op(
    "LpNormalization",
    since=22,
    types="float",
    traits=(Trait.IMPRECISE_IN_F16,),
    infer=_infer,
    rows=_rows,
    examples=[
        case("f32[2,3,4]"),
        case("f32[2,3,4]", axis=1, p=1),
        case(np.zeros((2, 3), np.float32), axis=0),
        case("f32[2,0,4]", axis=1),
    ],
)
@quiet
@widened
def lp_normalization(x: np.ndarray, *, axis: int = -1, p: int = 2) -> np.ndarray:
    """Shape of `x`: over the p-norm along `axis`; zero where that is zero."""
    first_axis(axis, x.ndim, "LpNormalization")
    norm = root(np.sum(powers(x, p), axis, keepdims=True), p)
    return np.divide(x, norm, out=np.zeros_like(x), where=norm != 0)


@op(
    "LRN",
    since=13,
    types="float",
    infer=same_as_input,
    examples=[
        case("f32[2,7,3,4]", size=3),
        case("f32[5,5,2,3]", size=4, alpha=0.5, beta=0.6, bias=2.0),
        case("f32[0,5,2,2]", size=3),
    ],
)
@quiet
@widened
def lrn(x: np.ndarray, *, size: int, alpha: float = 1e-4, beta: float = 0.75, bias: float = 1.0) -> np.ndarray:
    """Shape of `x`, [n, channels, ...]: over a power of the mean square of `size` channels (Krizhevsky et al. 2012,
    section 3.3)."""
    if x.ndim < 2 or size < 1:
        raise shape_error("LRN", f"an input of shape {x.shape} and {size} channels")
    channels = x.shape[1]
    near = Axis(channels, size, 1, 1, (size - 1) // 2, size // 2, channels)
    total = fold(np.add, np.square(x), [near], 0, first=1)
    total *= x.dtype.type(alpha / size)
    total += x.dtype.type(bias)
    made: np.ndarray = x / total ** x.dtype.type(beta)
    return made
