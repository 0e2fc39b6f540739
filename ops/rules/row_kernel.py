"""CPU kernels of row operators, generated from their description: rows in lanes if their elements are contiguous,
otherwise a column in each lane.

A generated module depends on the functions, dtypes and operand layouts of a description; lengths and strides are
arguments. Folds along a row have 64 partial results (`simd.reduce`), so that they are equal on every CPU and for every
number of threads.
"""

# mypy: disable-error-code="untyped-decorator"
from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ...runtime.base.dataclass import dataclass
from ...runtime.jit import address, kernel_arguments, range_kernel
from ...runtime.plan import elementwise_fusion
from ...runtime.plan.elementwise_fusion import (
    FUNCTIONS,
    NARROW,
    POINTERS,
    broadcast_strides,
    code_digest,
    merged,
    module_kernel,
    parameters,
)
from ...runtime.plan.kernel_api import Buffer, Launch, Planned, Step, native_by_rows
from ...runtime.plan.rows import Fold, Output, Rows, add, start, times
from ...runtime.simd import element as access
from ...runtime.simd import reduce, vector

WIDTHS = (128, 256, 1024)
"""Columns computed at a time: as many as leave `BLOCKS` blocks of them."""
BLOCKS = 4
NARROWER = 256
"""The most columns at a time of operators with more than one result per row."""
FINER = 4
"""Rows are cut into this many times the usual parts: small steps follow each other, and threads wait awake."""
TALL = 64
"""Elements of a column after which sums are added up in the wider type."""
HEADER = f"""from __future__ import annotations
import numpy as np
from {address.__name__} import *
from {kernel_arguments.__name__} import Words
from {range_kernel.__name__} import inlined, range_kernel
from {access.__name__} import bf16_to_f32, f16_to_f32, f32_to_bf16, f32_to_f16
from {reduce.__name__} import along
from {vector.__name__} import stack_array
from {elementwise_fusion.__name__} import element_function
from {__name__} import offset
"""


@range_kernel.inlined
def offset(sizes: Any, at: Any, axes: Any, column: Any, index: Any) -> Any:
    """The offset at an index among axes: lengths from word `at` on, the last axis first, then a column of strides for
    each operand."""
    found = 0
    for axis in range(axes - 1):
        length = sizes[at + axis]
        rest = index // length
        found += (index - rest * length) * sizes[at + axes * (column + 1) + axis]
        index = rest
    return found + index * sizes[at + axes * (column + 2) - 1] if axes > 0 else found


@native_by_rows
def plan_rows(step: Step) -> Planned:
    """Operators whose description fits the node; others are left to NumPy."""
    describe = step.node.op.rows
    described = None if describe is None else describe(step)
    return launch(step, described) if isinstance(described, Rows) else None


def launch(step: Step, rows: Rows) -> Launch | None:
    """The launch of a description's kernel, None for dtypes that kernels do not access."""
    buffers = [*rows.operands.values(), *(output.buffer for output in rows.outputs)]
    if not math.prod(rows.shape) or not rows.fits or any(access.element(buffer.dtype) is None for buffer in buffers):
        return None
    kernel = (_ColumnsInLanes if _is_innermost_kept(rows) else _RowsInLanes)(rows)
    parts = step.parts(kernel.limit, math.prod(rows.shape) * kernel.work, FINER)
    return Launch(module_kernel("rows", kernel.text(), __name__), parts, **kernel.arguments())


def _is_innermost_kept(rows: Rows) -> bool:
    reduced = {axis % len(rows.shape) for axis in rows.axes}
    longer = [axis for axis, length in enumerate(rows.shape) if length != 1]
    return bool(longer) and longer[-1] not in reduced


