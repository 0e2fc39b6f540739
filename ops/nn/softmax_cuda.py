"""Softmax, LogSoftmax and Hardmax on the device."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ...runtime.cuda.axes import permuted, split
from ...runtime.cuda.element import computing
from ...runtime.cuda.fold import Fold, Result, add, folded, larger, smaller
from ...runtime.cuda.place import Planned, Step, cuda
from ...runtime.op import Op
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
    return folded(kept, along, {"x": permuted(x, x.shape, order)}, folds, [target], computing(x.dtype))
