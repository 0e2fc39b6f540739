"""The planner: nodes of a graph become the steps of a plan.

Nodes are inferred with the shapes at hand. What follows from constants is computed once, here. A node runs natively when its operator has a
planner that takes it; otherwise its `compute` runs in Python. Where a shape depends on data, the plan ends: the nodes behind it are a program
of their own, planned when the shape is known.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .applying import locate
from .blocks import Blocks, Unread, numbers
from .control import CONTROLS, Unplanned
from .copies import captures, copied, needed
from .dtype import STRING, DType
from .encoding import described, encoded, launched
from .errors import Error, UnsupportedError
from .folding import folded
from .graph import Graph, Node, Value
from .homes import Homes
from .infer import MALFORMED
from .known import Known
from .launch import EMPTY, Buffer, Launch, Room, Step, View, planner_of, refusal
from .plan import Mark, Plan, PythonStep, Signature, Steered, Tap, addressable, dtype_of, dtype_of_numpy, ints, known, plain, size
from .record import dataclass
from .spending import check_memory
from .work import operations

if TYPE_CHECKING:
    from .fusion import Chain
    from .program import Program
    from .regex import Searcher

WORTH_A_PLAN = 6
"""Nodes behind a data-dependent shape from which they are planned again when it is known."""


@dataclass(frozen=True, eq=False)
class Task:
    """A node to plan.

    Attributes:
        node: the plan's own copy, whose values have the shapes at hand; original: what it is a copy of.
        path: of the graph that it is in, from the outermost one.
    """

    node: Node
    original: Node
    path: str


class Planner:
    """Makes one plan."""

    def __init__(self, program: Program, feeds: Sequence[Any], threads: int, native: bool, keep: Searcher | None) -> None:
        self.program = program
        self.threads = threads
        self.native = native
        self.keep = keep
        self.plan = Plan()
        self.values: dict[Value, Value] = {}
        self.constants: dict[Value, np.ndarray | Blocks | Unread] = {}
        self.stored: dict[Value, Buffer] = {}
        self.homes = Homes()
        self.chains: list[Chain | Launch | PythonStep | Mark] = []
        self.nodes: list[Node | None] = []
        self.open_loops = 0
        self.python_steps: dict[Value, PythonStep] = {}
        self.work, self.hardest = 0.0, (0.0, "")
        self.scratch: list[tuple[Room, int]] = []
        self.refusal = refusal()
        self.facts = Known(self.constants)
        self.tasks = deque(Task(copied(node, self.values), node, path) for node, path in zip(program.nodes, program.paths, strict=True))
        self.uses: Counter[Value] = Counter(value for task in self.tasks for value in needed(task.node))
        self.results = [self._value(value) for value in program.outputs]
        self.uses.update(self.results)
        self.used: list[Value] = []
        self.replaced: list[tuple[Value, Value | None]] = []
        for value, array in program.weights.items():
            self.constant(self._value(value), array, value.dtype)
        for value, feed in zip(program.inputs, feeds, strict=True):
            self._feed(self._value(value), feed, value)
            home = self.homes.get(self._value(value))
            if value.name in program.lent and isinstance(home, Buffer) and home.room.slot is not None:
                home.room.lent = True
                self.plan.lent.append(home.room.slot)

    def use(self, values: Iterable[Value]) -> None:
        """Values have one more use each; `used` tells of it in order, so that it can be taken back."""
        found = list(values)
        self.uses.update(found)
        self.used += found

    def _value(self, value: Value) -> Value:
        return self.values.setdefault(value, Value(value.name))

    def constant(self, value: Value, array: np.ndarray | Blocks | Unread, dtype: DType | None = None) -> None:
        """A value is known ahead."""
        value.dtype, value.shape = dtype or dtype_of(array), array.shape
        self.constants[value] = array

    def _feed(self, value: Value, feed: Any, described: Value) -> None:
        if isinstance(feed, Signature):
            value.dtype, value.shape = dtype_of_numpy(feed.dtype), feed.shape
            slot = self.slot(feed.dtype, feed.shape)
            self.homes[value] = Buffer(feed.dtype, feed.shape, self._slot_room(slot))
            self.plan.inputs.append(slot)
            return
        if isinstance(feed, Steered):
            self.constant(value, np.full(feed.shape, feed.value, feed.dtype))
            self.plan.inputs.append(None)
            return
        value.container, value.dtype = described.container, described.dtype
        if isinstance(feed, tuple):
            value.dtype, value.shape = feed
        self.homes[value] = value
        self.plan.inputs.append(value)

    def slot(self, dtype: np.dtype[Any], shape: tuple[int, ...]) -> int:
        """A new place for an array that every run brings."""
        self.plan.slots.append((dtype, shape))
        return len(self.plan.slots) - 1

    def _slot_room(self, slot: int) -> Room:
        dtype, shape = self.plan.slots[slot]
        return Room(math.prod(shape) * dtype.itemsize, slot=slot)

    def made(self, others: Callable[[bool], Iterable[Any]]) -> Plan:
        """The plan; what it needs is compiled, and `others` that later plans will, as `preparing.prepare` has them."""
        self._all()
        return encoded(self, others)

    def kernels(self) -> list[Any]:
        """The kernels of the plan, which is not made."""
        self._all()
        return launched(self)

    def _all(self) -> None:
        if self._tasks(self.tasks, WORTH_A_PLAN if self.native else len(self.tasks)):
            self.plan.outputs = [self.home(value) for value in self.results]

    def _tasks(self, tasks: deque[Task], worth: int) -> bool:
        """Plan tasks until a shape depends on data and `worth` nodes are left; whether all are done."""
        while tasks:
            task = tasks.popleft()
            self._node(task, tasks)
            if len(tasks) >= worth and any(self._unknown(value) for value in task.node.outputs):
                self._cut(tasks)
                return False
        return True

    def body(self, graph: Graph, original: Graph, path: str) -> None:
        """Plan the nodes of a subgraph where the plan is now.

        Raises Unplanned where a shape inside depends on data.
        """
        inner = self.spliced(graph, original, path)
        while inner:
            task = inner.popleft()
            self._node(task, inner)
            if len(inner) >= WORTH_A_PLAN and any(self._unknown(value) for value in task.node.outputs):
                raise Unplanned

    def spliced(self, graph: Graph, original: Graph, path: str) -> deque[Task]:
        """The nodes of a subgraph as tasks; its weights are constants from now on."""
        for value, array in self.program.inside(graph).items():
            self.constant(value, array, value.dtype)
        self.use(value for node in graph.nodes for value in needed(node))
        self.use(graph.outputs)
        return deque(Task(node, one, path) for node, one in zip(graph.nodes, original.nodes, strict=True))

    def _unknown(self, value: Value) -> bool:
        return bool(value.name) and self.uses[value] > 0 and value not in self.constants and not value.container and (
            value.dtype is not STRING and (value.dtype is None or not known(value.shape))
        )

    def _node(self, task: Task, tasks: deque[Task]) -> None:
        node = task.node
        tapped = [] if self.keep is None else [value for value in node.outputs if value.name and self.keep.search(task.path + value.name)]
        self.use(tapped)
        try:
            self.facts.infer_node(node)
        except Error as error:
            locate(error, node, node.inputs)
            raise
        if not any(self.uses[value] for value in node.outputs):
            return
        control = CONTROLS.get(node.op)
        if not (control and control(self, task, tasks)) and not self._folded(node) and not (self.native and self._planned(node)):
            self._python(task)
        self._worked(node)
        for value in tapped:
            if value in self.homes or value in self.constants:
                home = self.home(value)
                self.mark(Mark("tap", Tap(task.path + value.name, home), [home]), node)

    def _worked(self, node: Node) -> None:
        if all(value in self.constants for value in node.outputs):
            return
        count = operations(node)
        self.work += count
        if count > self.hardest[0]:
            self.hardest = (count, f"{described(node)} with {count:.3g} operations")

    def alias(self, value: Value, other: Value) -> None:
        """A value is another one, which has been planned."""
        value.dtype, value.shape, value.container = other.dtype, other.shape, other.container
        if other in self.constants:
            self.constants[value] = self.constants[other]
        else:
            self.homes[value] = self.home(other)
        if other in self.facts.partial:
            self.facts.partial[value] = self.facts.partial[other]

    def mark(self, mark: Mark, node: Node) -> None:
        """Put a mark where the plan is now."""
        self.open_loops += {"loop": 1, "again": -1}.get(mark.kind, 0)
        self.chains.append(mark)
        self.nodes.append(node)

    def _folded(self, node: Node) -> bool:
        found = folded(node, self.facts, self.constants)
        for value, array in (found or {}).items():
            self.constant(value, array, value.dtype)
        return found is not None

    def _planned(self, node: Node) -> bool:
        planner = planner_of(node.op)
        if planner is None:
            return False
        inputs: list[Buffer | None] = []
        for value in node.inputs:
            home = None if value is None else self._stored(value) if node.op.stored else self.buffer(value)
            if value is not None and (home is None or (not home.count and node.op not in EMPTY)):
                return False
            inputs.append(home)
        results: list[tuple[np.dtype[Any], tuple[int, ...]] | None] = []
        for value in node.outputs:
            if not value.name or not self.uses[value]:
                results.append(None)
                continue
            if value.container or not addressable(value.dtype) or not known(value.shape) or not size(value.shape):
                return False
            assert value.dtype is not None
            results.append((value.dtype.as_numpy(), ints(value.shape)))
        nbytes = sum(dtype.itemsize * math.prod(shape) for dtype, shape in filter(None, results))
        if nbytes > sum(buffer.nbytes for buffer in filter(None, inputs)):  # before a planner lists its places
            check_memory(nbytes, 0, f"{described(node)} with {nbytes:,} bytes")
        attributes = {**node.op.defaults, **node.attributes}
        step = Step(node, inputs, attributes, results, self.threads, self.program.packed, refusal=self.refusal, alone=self._spare)
        try:
            planned = planner(step)
        except MALFORMED:  # the node is not what its operator takes: `compute` says why
            return False
        if planned is None:
            return False
        if isinstance(planned, View):
            assert results[0] is not None
            self.homes[node.outputs[0]] = planned.buffer.view(results[0][1])
            return True
        for value, (index, _) in zip(node.outputs, enumerate(results), strict=True):
            if index in step.outputs:
                self.homes[value] = step.outputs[index]
        position = len(self.chains)
        for launch in planned if isinstance(planned, list) else [planned]:
            self.append(launch, node)
        made = {buffer.room for buffer in step.outputs.values()}
        self.scratch += [(room, position) for room in step.rooms if room not in made]
        return True

    def _spare(self, buffer: Buffer) -> bool:
        """Whether an output may take the place of an input: memory of the arena that is free afterwards, or an array that was lent."""
        if not buffer.room.lent:
            return self._free_after(buffer)
        whole = buffer.offset == 0 and buffer.nbytes == buffer.room.nbytes
        return whole and self._only_use(buffer) and not any(isinstance(item, Mark) for item in self.chains)

    def append(self, item: Any, node: Node) -> None:
        """Put a launch where the plan is now, joined with the one before it where both are element-wise."""
        from .fusion import LONGEST, SPECIALIZED, Apply
        from .fusion import Chain as Elementwise

        before = self.chains[-1] if self.chains else None
        if isinstance(item, Elementwise) and isinstance(before, Launch) and before.takes and before.output and self.keep is None:
            joint = before.takes(item, before.output)
            if joint is not None and self._only_use(before.output):
                self.chains[-1] = joint
                return
        if isinstance(item, Elementwise) and isinstance(before, Elementwise) and item.output.count >= SPECIALIZED and self.keep is None:
            feeding = [operand for operand in item.operands if operand.room is before.output.room]
            single = len(feeding) == 1 and feeding[0].shape == before.output.shape == item.output.shape and item.steps[0].operands.count(None) == 0
            if single and feeding[0] in item.steps[0].operands and len(before.steps) + len(item.steps) <= LONGEST and self._only_use(before.output):
                head = item.steps[0]
                operands = tuple(None if operand is feeding[0] else operand for operand in head.operands)
                joined = Apply(head.key, operands, head.attributes, head.compute, head.result)
                self.chains[-1] = Elementwise((*before.steps, joined, *item.steps[1:]), item.output)
                self.nodes[-1] = node
                return
        self.chains.append(item)
        self.nodes.append(node)

    def _only_use(self, buffer: Buffer) -> bool:
        tenant = self.homes.tenant(buffer.room)
        return tenant is not None and self.uses[tenant] == 1

    def _free_after(self, buffer: Buffer) -> bool:
        """Whether memory of the arena has one use, and no loop comes back to it."""
        own = buffer.room.constant is None and buffer.room.slot is None and buffer.offset == 0 and buffer.nbytes == buffer.room.nbytes
        return own and not self.open_loops and self.keep is None and self._only_use(buffer)

    def buffer(self, value: Value) -> Buffer | None:
        """The memory of a value, None where kernels cannot be handed it."""
        home = self.home(value)
        return self._as_slot(home) if isinstance(home, Value) else home

    def _as_slot(self, value: Value) -> Buffer | None:
        """A result of Python whose dtype and shape are known, as an array of a slot."""
        if value.container or not addressable(value.dtype) or not known(value.shape):
            return None
        assert value.dtype is not None
        step = self.python_steps.get(value)
        if step is None:
            return None
        slot = self.slot(value.dtype.as_numpy(), ints(value.shape))
        step.slots[step.node.outputs.index(value)] = slot
        buffer = Buffer(value.dtype.as_numpy(), ints(value.shape), self._slot_room(slot))
        self.homes[value] = buffer
        return buffer

    def home(self, value: Value) -> Buffer | Value:
        """Where a value is found that has been planned."""
        if value not in self.homes:
            array = self.constants[value]
            if isinstance(array, Blocks) or not plain(array.dtype):
                self.homes[value] = value
                self.plan.texts[value] = array
            else:
                kept = isinstance(array, Unread) or array.flags.c_contiguous
                whole = array if kept else np.ascontiguousarray(array)  # the very array: what is packed is known by it
                self.homes[value] = Buffer(whole.dtype, whole.shape, Room(whole.nbytes, constant=whole))
        return self.homes[value]

    def _stored(self, value: Value) -> Buffer | None:
        """As `_home`; weights are buffers in every dtype, blocks as the bytes of their rows."""
        array = self.constants.get(value)
        if not isinstance(array, Blocks) and (array is None or array.dtype.kind != "V"):
            return self.buffer(value)
        if value not in self.stored:
            data = array.data if isinstance(array, Blocks) else np.ascontiguousarray(numbers(array))
            self.stored[value] = Buffer(data.dtype, data.shape, Room(data.nbytes, constant=data))
        return self.stored[value]

    def _python(self, task: Task) -> None:
        node = task.node
        if node.op.compute is None:
            raise UnsupportedError("E-OP-MISSING", None, f"no implementation of {node.op.name}", hint="List them with candle-convert ops")
        inputs = [None if value is None else self.home(value) for value in node.inputs]
        used = [value for graph in node.subgraphs for value in captures(graph)]
        constants = {value: self.constants[value] for value in used if value in self.constants}
        captured = {value: self.home(value) for value in used if value not in constants}
        step = PythonStep(node, inputs, captured, [None] * len(node.outputs), dict(node.attributes), task.path, constants)
        self.chains.append(step)
        self.nodes.append(node)
        for value in node.outputs:
            self.homes[value] = value
            self.python_steps[value] = step

    def _cut(self, tasks: deque[Task]) -> None:
        back = {copy: value for value, copy in self.values.items()}
        wanted = {value for task in tasks for value in needed(task.node)} | set(self.results)
        live = [value for value in wanted if (value in self.homes or value in self.constants) and value in back]
        fed = [value for value in live if value not in self.constants]
        weights = {back[value]: self.constants[value] for value in live if value in self.constants}
        rest = type(self.program)(
            [task.original for task in tasks], [back[value] for value in fed], self.program.outputs, weights, self.program.packed,
        )
        rest.paths = [task.path for task in tasks]
        self.plan.rest = rest
        self.plan.live = [self.home(value) for value in fed]

    def nbytes(self, value: Value) -> int:
        """Bytes of a value, 0 where they are not known."""
        if not value.name or value.dtype is None or not known(value.shape):
            return 0
        return size(value.shape) * max(1, value.dtype.bits // 8)