@dataclass(frozen=True)
class _Operand:
    """An operand or output: its number among the buffers, and elements from one index to the next of the axes of a row
    and of the axes that are kept."""

    number: int
    buffer: Buffer
    along: tuple[int, ...]
    apart: tuple[int, ...]

    @property
    def dtype(self) -> str:
        """Booleans are bytes."""
        name = self.buffer.dtype.name
        return "uint8" if name == "bool" else name

    def pointer(self, place: str) -> str:
        """Code of a pointer to the element at an offset."""
        return f"{POINTERS[self.dtype]}(buffers[{self.number}] + ({place}) * {self.buffer.dtype.itemsize})"

    def loaded(self, text: str, compute: str) -> str:
        """Code of an element in the dtype of the computation."""
        return f"{NARROW[self.dtype][0]}({text})" if self.dtype in NARROW else f"np.{compute}({text})"

    def stored(self, text: str) -> str:
        """Code of a value as it is stored."""
        return f"{NARROW[self.dtype][1]}(np.float32({text}))" if self.dtype in NARROW else f"np.{self.dtype}({text})"


@dataclass(frozen=True)
class _Pass:
    """One loop over the elements of a row.

    Attributes:
        name: of its words.
        operands: that it accesses, by name.
        contiguous: numbers of the operands whose elements differ in the inner loop; they are consecutive there.
        column: of each operand in the table of strides.
    """

    name: str
    operands: Mapping[str, _Operand]
    contiguous: frozenset[int]
    column: Mapping[int, int]


