"""Plan runner: executes one plan step by step."""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from ..base.errors import UsageError
from ..base.limits import current, time_error
from ..base.units import counted
from ..ir.evaluate import as_value, evaluate_node
from ..ir.graph import Graph
from ..plan.plan import COUNTER, FUEL, GOES_ON, TRIPS, Branch, Loop, NativeSegment, Plan, PythonStep, Step
from ..region.region import HostWeight, Region, subregion_of
from .region_program import Subprograms
from .run_options import RunOptions
from .timing import Clock, Event
from .workspace import Workspace

MAX_UNCHECKED_SECONDS = 0.005
"""Seconds a native loop may run between deadline checks."""
MAX_TRIPS = (1 << 63) - 1


class Bailout(Exception):
    """A kernel met values it does not compute; the run is repeated in NumPy."""


class Runnable(Protocol):
    """Runs a region."""

    @property
    def region(self) -> Region[HostWeight]:
        """The region it runs."""

    def run(self, feeds: Sequence[Any], options: RunOptions) -> list[Any]:
        """Outputs for feeds in the order of the region's inputs."""


class Runner:
    """Runs one plan; several threads may do so at once.

    Attributes:
        rest: runs the rest of the region, which is planned once shapes are known; None if the plan covers all.
    """

    def __init__(self, plan: Plan, packed: dict[Any, Any], program: Callable[[Region[HostWeight]], Runnable]) -> None:
        self.plan = plan
        self.rest = None if plan.rest is None else program(plan.rest)
        self._packed = packed
        self._program = program
        self._free: list[Workspace] = []
        self._subprograms: Subprograms[Runnable] = Subprograms()

    @property
    def idle(self) -> int:
        """Bytes of workspaces kept for later runs."""
        return sum(memory.arena.nbytes for memory in tuple(self._free))

    def release(self) -> None:
        """Free the workspaces."""
        self._free.clear()

    def run(self, feeds: Sequence[Any], run: RunOptions) -> list[Any]:
        """Run the plan; outputs share no memory with anything else, in-place inputs aside."""
        try:
            memory = self._free.pop()
        except IndexError:
            memory = Workspace(self.plan)
        try:
            return self._run(memory, feeds, run)
        finally:
            memory.forget()
            self._free.append(memory)

    def _run(self, memory: Workspace, feeds: Sequence[Any], run: RunOptions) -> list[Any]:
        plan = self.plan
        if plan.objects:
            memory.objects.update(plan.objects)
        for location, feed in zip(plan.inputs, feeds, strict=True):
            if isinstance(location, int):
                memory.put(location, feed)
            elif location is not None:
                memory.objects[location] = feed
        for slot in plan.output_slots:
            memory.new_output(slot)
        if memory.bailout is not None:
            memory.bailout[0] = 0
        self._steps(memory, plan.steps, run)
        if self.rest is not None:
            results = self.rest.run([memory.get(location) for location in plan.live], run)
        else:
            results = [memory.get(location) for location in plan.outputs]
        own = {id(memory.arrays[slot]) for slot in (*plan.output_slots, *plan.inplace_slots)}
        return [result if id(result) in own else memory.owned(result, feeds) for result in results]

    def _steps(self, memory: Workspace, steps: Sequence[Step], run: RunOptions) -> None:
        """Run steps; recursion is bounded by the nesting limit of subgraphs."""
        for step in steps:
            if run.clock is not None and isinstance(step, NativeSegment | PythonStep):
                self._timed(memory, step, run, run.clock)
            elif isinstance(step, NativeSegment):
                memory.walk(step.start, step.stop, run.threads if step.parallel else 1)
                if memory.bailout is not None and memory.bailout[0]:
                    raise Bailout
            elif isinstance(step, PythonStep):
                self._python(memory, step, run)
            elif isinstance(step, Branch):
                self._steps(memory, step.then if memory.get(step.condition).reshape(-1)[0] else step.other, run)
            elif isinstance(step, Loop):
                self._loop(memory, step, run)
            elif run.on_tap is not None:
                run.on_tap(step.name, _copied(memory.get(step.location)))
            if step.frees:
                memory.free(step.frees)
            if run.deadline != math.inf:
                run.check_deadline()

    def _timed(self, memory: Workspace, step: NativeSegment | PythonStep, run: RunOptions, clock: Clock) -> None:
        if isinstance(step, PythonStep):
            began = time.monotonic_ns()
            self._python(memory, step, run)
            clock.events.append(Event(step.node, None, began, time.monotonic_ns()))
            return
        memory.walk(step.start, step.stop, run.threads if step.parallel else 1, clock.address)
        for address, began, ended in clock.drained():
            launch, node = self.plan.launches[memory.code.position(address)]
            clock.events.append(Event(node, launch, began, ended))

    def _loop(self, memory: Workspace, step: Loop, run: RunOptions) -> None:
        trips = step.limit if step.trips is None else int(memory.get(step.trips).reshape(-1)[0])
        cells = memory.get(step.cells)
        cells[COUNTER] = 0
        cells[TRIPS] = MAX_TRIPS if trips is None else min(trips, MAX_TRIPS)
        cells[GOES_ON] = cells[TRIPS] > 0 and (
            step.condition is None or bool(memory.get(step.condition).reshape(-1)[0])
        )
        end, fuel = min(run.deadline, time.monotonic() + current().time), 1
        while cells[GOES_ON]:
            cells[FUEL] = fuel
            began = time.monotonic()
            self._steps(memory, step.body, run)
            now = time.monotonic()
            if now > end:
                raise time_error(step.operator, found=counted(cells[COUNTER], "iteration"))
            if step.is_native and now - began < MAX_UNCHECKED_SECONDS:
                fuel *= 2

    def _python(self, memory: Workspace, step: PythonStep, run: RunOptions) -> None:
        inputs = [None if location is None else memory.get(location) for location in step.inputs]
        subgraph = functools.partial(self._subgraph, memory, step, run)
        results = evaluate_node(step.node, inputs, step.attributes, subgraph)
        for (value, result), slot in zip(results, step.slots, strict=False):
            found = memory.private_copy(as_value(result))
            memory.objects[value] = found
            if slot is None:
                continue
            dtype, shape = self.plan.slots[slot]
            if found is None or found.dtype != dtype or found.shape != shape:
                raise UsageError(
                    "E-RUN-SHAPE",
                    None,
                    f"{step.node.op.name} returned an output of an unexpected dtype or shape",
                    expected=f"{dtype}{list(shape)}",
                    found=None if found is None else f"{found.dtype}{list(found.shape)}",
                    hint="Please report it",
                )
            memory.put(slot, found)

    def _subgraph(
        self, memory: Workspace, step: PythonStep, run: RunOptions, graph: Graph, inputs: Sequence[Any]
    ) -> list[Any]:

        def made() -> Runnable:
            name = next((name for name, value in step.node.attributes.items() if value is graph), "")
            path = f"{step.path}{step.node.name or step.node.outputs[0].name}/{name}/"
            return self._program(subregion_of(graph, self._packed, step.constants, path))

        program = self._subprograms.of(graph, made)
        fed = [as_value(item) for item in inputs]
        fed += [memory.get(step.captured[value]) for value in program.region.inputs[len(graph.inputs) :]]
        return program.run(fed, run)


def _copied(value: Any) -> Any:
    """A copy that `on_tap` may keep."""
    return (
        value.copy()
        if isinstance(value, np.ndarray)
        else [_copied(item) for item in value]
        if isinstance(value, list)
        else value
    )
