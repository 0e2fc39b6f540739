"""Device program: runs a region on a device, with a plan for each set of input shapes."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from ...base.errors import UsageError
from ...execute.region_program import RegionProgram, Subprograms
from ...ir.clone import captures
from ...ir.evaluate import as_value, by_output, evaluate_node, owned, used_outputs
from ...ir.graph import Graph, Node, Value
from ...plan.kernel_api import Buffer
from ...plan.plan import dtype_of
from ...region.region import Region
from ...tensor.stored_tensor import StoredTensor
from ...tensor.weight_array import Blocks, Packed, as_array
from ..device.device import use_device
from ..kernel.kernel import Launch
from ..memory.device_array import DeviceArray
from ..memory.host_weight import DeviceWeight, weights_of
from ..memory.pool import Arena, PoolShare
from ..memory.run_memory import Memory
from ..plan.kernel_api import CONTROL_FLOW, MAX_SPECIALIZED_ELEMENTS, specialized_inputs
from ..plan.plan import Control, Download, Draw, Fixed, HostStep, OnDevice, OnHost, Plan, Upload
from ..plan.planner import Planner
from .control_flow import DeviceCall, detach, to_host
from .graph_replay import MIN_LAUNCHES, Replays, segments
from .timing import current_clock, record_step

Tap = Callable[[str, np.ndarray], None]


class Program(RegionProgram[DeviceWeight, "Runner"]):
    """Runs a region on a device.

    Attributes:
        decides: for each input, whether its values decide what a node is.
        left: nodes that are not in it: none.
    """

    def __init__(self, region: Region[DeviceWeight], pool: PoolShare) -> None:
        super().__init__(region)
        self.pool = pool
        self.left: list[Node] = []
        self._defaults: dict[int, Fixed] = {}
        asked = {value for node in region.nodes for value in specialized_inputs(node)}
        self.decides = [value in asked for value in region.inputs]

    def apply(
        self, nodes: Sequence[Node], inputs: Sequence[Value], outputs: Sequence[Value], arrays: Sequence[Any]
    ) -> list[Any]:
        """Run nodes with arrays on the same device; outputs stay there."""
        return Program(Region(nodes, inputs, outputs, {}, self.region.packed), self.pool).run(arrays, on_device=True)

    def run(
        self,
        feeds: Sequence[Any],
        keep: frozenset[str] | None = None,
        on_tap: Tap | None = None,
        on_device: bool | None = False,
        move: bool = True,
    ) -> list[Any]:
        """Outputs for arrays (or lists, maps, None) in the order of `inputs`: on the host, on the device, or
        wherever they are for None."""
        with use_device(self.pool.number):
            read = read_specialized_inputs(self, feeds)
            return self.runner(read, keep or frozenset()).run(read, on_tap, on_device)

    def runner(self, feeds: Sequence[Any], keep: frozenset[str] = frozenset()) -> Runner:
        """The runner for feeds of these dtypes and shapes."""
        signatures = tuple(
            self._defaults.setdefault(id(feed), Fixed(feed))
            if isinstance(feed, StoredTensor)
            else describe_feed(feed, decides)
            for feed, decides in zip(feeds, self.decides, strict=True)
        )
        runner = self._plans.get((signatures, keep))
        if runner is None:
            runner = Runner(Planner(self.region, signatures, keep, self.pool.number).make_plan(), self)
        return self._used((signatures, keep), runner)

    @property
    def nodes(self) -> Sequence[Node]:
        """Nodes of the region."""
        return self.region.nodes


def describe_feed(feed: Any, decides: bool) -> OnDevice | OnHost:
    """The planner's description of a feed; with `decides`, including its value."""
    if isinstance(feed, DeviceArray):
        return OnDevice(feed.dtype, feed.shape)
    if isinstance(feed, np.ndarray):
        data = (
            feed.tobytes() if decides and feed.dtype.kind in "fiubV" and feed.size <= MAX_SPECIALIZED_ELEMENTS else None
        )
        return OnHost(dtype_of(feed), feed.shape, data)
    return OnHost(None, None)