class _Kernel:
    """Source and arguments of a description's kernel. Subclasses write the loops.

    Variables: ``s_NAME`` a fold, ``n_NAME`` a number, ``kC`` the offset at an index of the kept axes, ``xN`` and ``vN``
    the pointer or the value of operand N in the inner loop, whose index is ``j``.
    """

    fold_text: str
    """Template with which the inner loop reads a fold."""
    column: dict[int, int]
    """Operand -> its column in the table of offsets at an index of the kept axes."""

    def __init__(self, rows: Rows) -> None:
        self.rows, rank = rows, len(rows.shape)
        reduced = sorted({axis % rank for axis in rows.axes})
        kept = [axis for axis in range(rank) if axis not in reduced]
        self.row_shape, self.kept_shape = ([rows.shape[axis] for axis in axes] for axes in (reduced, kept))
        operands = []
        for number, buffer in enumerate((*rows.operands.values(), *(output.buffer for output in rows.outputs))):
            output = rows.outputs[number - len(rows.operands)] if number >= len(rows.operands) else None
            box = [1 if output and output.per_row and axis in reduced else rows.shape[axis] for axis in range(rank)]
            strides = broadcast_strides(box if output else buffer.shape, rows.shape)
            along, apart = (tuple(strides[axis] for axis in axes) for axes in (reduced, kept))
            operands.append(_Operand(number, buffer, along, apart))
        self.inputs = dict(zip(rows.operands, operands, strict=False))
        self.outputs = operands[len(self.inputs) :]
        self.size = math.prod(self.row_shape)
        self.index = "int32" if self.size < 1 << 31 else "int64"
        self.compute = self._compute(operands[0])
        self.known = {fold.name: self.fold_text.format(fold.name) for fold in rows.folds}
        self.known |= {"count": "count", **{name: f"n_{name}" for name in rows.scalars}}
        self.head: list[str] = []
        self.functions: dict[str, str] = {}
        self.lines: list[str] = []
        self.words: dict[str, int] = {"size": self.size}
        self.tables: dict[str, list[int]] = {}
        self.limit, self.work = 1, 0.0
        self.kept_axes()
        for fold in rows.folds:
            self.fold(fold)
        self.results()

    def _compute(self, first: _Operand) -> np.dtype[Any]:
        if self.rows.fractions and first.buffer.dtype.kind in "iub":
            return np.dtype(np.float64)
        kind = access.element(first.buffer.dtype)
        assert kind is not None
        return np.dtype(kind.compute_type if first.dtype != "uint8" else np.uint8)

    def kept_axes(self) -> None:
        """Write the head of the loop over the kept axes, and the offsets there."""
        raise NotImplementedError

    def fold(self, fold: Fold) -> None:
        """Write a fold."""
        raise NotImplementedError

    def results(self) -> None:
        """Write the outputs."""
        raise NotImplementedError

    def text(self) -> str:
        """The source of the module."""
        words = [f"    {name} = sizes[{place}]" for place, name in enumerate(self.words)]
        words += [f"    count = np.{self.index}(size)"]
        words += [f"    n_{name} = np.{self.compute}(number(numbers[{k}]))" for k, name in enumerate(self.rows.scalars)]
        contracts = self.compute.kind == "f" and not all(output.per_row for output in self.rows.outputs)
        decorator = "@range_kernel" + "(fastmath={'contract'})" * contracts
        signature = "buffers: Words, sizes: Words, numbers: Words, part: int, parts: int"
        return "\n".join([HEADER, *self.head, decorator, f"def compute({signature}):", *words, *self.lines, ""])

    def arguments(self) -> dict[str, Any]:
        """The arguments of the launch."""
        words = dict(self.words)
        tables: list[int] = []
        for name, table in self.tables.items():
            words[name] = len(words) + len(tables)
            tables += table
        buffers = [*self.rows.operands.values(), *(output.buffer for output in self.rows.outputs)]
        numbers = [float(number) for number in self.rows.scalars.values()]
        return {"buffers": buffers, "sizes": [*words.values(), *tables], "numbers": numbers}

    def add(self, depth: int, *lines: str) -> None:
        """Add lines at an indentation depth."""
        self.lines += ["    " * depth + line for line in lines]

    def table(self, name: str, lengths: Sequence[int], columns: Iterable[Sequence[int]]) -> None:
        """Lengths and strides of axes for `offset`; ``NAME_axes`` is how many."""
        self.words |= {f"{name}_axes": len(lengths), name: 0}
        self.tables[name] = [*reversed(lengths), *(step for column in columns for step in reversed(column))]

    def function(self, function: Callable[..., Any], dtype: str) -> str:
        """The name in the module of a function of the description."""
        key = f"{function.__module__}.{function.__qualname__}"
        FUNCTIONS[key] = function
        storage = self.inputs[next(iter(self.inputs))].dtype
        made = f"element_function({key!r}, {dtype!r}, {storage!r})"
        if made not in self.functions:
            self.functions[made] = f"f{len(self.functions)}"
            self.head.append(f"{self.functions[made]} = {made}  # {code_digest(function)}")
        return self.functions[made]

    def call(self, function: Callable[..., Any], known: Mapping[str, str], dtype: str = "") -> str:
        """Code that calls a function with what its parameters name."""
        given = ", ".join(known[name] for name in parameters(function))
        self.work += 3.0 * ("math" in function.__code__.co_names)
        return f"{self.function(function, dtype or self.compute.name)}({given})"

    def total_dtype(self, fold: Fold) -> str:
        """The dtype of long sums."""
        wide = self.compute == np.float32 and fold.dtype is None and fold.join in (add, times)
        return "float64" if wide else self.fold_dtype(fold)

    def fold_dtype(self, fold: Fold) -> str:
        """Folds of integers over floats are indices."""
        return self.compute.name if fold.dtype is None else self.index

    def finished(self, fold: Fold, total: str) -> str:
        """Code that computes a fold's result from its total."""
        wide = self.total_dtype(fold)
        work = self.work
        text = total if fold.finish is None else self.call(fold.finish, {**self.known, "total": total}, wide)
        self.work = work
        return f"np.{self.fold_dtype(fold)}({text})"

    def start(self, fold: Fold) -> str:
        """Code of the initial value."""
        return start(fold.join, np.dtype(self.fold_dtype(fold)))

    def distinct(self, columns: Sequence[Sequence[int]], operands: Iterable[_Operand]) -> tuple[Any, dict[int, int]]:
        """Different columns, and which is that of each operand."""
        found = list(dict.fromkeys(map(tuple, columns)))
        return found, {item.number: found.index(tuple(column)) for item, column in zip(operands, columns, strict=True)}

    def begin(self, names: Iterable[str], targets: Sequence[_Operand] = ()) -> _Pass:
        """The next pass over operands among `names`, and outputs."""
        names = set(names)
        operands = {name: operand for name, operand in self.inputs.items() if name in names}
        operands |= {f"y{operand.number}": operand for operand in targets}
        self.work += 0.3
        name = f"p{len(self.tables)}"
        lengths, columns = merged(self.row_shape, [operand.along for operand in operands.values()])
        contiguous = self.contiguous(name, lengths, columns, list(operands.values()))
        found, column = self.distinct(columns, operands.values())
        self.table(name, lengths, found)
        self.words[f"{name}_lines"] = math.prod(lengths)
        return _Pass(name, operands, frozenset(contiguous), column)

    def contiguous(
        self, name: str, lengths: list[int], columns: list[list[int]], operands: Sequence[_Operand]
    ) -> set[int]:
        """Numbers of the operands with consecutive elements in the inner loop, whose axis is removed."""
        raise NotImplementedError

    def pointers(self, depth: int, each: _Pass) -> None:
        """Write the pointers and values of the operands of a pass at index ``line`` outside of the inner loop."""
        for number, operand in {operand.number: operand for operand in each.operands.values()}.items():
            outer = f"offset(sizes, {each.name}, {each.name}_axes, {each.column[number]}, line)"
            pointer = operand.pointer(f"k{self.column[number]} + {outer}")
            loaded = operand.loaded(f"{pointer}[0]", self.compute.name)
            self.add(depth, f"x{number} = {pointer}" if number in each.contiguous else f"v{number} = {loaded}")

    def elements(self, each: _Pass, index: str = "j") -> dict[str, str]:
        """Code of the elements in the inner loop, by name."""
        return self.known | {
            name: operand.loaded(f"x{operand.number}[{index}]", self.compute.name)
            if operand.number in each.contiguous
            else f"v{operand.number}"
            for name, operand in each.operands.items()
        }

    def values(self, results: Sequence[tuple[Callable[..., Any], _Operand]], index: str, bound: str) -> None:
        """Write the loop that stores an element per element."""
        targets = [target for _, target in results]
        each = self.begin({name for function, _ in results for name in parameters(function)}, targets)
        self.add(2, f"for line in range({each.name}_lines):")
        self.pointers(3, each)
        known = {**self.elements(each), "index": f"np.{self.index}({index.format(each.name)})"}
        self.add(3, f"for j in range({bound.format(each.name)}):")
        for function, target in results:
            self.add(4, f"x{target.number}[j] = {target.stored(self.call(function, known))}")

    def per_row(self) -> Iterator[tuple[Output, _Operand, dict[str, _Operand]]]:
        """Outputs per row, with the operands that they take."""
        for output, target in zip(self.rows.outputs, self.outputs, strict=True):
            if output.per_row:
                names = parameters(output.value)
                yield output, target, {name: item for name, item in self.inputs.items() if name in names}

    def scanned(self, depth: int, index: str, total: str, known: Mapping[str, str]) -> None:
        """Write one element of running totals."""
        (fold,), (output,), scan, target = self.rows.folds, self.rows.outputs, self.rows.scan, self.outputs[0]
        assert scan is not None
        dtype = self.fold_dtype(fold)
        joined = f"{self.function(fold.join, dtype)}({total}, {self.call(fold.value, known, dtype)})"
        stored = target.stored(self.call(output.value, {**known, fold.name: "before" if scan.exclusive else total}))
        self.add(depth, f"before = {total}", f"{total} = np.{dtype}({joined})", f"x{target.number}[{index}] = {stored}")


