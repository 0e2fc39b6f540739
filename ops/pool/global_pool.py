"""Global pooling: one value per channel and image."""

from __future__ import annotations

import functools
import math

import numpy as np

from ...runtime.ir.op import case, op, upgrade
from ...runtime.ir.shape_inference import Inference
from ...runtime.plan.kernel_api import BaseStep
from ...runtime.plan.rows import Described, Fold, Output, Rows, add, element, found, larger, magnitude, square
from ..elementwise.declare import quiet
from ..reduce.reduce import mean_of, root_of
from ..reduce.reduction_axes import mean_over
from ..rules.p_norm import powers, root
from ..rules.precision import widened
from ..rules.shape_rules import shape_error
from .pool import lowest, whole_power

CASES = [case("f32[2,3,4,5]"), case("f32[1,2,7]"), case("f32[0,2,3,2,2]")]


def _infer(node: Inference) -> None:
    x = node.shape(0)
    if x is not None and len(x) < 2:
        node.fail(f"the input has shape {x}, a batch axis and a channel axis are needed")
    if node.attributes.get("p") == 0:
        node.fail("there is no norm for p = 0")
    node.set(0, node.dtype(0), None if x is None else (*x[:2], *(1,) * (len(x) - 2)))


def _powered(x: float, p: float) -> float:
    return math.pow(abs(x), p)


def _rooted(total: float, p: float) -> float:
    return math.pow(total, 1 / p)


def norm_of(p: float) -> Fold:
    """The fold of a p-norm, whose power is a number `p`."""
    return (
        Fold("found", magnitude, add)
        if p == 1
        else Fold("found", square, add, root_of)
        if p == 2
        else Fold("found", _powered, add, _rooted)
    )


def _rows(fold: Fold | None, step: BaseStep) -> Described:
    """The spatial axes of a channel are a row; a p-norm if `fold` is None."""
    x, p = step.inputs[0], step.attributes.get("p", 1)
    assert x is not None
    output = Output(found, step.output(), per_row=True)
    return Rows(x.shape, range(2, len(x.shape)), {"x": x}, [fold or norm_of(p)], [output], {"p": p})


_mean_rows = functools.partial(_rows, Fold("found", element, add, mean_of))
_largest_rows = functools.partial(_rows, Fold("found", element, larger))
_norm_rows = functools.partial(_rows, None)


def spatial(x: np.ndarray, what: str) -> tuple[int, ...]:
    """The axes after the batch and the channels."""
    if x.ndim < 2:
        raise shape_error(what, f"an input of shape {x.shape} has no channels")
    return tuple(range(2, x.ndim))


@op("GlobalAveragePool", since=22, types="float", infer=_infer, rows=_mean_rows, examples=CASES)
@quiet
@widened
def global_average_pool(x: np.ndarray) -> np.ndarray:
    """From [n, channels, spatial...] to [n, channels, 1...]."""
    return mean_over(x, spatial(x, "GlobalAveragePool"))


@op("GlobalMaxPool", since=22, types="float", infer=_infer, rows=_largest_rows, examples=CASES)
@quiet
@widened
def global_max_pool(x: np.ndarray) -> np.ndarray:
    """From [n, channels, spatial...] to [n, channels, 1...]."""
    made: np.ndarray = np.max(x, spatial(x, "GlobalMaxPool"), keepdims=True, initial=lowest(x.dtype))
    return made


@op(
    "GlobalLpPool",
    since=22,
    types="float",
    infer=_infer,
    rows=_norm_rows,
    examples=[*CASES, case("f32[2,3,4,5]", p=1), case("f32[2,3,4,5]", p=3)],
)
@quiet
@widened
def global_lp_pool(x: np.ndarray, *, p: int = 2) -> np.ndarray:
    """The p-norm of each channel, from [n, channels, spatial...] to [n, channels, 1...]."""
    return root(np.sum(powers(x, p), spatial(x, "GlobalLpPool"), keepdims=True), p)


upgrade(global_lp_pool, below=2)(whole_power)
