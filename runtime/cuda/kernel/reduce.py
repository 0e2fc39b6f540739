"""Row reductions: one or more folds per row and elementwise results from them, for reductions, softmax, norms and
pooling.

A row is the set of elements at one index of the outer axes. Functions take parameters by name: an operand's element,
a fold of the row, ``index`` in the row, ``count`` of its elements, or a scalar parameter. A thread reduces a short
row, a block a long one; partial results are combined in a fixed order.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ...base.dataclass import dataclass
from ..device.device import SIMULATED
from ..element.element import key_of
from . import source_module
from .elementwise import BLOCKS, blocks_for
from .kernel import Launch
from .operand import Box, Operand, Writer

THREADS = 4 if SIMULATED else 256
MAX_THREAD_ROW = 6 if SIMULATED else 64
"""Elements of the longest row that one thread reduces."""
MIN_BUSY_ROWS = 1 << 14
"""Rows from which one thread per row occupies the device, for rows of up to `MAX_THREAD_ROW` squared elements."""


def add(one: float, other: float) -> float:
    """Sum."""
    return one + other


def times(one: float, other: float) -> float:
    """Product."""
    return one * other


def larger(one: float, other: float) -> float:
    """Maximum, which propagates NaN."""
    return one if one > other or one != one else other


def smaller(one: float, other: float) -> float:
    """Minimum, which propagates NaN."""
    return one if one < other or one != one else other


STARTS: dict[Callable[..., Any], tuple[str, str]] = {
    add: ("0", "0"),
    times: ("1", "1"),
    larger: ("-np.inf", "np.iinfo(np.{0}).min"),
    smaller: ("np.inf", "np.iinfo(np.{0}).max"),
}
"""Initial values of a fold, for floats and integers."""


@dataclass(frozen=True)
class Fold:
    """A reduction of a row to one value.

    Attributes:
        value: what is folded, from the elements and the numbers before.
        join: one of the functions in `STARTS`.
        finish: the number, from ``total`` and others; the total itself where None.
        dtype: of the number, that of the computation where None.
    """

    name: str
    value: Callable[..., Any]
    join: Callable[..., Any]
    finish: Callable[..., Any] | None = None
    dtype: np.dtype[Any] | None = None


@dataclass(frozen=True)
class Result:
    """An output with an element per element of a row, or one per row, whose operand has zero strides along it."""

    value: Callable[..., Any]
    operand: Operand
    per_row: bool = False


class _Rows:
    def __init__(
        self,
        kept: Sequence[int],
        reduce_rows: Sequence[int],
        operands: Mapping[str, Operand],
        folds: Sequence[Fold],
        results: Sequence[Result],
        numbers: Mapping[str, float],
        compute: np.dtype[Any],
    ) -> None:
        self.rows, self.count = math.prod(kept), math.prod(reduce_rows)
        self.names = list(operands)
        self.folds, self.results, self.compute = folds, results, compute
        self.writer = Writer()
        self.writer.parameter("rows", self.rows)
        self.writer.parameter("count", self.count)
        self.box = Box(
            self.writer, [*kept, *reduce_rows], [*operands.values(), *(result.operand for result in results)], len(kept)
        )
        self.numbers = {
            name: f"to_{compute.name}({self.writer.parameter(f'number_{name}', float(value))})"
            for name, value in numbers.items()
        }
        self.head: list[str] = []
        self.alone = self.count <= MAX_THREAD_ROW or (
            self.rows >= MIN_BUSY_ROWS and self.count <= MAX_THREAD_ROW * MAX_THREAD_ROW
        )

    def call(
        self, function: Callable[..., Any], extra: Mapping[str, str] | None = None, dtype: np.dtype[Any] | None = None
    ) -> str:
        """Code that calls a function."""
        name = f"f{len(self.head)}"
        self.head.append(f"{name} = scalar({key_of(function)!r}, {(dtype or self.compute).name!r})")
        known = {
            **{fold.name: f"s_{fold.name}" for fold in self.folds},
            "count": "count",
            "index": "j",
            **self.numbers,
            **(extra or {}),
        }
        known |= {item: f"v{place}" for place, item in enumerate(self.names) if item not in (extra or {})}
        return f"{name}({', '.join(known[item] for item in inspect.signature(function).parameters)})"

    def wanted(self, functions: Sequence[Callable[..., Any]]) -> list[int]:
        """Operands that functions take."""
        names = {name for function in functions for name in inspect.signature(function).parameters}
        return [place for place, item in enumerate(self.names) if item in names]

    def loop(self, wanted: Sequence[int], more: Sequence[int] = ()) -> None:
        """Write the head of a loop over the elements of a row."""
        self.writer.add(
            2,
            "for j in range(count):"
            if self.alone
            else f"for j in range(np.int64(cuda.threadIdx.x), count, {THREADS}):",
        )
        self.box.decode(3, "r", "j")
        self.box.place(3, "r", [*wanted, *more])
        for place in wanted:
            self.box.load(3, place, "kr", f"v{place}")

    def fold(self, fold: Fold) -> None:
        """Write one fold of the row."""
        dtype = fold.dtype or self.compute
        floats, integers = STARTS[fold.join]
        start = f"np.{dtype.name}({floats if dtype.kind == 'f' else integers.format(dtype.name)})"
        self.head.append(f"start_{fold.name} = {start}")
        join = f"f{len(self.head)}"
        self.head.append(f"{join} = scalar({key_of(fold.join)!r}, {dtype.name!r})")
        total = f"s_{fold.name}"
        self.writer.add(2, f"{total} = start_{fold.name}")
        self.loop(self.wanted([fold.value]))
        self.writer.add(3, f"{total} = to_{dtype.name}({join}({total}, to_{dtype.name}({self.call(fold.value)})))")
        if not self.alone:
            self.writer.add(
                2,
                f"shared_{dtype.name}[cuda.threadIdx.x] = {total}",
                "cuda.syncthreads()",
                f"width = {THREADS // 2}",
                "while width > 0:",
                "    if cuda.threadIdx.x < width:",
                f"        shared_{dtype.name}[cuda.threadIdx.x] = "
                f"{join}(shared_{dtype.name}[cuda.threadIdx.x], shared_{dtype.name}[cuda.threadIdx.x + width])",
                "    cuda.syncthreads()",
                "    width //= 2",
                f"{total} = shared_{dtype.name}[0]",
                "cuda.syncthreads()",
            )
        if fold.finish is not None:
            self.writer.add(2, f"{total} = to_{dtype.name}({self.call(fold.finish, {'total': total}, dtype)})")

    def made(self) -> Launch:
        """Return the launch."""
        first = len(self.names)
        if self.alone:
            self.writer.add(1, "for i in range(np.int64(cuda.grid(1)), rows, cuda.gridsize(1)):")
        else:
            for name in sorted({(fold.dtype or self.compute).name for fold in self.folds}):
                self.writer.add(1, f"shared_{name} = cuda.shared.array({THREADS}, np.{name})")
            self.writer.add(1, "for i in range(np.int64(cuda.blockIdx.x), rows, cuda.gridDim.x):")
        self.box.decode(2, "k", "i")
        self.box.place(2, "k")
        for fold in self.folds:
            self.fold(fold)
        each = [place for place, result in enumerate(self.results) if not result.per_row]
        if each:
            self.loop(self.wanted([self.results[place].value for place in each]), [first + place for place in each])
            for place in each:
                self.box.store(3, first + place, "kr", self.call(self.results[place].value))
        rows = [place for place, result in enumerate(self.results) if result.per_row]
        level = 2 if self.alone or not rows else 3
        if level == 3:
            self.writer.add(2, "if cuda.threadIdx.x == 0:")
        for place in rows:
            self.box.store(level, first + place, "k", self.call(self.results[place].value))
        title = f"fold of {' '.join(key_of(fold.value).partition(' ')[0] for fold in self.folds)}"
        kernel = source_module.compile_source(title, "\n".join([*self.head, self.writer.text()]), (THREADS,))
        return Launch(
            kernel, self.writer.values, blocks_for(self.rows, THREADS) if self.alone else max(1, min(BLOCKS, self.rows))
        )


def reduce_rows(
    kept: Sequence[int],
    along: Sequence[int],
    operands: Mapping[str, Operand],
    folds: Sequence[Fold],
    results: Sequence[Result],
    compute: np.dtype[Any],
    **numbers: float,
) -> Launch:
    """Reduce the axes `along` of a box with outer axes `kept`, in dtype `compute`."""
    return _Rows(kept, along, operands, folds, results, numbers, compute).made()
