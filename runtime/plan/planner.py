"""CPU planner: turns the nodes of a region into the steps of a plan.

Nodes are inferred with the shapes at hand. What follows from constants is computed once, here. A node runs natively
when its operator has a planner that takes it; otherwise its `compute` runs in Python. Where a shape depends on data,
the plan ends: the nodes after it are a program of their own, planned when the shape is known.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..base.dataclass import dataclass
from ..base.errors import Error
from ..base.memory_check import check_memory
from ..base.units import counted
from ..ir.clone import captures, needed
from ..ir.cost import operations
from ..ir.evaluate import locate
from ..ir.graph import Graph, Node, Value
from ..ir.shape_inference import MALFORMED
from ..region.region import HostWeight, Region, host_weights
from ..tensor.weight_array import Blocks, LazyWeight, as_array
from .control_flow import CONTROLS, Unplanned
from .elementwise_fusion import LONGEST, SPECIALIZED
from .input_signature import Signature, Specialized
from .kernel_api import Allocation, Buffer, Chain, Step, View, accepts_empty, bailout_flag, join, planner_of
from .plan import Mark, Plan, PythonStep, Tap, addressable, described, dtype_of_numpy, ints, is_static, plain, size
from .region_planner import RegionPlanner, check_implemented

if TYPE_CHECKING:
    from ..base.untrusted.regex import Searcher

MIN_PLANNED_NODES = 6
"""Minimum nodes after a data-dependent shape that are planned separately once the shape is known."""


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


class Planner(RegionPlanner[HostWeight, Buffer | Value]):
    """Makes one plan."""

    max_fused = LONGEST

    def __init__(
        self, region: Region[HostWeight], feeds: Sequence[Any], threads: int, native: bool, keep: Searcher | None
    ) -> None:
        super().__init__(region, keep)
        self.threads = threads
        self.native = native
        self.plan = Plan()
        self.stored: dict[Value, Buffer] = {}
        self.open_loops = 0
        self.python_steps: dict[Value, PythonStep] = {}
        self.work, self.hardest = 0.0, (0.0, "")
        self.scratch: list[tuple[Allocation, int]] = []
        self.bailout = bailout_flag()
        self.copied_inputs: dict[Any, Buffer] = {}
        self.used: list[Value] = []
        self.reads: Counter[Value] = Counter()
        self.read: list[Value] = []
        self.replaced: list[tuple[Value, Value | None]] = []
        for value, feed in zip(region.inputs, feeds, strict=True):
            self._feed(self.copy_of(value), feed, value)
            location = self.locations.get(self.copy_of(value))
            if (
                value.name in region.inplace_inputs
                and isinstance(location, Buffer)
                and location.allocation.slot is not None
            ):
                location.allocation.writable = True
                self.plan.inplace_slots.append(location.allocation.slot)

    def use(self, values: Iterable[Value]) -> None:
        """Count one more use of each value; recorded in `used`, so that an attempt can be rolled back."""
        found = list(values)
        self.uses.update(found)
        self.used += found

    def _feed(self, value: Value, feed: Any, described: Value) -> None:
        if isinstance(feed, Signature):
            value.dtype, value.shape = dtype_of_numpy(feed.dtype), feed.shape
            slot = self.slot(feed.dtype, feed.shape)
            self.locations[value] = Buffer(feed.dtype, feed.shape, self._slot_allocation(slot))
            self.plan.inputs.append(slot)
            return
        if isinstance(feed, Specialized):
            self.constant(value, np.full(feed.shape, feed.value, feed.dtype))
            self.plan.inputs.append(None)
            return
        value.container, value.dtype = described.container, described.dtype
        if isinstance(feed, tuple):
            value.dtype, value.shape = feed
        self.locations[value] = value
        self.plan.inputs.append(value)

    def slot(self, dtype: np.dtype[Any], shape: tuple[int, ...]) -> int:
        """A new slot for an array of a run."""
        self.plan.slots.append((dtype, shape))
        return len(self.plan.slots) - 1

    def _slot_allocation(self, slot: int) -> Allocation:
        dtype, shape = self.plan.slots[slot]
        return Allocation(math.prod(shape) * dtype.itemsize, slot=slot)

    def run(self) -> None:
        """Plan all nodes, or those before a data-dependent shape; the others become the rest of the plan."""
        nodes = zip(self.copies, self.region.nodes, self.region.paths, strict=True)
        if self._tasks(deque(Task(*node) for node in nodes), MIN_PLANNED_NODES if self.native else len(self.copies)):
            self.plan.outputs = [self.location(value) for value in self.results]

    def _tasks(self, tasks: deque[Task], worth: int) -> bool:
        """Plan tasks until a shape depends on data and at least `worth` nodes are left; whether all are planned."""
        while tasks:
            task = tasks.popleft()
            self._node(task, tasks)
            if len(tasks) >= worth and self.shape_depends_on_data(task.node.outputs):
                self._cut(tasks)
                return False
        return True

    def body(self, graph: Graph, original: Graph, path: str) -> None:
        """Plan the nodes of a subgraph at the current position.

        Raises Unplanned where a shape inside depends on data.
        """
        inner = self.spliced(graph, original, path)
        while inner:
            task = inner.popleft()
            self._node(task, inner)
            if len(inner) >= MIN_PLANNED_NODES and self.shape_depends_on_data(task.node.outputs):
                raise Unplanned

    def weights_of(self, graph: Graph) -> dict[Value, HostWeight]:
        """The weights of a subgraph."""
        return host_weights(graph, self.region.packed)

    def spliced(self, graph: Graph, original: Graph, path: str) -> deque[Task]:
        """The nodes of a subgraph as tasks; registers its weights as constants."""
        for value, array in self.weights_of(graph).items():
            self.constant(value, array, value.dtype)
        self.use(value for node in graph.nodes for value in needed(node))
        self.use(graph.outputs)
        return deque(Task(node, one, path) for node, one in zip(graph.nodes, original.nodes, strict=True))

    def _node(self, task: Task, tasks: deque[Task]) -> None:
        node = task.node
        tapped = (
            []
            if self.keep is None
            else [value for value in node.outputs if value.name and self.keep.search(task.path + value.name)]
        )
        self.use(tapped)
        try:
            self.facts.infer_node(node)
        except Error as error:
            locate(error, node, node.inputs)
            raise
        if not any(self.uses[value] for value in node.outputs):
            return
        control = CONTROLS.get(node.op)
        if (
            not (control and control(self, task, tasks))
            and not self.fold(node)
            and not (self.native and self._planned(node))
        ):
            self._python(task)
        self._worked(node)
        for value in tapped:
            if value in self.locations or value in self.constants:
                location = self.location(value)
                self.mark(Mark("tap", Tap(task.path + value.name, location), [location]), node)

    def _worked(self, node: Node) -> None:
        if all(value in self.constants for value in node.outputs):
            return
        count = operations(node)
        self.work += count
        if count > self.hardest[0]:
            self.hardest = (count, f"{described(node)} with {count:.3g} operations")

    def alias(self, value: Value, other: Value) -> None:
        """Make a value an alias of a planned value."""
        value.dtype, value.shape, value.container = other.dtype, other.shape, other.container
        if other in self.constants:
            self.constants[value] = self.constants[other]
        else:
            self.locations[value] = self.location(other)
        if other in self.facts.partial:
            self.facts.partial[value] = self.facts.partial[other]

    def mark(self, mark: Mark, node: Node) -> None:
        """Append a mark."""
        self.open_loops += {"loop": 1, "again": -1}.get(mark.kind, 0)
        self.add(mark, node)

    def _planned(self, node: Node) -> bool:
        planner = planner_of(node.op)
        if planner is None:
            return False
        inputs: list[Buffer | None] = []
        for value in node.inputs:
            location = None if value is None else self._stored(value) if node.op.stored else self.buffer(value)
            if value is not None and (location is None or (not location.count and not accepts_empty(node.op))):
                return False
            inputs.append(location)
        for value in filter(self.is_used, node.outputs):
            if value.container or not addressable(value.dtype) or not is_static(value.shape) or not size(value.shape):
                return False
        results = self.results_of(node)
        nbytes = sum(dtype.itemsize * math.prod(shape) for dtype, shape in filter(None, results))
        if nbytes > sum(buffer.nbytes for buffer in filter(None, inputs)):  # before a planner lists its places
            check_memory(nbytes, 0, f"{described(node)} with {counted(nbytes, 'byte')}")
        attributes = {**node.op.defaults, **node.attributes}
        step = Step(
            node,
            inputs,
            attributes,
            results,
            self.region.packed,
            self.may_overwrite,
            threads=self.threads,
            bailout=self.bailout,
            decodes=bool(self.region.inplace_inputs),
            readers=self.readers,
            copies=self.copied_inputs,
        )
        try:
            planned = planner(step)
        except MALFORMED:  # the node is not what its operator takes: `compute` says why
            return False
        if planned is None:
            return False
        if isinstance(planned, View):
            assert results[0] is not None
            self.locations[node.outputs[0]] = planned.buffer.view(results[0][1])
            return True
        for value, (index, _) in zip(node.outputs, enumerate(results), strict=True):
            if index in step.outputs:
                self.locations[value] = step.outputs[index]
        found = [value for value in node.inputs if value is not None]
        self.reads.update(found)
        self.read += found
        position = len(self.steps)
        for launch in planned if isinstance(planned, list) else [planned]:
            self.append(launch, node)
        made = {buffer.allocation for buffer in step.outputs.values()}
        self.scratch += [(allocation, position) for allocation in step.allocations if allocation not in made]
        return True

    def append(self, step: Any, node: Node) -> None:
        """Append a step; small chains are not fused with each other: their kernels are shared."""
        small = isinstance(step, Chain) and step.output.count < SPECIALIZED
        if small and self.steps and isinstance(self.steps[-1], Chain):
            self.add(step, node)
        else:
            super().append(step, node)
            while not small and self._join():
                pass

    def _join(self) -> bool:
        """Join the last chain with the one before it, whose output nothing else reads; whether that was done."""
        before, last = self.steps[-2:] if len(self.steps) > 1 else (None, None)
        if not (isinstance(before, Chain) and isinstance(last, Chain)) or self.keep:
            return False
        occupant = self.locations.sole_occupant(before.output.allocation)
        if occupant is None or self.uses[occupant] != self.reads[occupant]:
            return False
        joined = join(before, last, self.max_fused)
        if joined is None:
            return False
        self.steps[-2:], self.nodes[-2:] = [joined], self.nodes[-1:]
        return True

    def may_overwrite(self, buffer: Buffer) -> bool:
        """As the base, outside of loops, which repeat the use, and for in-place inputs before any control flow."""
        if buffer.allocation.writable:
            repeated = any(isinstance(item, Mark) for item in self.steps)
        else:
            repeated = self.open_loops > 0 or self.keep is not None
        return not repeated and super().may_overwrite(buffer)

    def readers(self, buffer: Buffer) -> int:
        """Number of nodes that read an input of the run that no launch changes; 0 for other buffers, and where control
        flow decides on what runs."""
        occupant = self.locations.sole_occupant(buffer.allocation)
        fed = buffer.allocation.slot in self.plan.inputs and not buffer.allocation.writable
        if occupant is None or not fed or any(isinstance(item, Mark) for item in self.steps):
            return 0
        return self.uses[occupant]

    def buffer(self, value: Value) -> Buffer | None:
        """The buffer of a value, None if kernels cannot address it."""
        location = self.location(value)
        return self._as_slot(location) if isinstance(location, Value) else location

    def _as_slot(self, value: Value) -> Buffer | None:
        """The slot buffer of a Python result whose dtype and shape are known."""
        if value.container or not addressable(value.dtype) or not is_static(value.shape):
            return None
        assert value.dtype is not None
        step = self.python_steps.get(value)
        if step is None:
            return None
        slot = self.slot(value.dtype.as_numpy(), ints(value.shape))
        step.slots[step.node.outputs.index(value)] = slot
        buffer = Buffer(value.dtype.as_numpy(), ints(value.shape), self._slot_allocation(slot))
        self.locations[value] = buffer
        return buffer

    def location(self, value: Value) -> Buffer | Value:
        """The location of a planned value."""
        if value not in self.locations:
            array = self.constants[value]
            if isinstance(array, Blocks) or not plain(array.dtype):
                self.locations[value] = value
                self.plan.objects[value] = array
            else:
                kept = isinstance(array, LazyWeight) or array.flags.c_contiguous
                whole = array if kept else np.ascontiguousarray(array)  # the very array: what is packed is known by it
                self.locations[value] = Buffer(whole.dtype, whole.shape, Allocation(whole.nbytes, constant=whole))
        return self.locations[value]

    def _stored(self, value: Value) -> Buffer | None:
        """Like `location`, but weights of every dtype are buffers; blocks are the bytes of their rows."""
        array = self.constants.get(value)
        if not isinstance(array, Blocks) and (array is None or array.dtype.kind != "V"):
            return self.buffer(value)
        if value not in self.stored:
            data = array.data if isinstance(array, Blocks) else np.ascontiguousarray(as_array(array))
            self.stored[value] = Buffer(data.dtype, data.shape, Allocation(data.nbytes, constant=data))
        return self.stored[value]

    def _python(self, task: Task) -> None:
        node = task.node
        check_implemented(node)
        inputs = [None if value is None else self.location(value) for value in node.inputs]
        used = [value for graph in node.subgraphs for value in captures(graph)]
        constants = {value: self.constants[value] for value in used if value in self.constants}
        captured = {value: self.location(value) for value in used if value not in constants}
        step = PythonStep(
            node, inputs, captured, [None] * len(node.outputs), dict(node.attributes), task.path, constants
        )
        self.add(step, node)
        for value in node.outputs:
            self.locations[value] = value
            self.python_steps[value] = step

    def _cut(self, tasks: deque[Task]) -> None:
        back = {copy: value for value, copy in self.values.items()}
        known = [value for value in self.locations if value in back]
        fed, constants = self.needed_later([task.node for task in tasks], set(known))
        weights = {back[value]: array for value, array in constants.items() if value in back}
        nodes, paths = [task.original for task in tasks], [task.path for task in tasks]
        self.plan.rest = Region(
            nodes, [back[value] for value in fed], self.region.outputs, weights, self.region.packed, paths
        )
        self.plan.live = [self.location(value) for value in fed]

    def nbytes(self, value: Value) -> int:
        """Bytes of a value, 0 if unknown."""
        if not value.name or value.dtype is None or not is_static(value.shape):
            return 0
        return size(value.shape) * max(1, value.dtype.bits // 8)
