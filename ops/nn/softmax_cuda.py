"""Softmax, LogSoftmax and Hardmax on the device."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ...runtime.cuda.element.element import compute_dtype
from ...runtime.cuda.kernel.axes import permuted, split
from ...runtime.cuda.kernel.reduce import Fold, Result, add, larger, reduce_rows, smaller
from ...runtime.cuda.plan.kernel_api import Planned, Step, cuda
from ...runtime.ir.op import Op
from .hardmax import hardmax
from .log_softmax import log_softmax
from .softmax import softmax

INT64 = np.dtype(np.int64)


def _element(x: float) -> float:
    return x


def _power(x: float, most: float) -> float:
    return math.exp(x - most)


def _share(x: float, most: float, total: float) -> float:
    return math.exp(x - most) / total


def _logarithm(x: float, most: float, total: float) -> float:
    return x - most - math.log(total)


def _place_of_most(x: float, most: float, index: int, count: int) -> int:
    return index if x == most or (x != x and most != most) else count


def _is_first(index: int, first: int) -> int:
    return 1 if index == first else 0


MOST = Fold("most", _element, larger)
SUM = Fold("total", _power, add)
FIRST = Fold("first", _place_of_most, smaller, dtype=INT64)
FORMS: dict[Op, tuple[tuple[Fold, ...], Callable[..., Any]]] = {
    softmax: ((MOST, SUM), _share),
    log_softmax: ((MOST, SUM), _logarithm),
    hardmax: ((MOST, FIRST), _is_first),
}


@cuda(softmax, log_softmax, hardmax)
def softmax_on_device(step: Step) -> Planned:
    """Numbers of each row, then its elements."""
    x, y = step.input(0), step.output()
    order, kept, along = split(x.shape, [step.attributes["axis"]])
    folds, form = FORMS[step.node.op]
    target = Result(form, permuted(y, x.shape, order))
    return reduce_rows(kept, along, {"x": permuted(x, x.shape, order)}, folds, [target], compute_dtype(x.dtype))
