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
from dataclasses import replace
from typing import Any

import numpy as np

from ...base.dataclass import dataclass
from ...plan.rows import Fold, Rows, Scan, start
from ..device.device import SIMULATED
from ..element.element import compute_dtype, key_of
from . import source_module
from .axes import permuted, split
from .elementwise import BLOCKS, blocks_for
from .kernel import Launch
from .operand import Box, Operand, Writer

THREADS = 4 if SIMULATED else 256
MAX_THREAD_ROW = 6 if SIMULATED else 64
"""Elements of the longest row that one thread reduces."""
MIN_BUSY_ROWS = 1 << 14
"""Rows from which one thread per row occupies the device, for rows of up to `MAX_THREAD_ROW` squared elements."""


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
        scan: Scan | None = None,
    ) -> None:
        self.scan = scan
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
        self.alone = (
            scan is not None
            or self.count <= MAX_THREAD_ROW
            or (self.rows >= MIN_BUSY_ROWS and self.count <= MAX_THREAD_ROW * MAX_THREAD_ROW)
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
        parameters = inspect.signature(function).parameters
        known |= {fold.element: self.call(fold.value, extra) for fold in self.folds if fold.element in parameters}
        return f"{name}({', '.join(known[item] for item in parameters)})"

    def wanted(self, functions: Sequence[Callable[..., Any]]) -> list[int]:
        """Operands that functions take."""
        names = {name for function in functions for name in inspect.signature(function).parameters}
        names |= {
            name for fold in self.folds if fold.element in names for name in inspect.signature(fold.value).parameters
        }
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
        """Write one fold of the row, and what takes its running values."""
        dtype = fold.dtype or self.compute
        self.head.append(f"start_{fold.name} = np.{dtype.name}({start(fold.join, dtype)})")
        join = f"f{len(self.head)}"
        self.head.append(f"{join} = scalar({key_of(fold.join)!r}, {dtype.name!r})")
        total = f"s_{fold.name}"
        self.writer.add(2, f"{total} = start_{fold.name}")
        running = [*range(len(self.results))] if self.scan else []
        self.loop(self.wanted([fold.value]), [len(self.names) + place for place in running])
        if self.scan and self.scan.exclusive:
            self.store(running)
        self.writer.add(3, f"{total} = to_{dtype.name}({join}({total}, to_{dtype.name}({self.call(fold.value)})))")
        if self.scan and not self.scan.exclusive:
            self.store(running)
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

    def store(self, places: Sequence[int]) -> None:
        """Write the stores of results per element."""
        for place in places:
            self.box.store(3, len(self.names) + place, "kr", self.call(self.results[place].value))

    def made(self) -> Launch:
        """Return the launch."""
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
        each = [place for place, result in enumerate(self.results) if not result.per_row and not self.scan]
        if each:
            places = [len(self.names) + place for place in each]
            self.loop(self.wanted([self.results[place].value for place in each]), places)
            self.store(each)
        rows = [place for place, result in enumerate(self.results) if result.per_row]
        level = 2 if self.alone or not rows else 3
        if level == 3:
            self.writer.add(2, "if cuda.threadIdx.x == 0:")
        for place in self.wanted([self.results[place].value for place in rows]):
            self.box.load(level, place, "k", f"v{place}")
        for place in rows:
            self.box.store(level, len(self.names) + place, "k", self.call(self.results[place].value))
        kind = "scan" if self.scan else "fold"
        title = f"{kind} of {' '.join(key_of(fold.value).partition(' ')[0] for fold in self.folds)}"
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


def launch_of(rows: Rows) -> Launch:
    """The launch of a description. Integers are computed in i64, except for u64."""
    order, kept, along = split(rows.shape, rows.axes)
    operands = {name: permuted(buffer, rows.shape, order) for name, buffer in rows.operands.items()}
    results = []
    for output in rows.outputs:
        lengths = (*kept, *[1] * len(along)) if output.per_row else [rows.shape[axis] for axis in range(len(order))]
        strides = permuted(output.buffer.view(lengths), lengths, range(len(order)) if output.per_row else order).strides
        results.append(Result(output.value, Operand(output.buffer, strides), output.per_row))
    compute = compute_dtype(next(iter(rows.operands.values())).dtype)
    if compute.kind in "iub":
        compute = np.dtype(np.float64) if rows.fractions else compute if compute == np.uint64 else np.dtype(np.int64)
    if rows.scan is not None and rows.scan.reverse:
        operands = {name: _reversed(operand, along) for name, operand in operands.items()}
        results = [replace(result, operand=_reversed(result.operand, along)) for result in results]
    return _Rows(kept, along, operands, rows.folds, results, rows.scalars, compute, rows.scan).made()


def _reversed(operand: Operand, along: Sequence[int]) -> Operand:
    """An operand with the last axis from its end."""
    *others, step = operand.strides
    return replace(operand, strides=(*others, -step), offset=operand.offset + (along[-1] - 1) * step)
