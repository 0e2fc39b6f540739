"""Native If, Loop and Scan: subgraphs are planned into the outer plan, with copies of their inputs and outputs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...runtime.base.dataclass import dataclass
from ...runtime.ir.cost import ITERATION
from ...runtime.ir.graph import Graph, Node, Value
from ...runtime.jit.address import i64, share, u8
from ...runtime.jit.kernel_arguments import Address
from ...runtime.jit.range_kernel import range_kernel
from ...runtime.plan.attempt import Attempt
from ...runtime.plan.control_flow import Unplanned
from ...runtime.plan.kernel_api import Allocation, Buffer, Launch, parts_for
from ...runtime.plan.plan import AGAIN, CELLS, COUNTER, GOES_ON, Branch, Loop, Mark, addressable
from ...runtime.tensor.dtype import BOOL, I64, DType
from ..elementwise.unary import identity

if TYPE_CHECKING:
    from ...runtime.plan.planner import Planner, Task

TRUTH = np.dtype(np.bool_)


@range_kernel
def move(source: Address, target: Address, nbytes: int, part: int, parts: int) -> None:
    """A copy of so many bytes."""
    source, target = u8(source), u8(target)
    first, last = share(nbytes, part, parts)
    for k in range(first, last):
        target[k] = source[k]


@range_kernel
def move_entry(
    source: Address,
    target: Address,
    cells: Address,
    rows: int,
    nbytes: int,
    row_from: int,
    row_to: int,
    entry_from: int,
    entry_to: int,
    part: int,
    parts: int,
) -> None:
    """Copy rows of `nbytes` bytes of the current iteration, read from a loop's cells; steps between rows and between
    iterations are bytes."""
    iteration = i64(cells)[0]
    source, target = u8(source + iteration * entry_from), u8(target + iteration * entry_to)
    first, last = share(rows, part, parts)
    for row in range(first, last):
        begin, end = row * row_from, row * row_to
        for k in range(nbytes):
            target[end + k] = source[begin + k]


@range_kernel
def next_iteration(cells: Address, goes_on: Address, part: int, parts: int) -> None:
    """A loop's cells after an iteration, whose body gave the condition."""
    cells = i64(cells)
    cells[0] += 1
    cells[3] -= 1
    cells[1] = 1 if u8(goes_on)[0] != 0 and cells[0] < cells[2] else 0
    cells[4] = 1 if cells[1] != 0 and cells[3] > 0 else 0


@dataclass(frozen=True)
class Along:
    """A tensor of which each iteration sees one entry.

    Attributes:
        backwards: whether the first iteration sees the last entry.
    """

    axis: int = 0
    backwards: bool = False


def _memory(planner: Planner, value: Value | None) -> Buffer:
    """The buffer of a value that kernels can take; Unplanned for others."""
    found = None if value is None else planner.buffer(value)
    if value is None or found is None or not found.count or value.container or not addressable(value.dtype):
        raise Unplanned
    return found


def _new(dtype: np.dtype[Any], shape: Sequence[int]) -> Buffer:
    return Buffer(dtype, tuple(shape), Allocation(math.prod(shape) * dtype.itemsize))


def _move(planner: Planner, source: Buffer, target: Buffer, node: Node) -> None:
    parts = parts_for(planner.threads, source.nbytes, source.nbytes / 16)
    planner.append(Launch(move, parts, source=source, target=target, nbytes=source.nbytes), node)


def plan_branches(planner: Planner, task: Task, branches: Sequence[Graph], paths: Sequence[str]) -> bool:
    """Both branches, the one for true first, of which a run jumps over one; False where they differ in shapes or cannot
    be native."""
    node = task.node
    attempt = Attempt(planner)
    outputs: dict[int, Buffer] = {}
    dtypes: dict[int, DType | None] = {}
    work = [planner.work]
    try:
        condition = _memory(planner, node.inputs[0])
        if condition.dtype != TRUTH or condition.count != 1:
            return False
        step = Branch(condition)
        for kind, original, path in zip(("if", "else"), branches, paths, strict=True):
            planner.mark(Mark(kind, step if kind == "if" else None, [condition]), node)
            graph = attempt.copy(original)
            planner.body(graph, original, path)
            for index, value in enumerate(node.outputs):
                if value.name and planner.uses[value]:
                    source = _memory(planner, graph.outputs[index])
                    target = outputs.setdefault(index, _new(source.dtype, source.shape))
                    if (target.dtype, target.shape) != (source.dtype, source.shape):
                        raise Unplanned
                    _move(planner, source, target, node)
                    dtypes[index] = graph.outputs[index].dtype
            work.append(planner.work)
        planner.mark(Mark("end", None, [condition]), node)
    except attempt.failures:
        attempt.undone()
        return False
    planner.work = work[0] + min(work[1] - work[0], work[2] - work[1])
    for index, buffer in outputs.items():
        value = node.outputs[index]
        value.dtype, value.shape, planner.locations[value] = dtypes[index], buffer.shape, buffer
    return True


