"""Einsum on the device: a tiled product where the indices allow it, otherwise a sum over the contracted indices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...runtime.cuda.element.element import compute_dtype
from ...runtime.cuda.kernel.operand import Operand
from ...runtime.cuda.kernel.reduce import Result, reduce_rows
from ...runtime.cuda.matmul.tiled import Axes, Contraction, product
from ...runtime.cuda.plan.kernel_api import Planned, Step, cuda
from ...runtime.plan.kernel_api import Buffer
from ...runtime.plan.rows import Fold, add
from .einsum import einsum, parsed


def _one(a: float) -> float:
    return a


def _two(a: float, b: float) -> float:
    return a * b


def _three(a: float, b: float, c: float) -> float:
    return a * b * c


def _four(a: float, b: float, c: float, d: float) -> float:
    return a * b * c * d


def _total(total: float) -> float:
    return total


TERMS: tuple[Callable[..., Any], ...] = (_one, _two, _three, _four)


def _indices(term: str, rank: int, dots: int) -> list[str]:
    """Indices of a term; the axes that the dots stand for are called 0, 1 ... from the last one on."""
    before, found, behind = term.partition("...")
    count = rank - len(before) - len(behind) if found else 0
    return [*before, *(str(dots - count + axis) for axis in range(count)), *behind]


def _strides(buffer: Buffer, own: list[str], order: list[str]) -> list[int]:
    """Elements along each index of a box; one that occurs twice in a term goes along both axes."""
    found = dict.fromkeys(order, 0)
    for name, length, stride in zip(own, buffer.shape, buffer.strides, strict=True):
        if name in found:
            found[name] += 0 if length == 1 else stride
    return [found[name] for name in order]


@cuda(einsum)
def einsum_on_device(step: Step) -> Planned:
    """Plan up to four operands."""
    inputs = [step.input(index) for index in range(len(step.inputs))]
    y = step.output()
    terms, output = parsed(step.attributes["equation"])
    if len(inputs) > len(TERMS) or len(terms) != len(inputs):
        return "it has more than four operands"
    dots = max(
        len(item.shape) - len(term.replace("...", "")) if "..." in term else 0
        for term, item in zip(terms, inputs, strict=True)
    )
    own = [_indices(term, len(item.shape), dots) for term, item in zip(terms, inputs, strict=True)]
    lengths: dict[str, int] = {}
    for names, item in zip(own, inputs, strict=True):
        for name, length in zip(names, item.shape, strict=True):
            lengths[name] = max(length, lengths.get(name, 1))
    kept = _indices(output, len(y.shape), dots)
    along = [name for name in lengths if name not in kept]
    if len(inputs) == 2 and all(name in own[0] and name in own[1] for name in along):
        both = [name for name in kept if name in own[0] and name in own[1]]
        left, right = ([name for name in kept if name not in other] for other in (own[1], own[0]))

        def axes(names: list[str], a: bool, b: bool, c: bool) -> Axes:
            wanted = zip((a, b, c), (*inputs, y), (*own, kept), strict=True)
            return Axes(
                [lengths[name] for name in names],
                *(_strides(item, found, names) if take else None for take, item, found in wanted),
            )

        return product(
            inputs[0],
            inputs[1],
            y,
            Contraction(
                stack=axes(both, True, True, True),
                rows=axes(left, True, False, True),
                columns=axes(right, False, True, True),
                depth=axes(along, True, True, False),
            ),
        )
    order = [*kept, *along]
    operands = {
        name: Operand(item, tuple(_strides(item, names, order)))
        for name, item, names in zip("abcd", inputs, own, strict=False)
    }
    result = Result(_total, Operand(y, (*y.strides, *[0] * len(along))), per_row=True)
    fold = Fold("total", TERMS[len(inputs) - 1], add)
    return reduce_rows(
        [lengths[name] for name in kept],
        [lengths[name] for name in along],
        operands,
        [fold],
        [result],
        compute_dtype(y.dtype),
    )