class _RowsInLanes(_Kernel):
    """The innermost axis is one of a row's."""

    fold_text = "s_{}"

    def kept_axes(self) -> None:
        operands = [*self.inputs.values(), *self.outputs]
        lengths, columns = merged(self.kept_shape, [operand.apart for operand in operands])
        found, self.column = self.distinct(columns, operands)
        self.table("kept", lengths, found)
        self.words["rows"] = self.limit = math.prod(self.kept_shape)
        for dtype in dict.fromkeys(self.fold_dtype(fold) for fold in self.rows.folds):
            self.add(1, f"lanes_{dtype} = stack_array(np.{dtype}, 4)")
        self.add(1, "first, last = share(rows, part, parts)", "for i in range(first, last):")
        self.add(2, *(f"k{place} = offset(sizes, kept, kept_axes, {place}, i)" for place in range(len(found))))

    def contiguous(
        self, name: str, lengths: list[int], columns: list[list[int]], operands: Sequence[_Operand]
    ) -> set[int]:
        self.words[f"{name}_count"] = lengths.pop() if lengths else 1
        inner = [column.pop() if column else 1 for column in columns]
        return {operand.number for operand, step in zip(operands, inner, strict=True) if step}

    def fold(self, fold: Fold) -> None:
        if self.rows.scan is not None:
            self.scan(fold)
            return
        dtype, wide = self.fold_dtype(fold), self.total_dtype(fold)
        if fold.element:
            self.values([(fold.value, self.outputs[0])], "{0}_count * line + j", "{0}_count")
            self.inputs[fold.element] = self.outputs[0]
        names = (fold.element,) if fold.element else parameters(fold.value)
        each = self.begin(names)
        slots = sorted({item.number for item in each.operands.values()} & each.contiguous)
        known = {**self.elements(each), "index": f"np.{self.index}(line + j)"}
        for name, operand in each.operands.items():
            if operand.number in slots:
                known[name] = operand.loaded(f"x[{slots.index(operand.number)}][j]", self.compute.name)
        outside = [known[name] for name in names if known[name].isidentifier()]
        outside += ["line"] if "index" in names else []
        value = known[fold.element] if fold.element else self.call(fold.value, known, dtype)
        number = len(self.head)
        join = self.function(fold.join, wide)
        self.head += [
            "@inlined",
            f"def load{number}(x, e, j):",
            *(f"    {name} = e[{place}]" for place, name in enumerate(outside)),
            f"    return {value}",
            f"along{number} = along(load{number}, np.{dtype}, np.{wide}, {self.start(fold)}, {join})",
        ]
        arrays, scalars = (
            "".join(f"{name}, " for name in names) for names in ([f"x{slot}" for slot in slots], outside)
        )
        total = f"s_{fold.name}"
        self.add(2, f"t = np.{wide}({self.start(fold)})", f"for line in range({each.name}_lines):")
        self.pointers(3, each)
        if "index" in names:
            self.add(3, f"line *= {each.name}_count")
        found = f"along{number}(({arrays}), ({scalars}), {each.name}_count, lanes_{dtype})"
        self.add(3, f"t = np.{wide}({join}(t, {found}))")
        self.add(2, f"{total} = {self.finished(fold, 't')}")

    def scan(self, fold: Fold) -> None:
        """Write running totals."""
        each = self.begin(parameters(fold.value), self.outputs)
        self.add(2, f"t = np.{self.fold_dtype(fold)}({self.start(fold)})", f"for line in range({each.name}_lines):")
        self.pointers(3, each)
        place = f"{each.name}_count - 1 - j" if self.rows.scan and self.rows.scan.reverse else "j"
        self.add(3, f"for j in range({each.name}_count):", f"    place = {place}")
        self.scanned(4, "place", "t", self.elements(each, "place"))

    def results(self) -> None:
        each = [(out.value, item) for out, item in zip(self.rows.outputs, self.outputs, strict=True) if not out.per_row]
        if each and self.rows.scan is None:
            self.values(each, "{0}_count * line + j", "{0}_count")
        for output, target, operands in self.per_row():
            known = {
                name: operand.loaded(f"{operand.pointer(f'k{self.column[operand.number]}')}[0]", self.compute.name)
                for name, operand in operands.items()
            }
            stored = target.stored(self.call(output.value, self.known | known))
            self.add(2, f"{target.pointer(f'k{self.column[target.number]}')}[0] = {stored}")