@dataclass
class Repeated:
    """A Loop or Scan.

    Attributes:
        trips, condition: where they are; None for no bound, and for yes.
        states: initial values.
        limit: iterations at most, where that is known; exact: whether it is exactly so many.
        loads: tensors that go in entry by entry; stores: how what the body gives is collected.
        counted: whether the body takes the iteration and the condition first, and gives the condition.
    """

    body: Graph
    path: str
    states: Sequence[Value | None]
    trips: Value | None = None
    condition: Value | None = None
    limit: int | None = None
    exact: bool = False
    loads: Sequence[tuple[Value | None, Along]] = ()
    stores: Sequence[Along] = ()
    counted: bool = False


def plan_repeated(planner: Planner, task: Task, loop: Repeated) -> bool:
    """The body between the marks of a loop; False where its shapes change or it cannot be native."""
    attempt = Attempt(planner)
    try:
        _Body(planner, task, loop, attempt).run()
    except attempt.failures:
        attempt.undone()
        return False
    return True


class _Body:
    """One body as it is planned."""

    def __init__(self, planner: Planner, task: Task, loop: Repeated, attempt: Attempt) -> None:
        self.planner, self.node, self.loop = planner, task.node, loop
        self.graph = attempt.copy(loop.body)
        self.passed = self._passed()
        self.cells = _new(np.dtype(np.int64), (CELLS,))
        self.goes_on, self.again = (Buffer(TRUTH, (), self.cells.allocation, 8 * cell) for cell in (GOES_ON, AGAIN))

    def run(self) -> None:
        planner, loop, node = self.planner, self.loop, self.node
        trips = None if loop.trips is None or loop.limit is not None else _memory(planner, loop.trips)
        condition = self._condition()
        sources = {
            index: _memory(planner, value) for index, value in enumerate(loop.states) if index not in self.passed
        }
        entries = [(_memory(planner, value), along) for value, along in loop.loads]
        states = {index: _new(source.dtype, source.shape) for index, source in sources.items()}
        for index, state in states.items():
            _move(planner, sources[index], state, node)
        step = Loop(node.op.name, self.cells, trips, condition, self.again, loop.limit)
        outer = [self.cells, *states.values(), *(buffer for buffer in (trips, condition) if buffer is not None)]
        begin = Mark("loop", step, outer)
        planner.mark(begin, node)
        self._inputs(states, entries)
        work = planner.work
        planner.body(self.graph, loop.body, loop.path)
        goes_on = _memory(planner, self.graph.outputs[0]) if loop.counted else self.goes_on
        if goes_on.dtype != TRUTH or goes_on.count != 1:
            raise Unplanned
        exact = loop.exact or (condition is None and self._endless(goes_on))
        if exact and loop.limit is not None:
            planner.work = work + (planner.work - work + ITERATION) * loop.limit
        stored = self._stores(exact)
        self._next_states(states)
        planner.append(Launch(next_iteration, cells=self.cells, goes_on=goes_on), node)
        begin.uses = [*outer, *stored]
        planner.mark(Mark("again", None, begin.uses), node)
        found = {**states, **dict(enumerate(stored, len(loop.states)))}
        for index, value in enumerate(node.outputs):
            if index in self.passed:
                planner.alias(value, self.passed[index])
            else:
                planner.locations[value] = found[index]
                value.shape = found[index].shape

    def _condition(self) -> Buffer | None:
        value = self.loop.condition
        if value is None:
            return None
        array = self.planner.facts.array(value)
        if array is not None and array.size == 1 and bool(array.reshape(-1)[0]):
            return None
        found = _memory(self.planner, value)
        if found.dtype != TRUTH or found.count != 1:
            raise Unplanned
        return found

    def _passed(self) -> dict[int, Value]:
        """States that the body hands on as they are, and the values that they start from."""
        first, found = 2 if self.loop.counted else 0, {}
        for index, (value, result) in enumerate(
            zip(self.loop.states, self.graph.outputs[self.loop.counted :], strict=False)
        ):
            while (
                result.producer is not None and result.producer.op is identity and result.producer.inputs[0] is not None
            ):
                result = result.producer.inputs[0]
            if value is not None and result is self.graph.inputs[first + index]:
                found[index] = value
        return found

    def _inputs(self, states: Mapping[int, Buffer], entries: Sequence[tuple[Buffer, Along]]) -> None:
        inputs = list(self.graph.inputs)
        if self.loop.counted:
            counter, goes_on = inputs[:2]
            del inputs[:2]
            for value, dtype, cell, made in (
                (counter, I64, COUNTER, np.dtype(np.int64)),
                (goes_on, BOOL, GOES_ON, TRUTH),
            ):
                shape = (1,) if value.shape is not None and len(value.shape) == 1 else ()
                self._feed(value, Buffer(made, shape, self.cells.allocation, 8 * cell))
                value.dtype = dtype
        for index, (value, outer) in enumerate(zip(inputs, self.loop.states, strict=False)):
            assert outer is not None
            if index in self.passed:
                self.planner.alias(value, outer)
            else:
                value.dtype = outer.dtype
                self._feed(value, states[index])
        for value, (source, along), (outer, _) in zip(
            inputs[len(self.loop.states) :], entries, self.loop.loads, strict=True
        ):
            assert outer is not None
            value.dtype = outer.dtype
            axis = along.axis % len(source.shape)
            entry = _new(source.dtype, (*source.shape[:axis], *source.shape[axis + 1 :]))
            self._entry(source, axis, along.backwards, entry, load=True)
            self._feed(value, entry)

    def _feed(self, value: Value, location: Buffer) -> None:
        value.shape = location.shape
        self.planner.locations[value] = location

    def _entry(self, whole: Buffer, axis: int, backwards: bool, entry: Buffer, load: bool) -> None:
        """A copy from or to the entry of the iteration."""
        inner = math.prod(whole.shape[axis + 1 :]) * whole.dtype.itemsize
        outer, length = math.prod(whole.shape[:axis]), whole.shape[axis]
        place = (
            Buffer(whole.dtype, whole.shape, whole.allocation, whole.offset + (length - 1) * inner)
            if backwards
            else whole
        )
        step = -inner if backwards else inner
        source, row_from, entry_from, target, row_to, entry_to = place, length * inner, step, entry, inner, 0
        if not load:
            source, row_from, entry_from, target, row_to, entry_to = (
                target,
                row_to,
                entry_to,
                source,
                row_from,
                entry_from,
            )
        parts = parts_for(self.planner.threads, outer, outer * inner / 16)
        self.planner.append(
            Launch(
                move_entry,
                parts,
                source=source,
                target=target,
                cells=self.cells,
                rows=outer,
                nbytes=inner,
                row_from=row_from,
                row_to=row_to,
                entry_from=entry_from,
                entry_to=entry_to,
            ),
            self.node,
        )

    def _endless(self, goes_on: Buffer) -> bool:
        """Whether the body never ends the loop."""
        constant = goes_on.allocation.constant
        if constant is not None:
            return bool(constant.reshape(-1)[0])
        return goes_on.allocation is self.cells.allocation and goes_on.offset == self.goes_on.offset

    def _stores(self, endless: bool) -> list[Buffer]:
        """Collect what the body gives beyond the state: for that the number of iterations has to be known."""
        results = self.graph.outputs[len(self.loop.states) + self.loop.counted :]
        limit = self.loop.limit
        if results and (limit is None or not endless):
            raise Unplanned
        found = []
        for value, along in zip(results, self.loop.stores, strict=True):
            source = _memory(self.planner, value)
            axis = along.axis % (len(source.shape) + 1)
            assert limit is not None
            whole = _new(source.dtype, (*source.shape[:axis], limit, *source.shape[axis:]))
            self._entry(whole, axis, along.backwards, source, load=False)
            found.append(whole)
        return found

    def _next_states(self, states: Mapping[int, Buffer]) -> None:
        """Copy the body's outputs to the states, by way of temporaries if one state becomes another."""
        results = self.graph.outputs[self.loop.counted :]
        pairs = [(_memory(self.planner, results[index]), state) for index, state in states.items()]
        if any((source.dtype, source.shape) != (state.dtype, state.shape) for source, state in pairs):
            raise Unplanned
        allocations = {id(state.allocation) for state in states.values()}
        moves = [
            (source, state) for source, state in pairs if source.allocation is not state.allocation or source.offset
        ]
        if any(id(source.allocation) in allocations for source, _ in moves):
            aside = [(_new(source.dtype, source.shape), state) for source, state in moves]
            for (source, _), (copy, _) in zip(moves, aside, strict=True):
                _move(self.planner, source, copy, self.node)
            moves = aside
        for source, state in moves:
            _move(self.planner, source, state, self.node)


def length_of(planner: Planner, value: Value | None) -> int | None:
    """A number that is known ahead, such as a trip count."""
    array = None if value is None else planner.facts.array(value)
    return int(array.reshape(-1)[0]) if array is not None and array.size == 1 else None