class Runner:
    """Runs one plan; thread-safe.

    Attributes:
        rest: runs what the plan leaves, None where it leaves nothing.
    """

    def __init__(self, plan: Plan, program: Program) -> None:
        self.plan = plan
        self.program = program
        self.rest = None if plan.rest is None else Program(plan.rest, program.pool)
        program.pool.check(plan.weights, plan.arena)
        self._memories: WeakKeyDictionary[Arena, Memory] = WeakKeyDictionary()
        self._subprograms: Subprograms[Program] = Subprograms()
        self._segments = segments(plan.steps, Launch)
        self.replays = Replays(program.pool.number)

    @property
    def below(self) -> list[Program]:
        """Programs of subgraphs that have run."""
        return self._subprograms.made

    def run(self, feeds: Sequence[Any], on_tap: Tap | None = None, on_device: bool | None = False) -> list[Any]:
        """Outputs, which share no memory with anything else."""
        share = self.program.pool
        arena = share.take(self.plan.arena)
        try:
            memory = self._memories.get(arena)
            if memory is None:
                memory = self._memories[arena] = self._memory(arena)
            return self._run(memory, feeds, on_tap, on_device)
        finally:
            share.give(arena)

    def _memory(self, arena: Arena) -> Memory:
        """The memory of a run in an arena; uploads missing weights."""
        plan, share = self.plan, self.program.pool
        for key, array in plan.weights.items():
            if array.nbytes and key not in plan.uploaded:
                plan.uploaded[key] = share.weight(array)
        weights = {key: weight.bytes for key, weight in plan.uploaded.items()}
        return Memory(arena.bytes, weights, len(plan.inputs), share)

    def _run(self, memory: Memory, feeds: Sequence[Any], on_tap: Tap | None, on_device: bool | None) -> list[Any]:
        plan = self.plan
        objects: dict[Value, Any] = dict(plan.objects)
        for place, feed in zip(plan.inputs, feeds, strict=True):
            if isinstance(place, int):
                memory.slots[place] = feed.bytes
            elif place is not None and not isinstance(feed, StoredTensor):
                objects[place] = feed
        if plan.flagged is not None:
            memory.upload(plan.flagged, np.zeros(len(plan.flags), np.uint8))
        clock = current_clock()
        if clock is None:
            for number, step in enumerate(self._segments):
                self._step(memory, number, step, objects)
        else:
            for step, node in zip(plan.steps, plan.nodes, strict=True):
                alone = (step,) if isinstance(step, Launch) else step
                record_step(clock, node, step, functools.partial(self._step, memory, 0, alone, objects))
        raised = memory.download(plan.flagged) if plan.flagged is not None else ()
        for flag, (_, why) in zip(raised, plan.flags, strict=True):
            if flag:
                raise UsageError("E-OP-INDEX", None, why, hint="Compare the inputs with what the model expects")
        if on_tap is not None:
            for name, location in plan.taps.items():
                on_tap(
                    name,
                    np.array(to_host(objects[location]))
                    if isinstance(location, Value)
                    else memory.array(location).numpy(),
                )
        known = (*feeds, *plan.objects.values())
        if self.rest is None:
            if on_device:
                return [self._staying(memory, location, feeds, objects) for location in plan.outputs]
            if on_device is None:
                return [
                    memory.persistent_copy(location)
                    if isinstance(location, Buffer)
                    else owned(objects[location], known)
                    for location in plan.outputs
                ]
            return [
                memory.download(location) if isinstance(location, Buffer) else owned(to_host(objects[location]), known)
                for location in plan.outputs
            ]
        live = [objects[location] if isinstance(location, Value) else memory.array(location) for location in plan.live]
        found = self.rest.run(live, on_device=on_device)
        return found if on_device else [owned(result, known) for result in found]

    def _step(self, memory: Memory, number: int, step: Any, objects: dict[Value, Any]) -> None:
        """Run one step, or a segment of launches."""
        if isinstance(step, tuple):
            self._launch(memory, number, step)
        elif isinstance(step, Upload):
            self._upload(memory, step, objects[step.value])
        elif isinstance(step, Download):
            objects[step.value] = memory.download(step.buffer)
        elif isinstance(step, Draw):
            memory.upload(step.buffer, np.frombuffer(os.urandom(step.buffer.nbytes), np.int64))
        elif isinstance(step, Control):
            self._control(memory, step, objects)
        else:
            self._on_host(memory, step, objects)

    def _launch(self, memory: Memory, number: int, launches: Sequence[Launch]) -> None:
        """Run a segment of launches, as a CUDA graph if its memory was used before."""

        def launched(stream: Any) -> None:
            for step in launches:
                step.kernel.launch(
                    step.blocks,
                    [memory.view(item) if isinstance(item, Buffer) else item for item in step.arguments],
                    stream,
                )

        if len(launches) < MIN_LAUNCHES:
            launched(0)
        else:
            self.replays.run((number, *memory.addresses()), launched)

    def _staying(
        self, memory: Memory, location: Buffer | Value, feeds: Sequence[Any], objects: Mapping[Value, Any]
    ) -> Any:
        """An output on the device: the array of an in-place input if the output aliases it, else memory of its own."""
        if not isinstance(location, Buffer):
            return memory.uploaded(objects[location])
        if (
            location.allocation.writable
            and location.allocation.slot is not None
            and location.nbytes == location.allocation.nbytes
        ):
            feed = feeds[location.allocation.slot]
            return DeviceArray(location.dtype, location.shape, feed.bytes, feed if feed.owner is None else feed.owner)
        return memory.persistent_copy(location)

    def _upload(self, memory: Memory, step: Upload, found: Any) -> None:
        array = found if isinstance(found, DeviceArray) else np.asarray(found)
        if array.dtype != step.buffer.dtype or array.shape != step.buffer.shape:
            raise UsageError(
                "E-RUN-SHAPE",
                None,
                f"{step.value.name!r} does not have the dtype and shape that the graph declares",
                expected=f"{step.buffer.dtype}{list(step.buffer.shape)}",
                found=f"{array.dtype}{list(array.shape)}",
                hint="Please report it",
            )
        if isinstance(array, DeviceArray):
            memory.fill(step.buffer, array)
        else:
            memory.upload(step.buffer, array)

    def _on_host(self, memory: Memory, step: HostStep, objects: dict[Value, Any]) -> None:
        inputs = [None if value is None else to_host(objects[value]) for value in step.inputs]
        run = functools.partial(self._subgraph, memory, step, objects)
        results = evaluate_node(step.node, inputs, step.node.attributes, run)
        objects.update((value, as_value(result)) for value, result in results)

    def _control(self, memory: Memory, step: Control, objects: dict[Value, Any]) -> None:
        """Run a control-flow node; its subgraphs' results stay on the device."""
        node = step.node
        attributes = node.attributes
        rule = CONTROL_FLOW[node.op]
        compute = rule.compute or node.op.compute
        assert compute is not None
        if rule.compute is not None or node.op.asks:
            run = functools.partial(self._subgraph, memory, step, objects)
            call = DeviceCall(node, used_outputs(node), run, self.program.pool, self.program.apply)
            attributes = {**attributes, "call": call}
        inputs = [
            None if location is None else as_array(self._found(memory, location, objects)) for location in step.inputs
        ]
        results = compute(
            *(to_host(item) if index in rule.host_inputs else item for index, item in enumerate(inputs)), **attributes
        )
        objects.update((value, detach(result, self.program.pool)) for value, result in by_output(node, results))

    def _found(self, memory: Memory, location: Buffer | Value, objects: dict[Value, Any]) -> Any:
        return memory.array(location) if isinstance(location, Buffer) else objects[location]

    def _subgraph(
        self, memory: Memory, step: HostStep | Control, objects: dict[Value, Any], graph: Graph, inputs: Sequence[Any]
    ) -> list[Any]:
        """Results of a subgraph: on the host for a host step, else wherever they are."""
        known = {value: objects[location] for value, location in step.captured.items() if isinstance(location, Value)}
        weights = {value: found for value, found in known.items() if isinstance(found, Blocks | Packed)}
        around = [value for value in captures(graph) if value not in weights]

        def made() -> Program:
            fed, packed = [*graph.inputs, *around], self.program.region.packed
            region = Region(graph.nodes, fed, graph.outputs, weights_of(graph) | weights, packed)
            return Program(region, self.program.pool)

        below = self._subprograms.of(graph, made)
        fed = [item if isinstance(item, DeviceArray) else as_value(item) for item in inputs]
        fed += [self._found(memory, step.captured[value], objects) for value in around]
        return below.run(fed, on_device=None if isinstance(step, Control) else False)


def read_specialized_inputs(program: Program, feeds: Sequence[Any]) -> list[Any]:
    """Read small device arrays whose values a plan is specialized to, among the feeds of a program.

    Raises UsageError for an array of another device.
    """
    for feed in feeds:
        number = getattr(feed.owner, "number", None) if isinstance(feed, DeviceArray) else None
        if number not in (None, program.pool.number):
            why = f"an array on device {number} is fed to a session on device {program.pool.number}"
            raise UsageError("E-DEVICE-ARRAY", None, why, hint="Copy the array to the session's device first")
    return [
        feed.numpy() if decides and isinstance(feed, DeviceArray) and feed.size <= MAX_SPECIALIZED_ELEMENTS else feed
        for feed, decides in zip(feeds, program.decides, strict=True)
    ]
