"""TopK on the device: elements are written to the position of their rank."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...runtime.cuda.element.element import compute_dtype
from ...runtime.cuda.kernel.axes import split
from ...runtime.cuda.kernel.elementwise import copy_launch
from ...runtime.cuda.kernel.kernel import Launch
from ...runtime.cuda.kernel.operand import Lookup, Operand
from ...runtime.cuda.kernel.reduce import Result, reduce_rows
from ...runtime.cuda.plan.kernel_api import Planned, Step, cuda
from ...runtime.plan.kernel_api import Chain
from ...runtime.plan.rows import Fold, add
from .top_k import top_k

INT64 = np.dtype(np.int64)


def _better(x: Any, other: Any, index: int, place: int) -> int:
    """Whether another element comes before one: NaN counts as the largest, equal ones keep their order."""
    if x != x:
        return 1 if other != other and index < place else 0
    return 1 if other > x or other != other or (other == x and index < place) else 0


def _worse(x: Any, other: Any, index: int, place: int) -> int:
    if other != other:
        return 1 if x != x and index < place else 0
    return 1 if x != x or other < x or (other == x and index < place) else 0


def _rank(rank: int) -> int:
    return rank


@cuda(top_k)
def top_k_on_device(step: Step) -> Planned:
    """Rank each element by how many precede it; those with a rank below k are written at that index."""
    x, k = step.input(0), step.constant(1)
    if k is None:
        return "k is not a constant"
    order, apart, along = split(x.shape, [step.attributes["axis"]])
    count, kept = along[0], int(k.reshape(-1)[0])
    strides = [x.strides[axis] for axis in order]
    ranks = step.temporary(INT64, (*apart, count))
    one = Operand(x, (*strides, 0))
    other = Operand(x, (*strides[:-1], 0, strides[-1]))
    place = Operand(step.constant_buffer(np.arange(count)), (*[0] * len(apart), 1, 0))
    fold = Fold("rank", _better if step.attributes["largest"] else _worse, add, dtype=INT64)
    result = Result(_rank, Operand(ranks, (*ranks.strides, 0)), per_row=True)
    operands = {"x": one, "other": other, "place": place}
    launches: list[Launch | Chain] = [
        reduce_rows([*apart, count], [count], operands, [fold], [result], compute_dtype(x.dtype))
    ]
    lengths = (*apart, count)
    for index in range(2):
        if step.is_used(index):
            y = step.output(index)
            steps = [y.strides[axis] for axis in order]
            target = Operand(y, (*steps[:-1], 0), lookups=(Lookup(ranks, ranks.strides, steps[-1], kept, wraps=False),))
            source = (
                Operand(x, tuple(strides))
                if index == 0
                else Operand(step.constant_buffer(np.arange(count)), (*[0] * len(apart), 1))
            )
            launches.append(copy_launch(lengths, source, target))
    return launches