class _ColumnsInLanes(_Kernel):
    """The innermost axis is kept: a row is a column, of which many are computed at a time."""

    fold_text = "s_{}[j]"

    def kept_axes(self) -> None:
        operands = [*self.inputs.values(), *self.outputs]
        lengths, columns = merged(self.kept_shape, [operand.apart for operand in operands])
        self.words["columns"] = lengths.pop()
        width = max((each for each in WIDTHS if BLOCKS * each <= self.words["columns"]), default=WIDTHS[0])
        if not all(output.per_row for output in self.rows.outputs):
            width = min(width, NARROWER)
        found, self.column = self.distinct(columns, operands)
        inner = [column[-1] for column in found]
        self.inner = {number for number, place in self.column.items() if inner[place]}
        self.table("kept", lengths, [column[:-1] for column in found])
        blocks = -(-self.words["columns"] // width)
        self.words |= {"blocks": blocks, "units": math.prod(lengths) * blocks}
        self.limit = self.words["units"]
        for fold in self.rows.folds:
            dtype, wide = self.fold_dtype(fold), self.total_dtype(fold)
            self.add(1, f"s_{fold.name} = stack_array(np.{dtype}, {width // 16})")
            if wide != dtype:
                self.add(1, f"t_{fold.name} = stack_array(np.{wide}, {width // 16})")
        self.add(1, "first, last = share(units, part, parts)", "for i in range(first, last):")
        self.add(2, f"column, row = i % blocks * {width}, i // blocks", f"width = min({width}, columns - column)")
        for place, step in enumerate(inner):
            text = f"offset(sizes, kept, kept_axes, {place}, row)"
            self.add(2, f"k{place} = {text}{' + column' if step else ''}")

    def contiguous(
        self, name: str, lengths: list[int], columns: list[list[int]], operands: Sequence[_Operand]
    ) -> set[int]:
        return self.inner

    def fold(self, fold: Fold) -> None:
        if self.rows.scan is not None:
            self.scan(fold)
            return
        dtype, wide = self.fold_dtype(fold), self.total_dtype(fold)
        targets = self.outputs[:1] if fold.element else []
        each = self.begin(parameters(fold.value), targets)
        known = {**self.elements(each), "index": f"np.{self.index}(line)"}
        total, join = f"s_{fold.name}[j]", self.function(fold.join, wide)
        start = f"{total} = np.{dtype}({self.start(fold)})"
        lines = f"range({each.name}_lines)"
        depth = 2
        if wide != dtype:
            self.add(2, "for j in range(width):", f"    t_{fold.name}[j] = np.{wide}({self.start(fold)})")
            self.add(2, f"for begin in range(0, {each.name}_lines, {TALL}):")
            lines, depth = f"range(begin, min({each.name}_lines, begin + {TALL}))", 3
        self.add(depth, "for j in range(width):", f"    {start}", f"for line in {lines}:")
        self.pointers(depth + 1, each)
        self.add(depth + 1, "for j in range(width):", f"    value = np.{dtype}({self.call(fold.value, known, dtype)})")
        if fold.element:
            self.add(depth + 2, f"x{targets[0].number}[j] = {targets[0].stored('value')}")
            self.inputs[fold.element] = targets[0]
        self.add(depth + 2, f"{total} = np.{dtype}({join}({total}, value))")
        if wide != dtype:
            joined = f"{join}(t_{fold.name}[j], np.{wide}({total}))"
            self.add(3, "for j in range(width):", f"    t_{fold.name}[j] = np.{wide}({joined})")
            self.add(2, "for j in range(width):", f"    {total} = {self.finished(fold, f't_{fold.name}[j]')}")
        elif fold.finish is not None:
            self.add(2, "for j in range(width):", f"    {total} = {self.finished(fold, total)}")

    def scan(self, fold: Fold) -> None:
        """Write running totals."""
        each = self.begin(parameters(fold.value), self.outputs)
        total = f"s_{fold.name}[j]"
        place = f"{each.name}_lines - 1 - step" if self.rows.scan and self.rows.scan.reverse else "step"
        self.add(2, "for j in range(width):", f"    {total} = np.{self.fold_dtype(fold)}({self.start(fold)})")
        self.add(2, f"for step in range({each.name}_lines):", f"    line = {place}")
        self.pointers(3, each)
        self.add(3, "for j in range(width):")
        self.scanned(4, "j", total, self.elements(each))

    def results(self) -> None:
        each = [(out.value, item) for out, item in zip(self.rows.outputs, self.outputs, strict=True) if not out.per_row]
        if each and self.rows.scan is None:
            self.values(each, "line", "width")
        for output, target, operands in self.per_row():
            for operand in (target, *operands.values()):
                self.add(2, f"x{operand.number} = {operand.pointer(f'k{self.column[operand.number]}')}")
            known = {
                name: operand.loaded(
                    f"x{operand.number}[{'j' if operand.number in self.inner else 0}]", self.compute.name
                )
                for name, operand in operands.items()
            }
            stored = target.stored(self.call(output.value, self.known | known))
            self.add(2, "for j in range(width):", f"    x{target.number}[j] = {stored}")
