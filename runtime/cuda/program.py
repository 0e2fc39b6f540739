"""Device programs: a list of nodes made ready to run on a device for the shapes that come."""

from __future__ import annotations

import functools
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..blocks import Blocks, Packed, numbers, taken
from ..copies import captures, needed
from ..errors import UsageError
from ..graph import Graph, Node, Value
from ..launch import Buffer
from ..op import Call
from ..plan import dtype_of
from ..tensor import Tensor
from .array import DeviceArray
from .controlled import DeviceCall, fetched, own
from .hosted import once
from .kernel import Launch
from .machine import number_of, on
from .memory import Memory
from .place import CONTROLLED, DECIDING_ELEMENTS, deciding, kernels
from .plan import Control, Download, Draw, Fixed, HostStep, OnDevice, OnHost, Plan, Upload
from .planner import Planner
from .pool import Share, pool_of
from .replay import SHORTEST, Replays, stretches
from .timed import noted, watched

if TYPE_CHECKING:
    from .divided import Divided

PLANS = 32
"""Plans that are kept for the shapes seen last."""
Tap = Callable[[str, np.ndarray], None]


class Program:
    """Nodes that compute outputs from inputs and weights on a device.

    Attributes:
        inputs: fed ones first; for a subgraph, the values that it uses from around follow.
        decides: for each input, whether its values decide what a node is.
        cache: what planners have made of weights, shared by all programs of a session.
        lent: names of inputs whose arrays on the device may be written into and become outputs.
        left: nodes that are not in it: none.
    """

    def __init__(
        self, nodes: Sequence[Node], inputs: Sequence[Value], outputs: Sequence[Value], weights: Mapping[Value, np.ndarray | Blocks | Packed],
        pool: Share, cache: dict[Any, np.ndarray], lent: Collection[str] = (),
    ) -> None:
        self.nodes = list(nodes)
        self.inputs = list(inputs)
        self.outputs = list(outputs)
        self.weights = dict(weights)
        self.pool = pool
        self.cache = cache
        self.lent = frozenset(lent)
        self.left: list[Node] = []
        self._plans: OrderedDict[Any, Runner] = OrderedDict()
        self._defaults: dict[int, Fixed] = {}
        asked = {value for node in self.nodes for value in deciding(node)}
        self.decides = [value in asked for value in self.inputs]
        self._lock = threading.Lock()

    def sub(
        self, nodes: Sequence[Node], inputs: Sequence[Value], outputs: Sequence[Value], weights: Mapping[Value, np.ndarray | Blocks | Packed],
    ) -> Program:
        """A program of nodes on the same device."""
        return Program(nodes, inputs, outputs, weights, self.pool, self.cache)

    def run(
        self, feeds: Sequence[Any], keep: frozenset[str] | None = None, on_tap: Tap | None = None, on_device: bool | None = False, move: bool = True,
    ) -> list[Any]:
        """Outputs for arrays (or lists, maps, None) in the order of `inputs`: on the host, on the device, or where they are for None."""
        with on(self.pool.number):
            read = told(self, feeds)
            return self.runner(read, keep or frozenset()).run(read, on_tap, on_device)

    def runner(self, feeds: Sequence[Any], keep: frozenset[str] = frozenset()) -> Runner:
        """What runs feeds of these dtypes and shapes."""
        signatures = tuple(
            self._defaults.setdefault(id(feed), Fixed(feed)) if isinstance(feed, Tensor) else described(feed, decides)
            for feed, decides in zip(feeds, self.decides, strict=True)
        )
        runner = self._plans.get((signatures, keep))
        if runner is None:
            made = Runner(Planner(self, signatures, keep).made(), self)
            with self._lock:
                runner = self._plans.setdefault((signatures, keep), made)
                while len(self._plans) > PLANS:
                    self._plans.popitem(last=False)
        return runner

    @property
    def runners(self) -> list[Runner]:
        """What has been planned."""
        return list(self._plans.values())

    @property
    def plans(self) -> list[Plan]:
        """The plans that are cached."""
        return [runner.plan for runner in self.runners]


def of_graph(
    graph: Graph, device: str, memory: int | None = None, lent: Collection[str] = (), layers: int | str | None = None, threads: int = 1,
    packed: dict[Any, Any] | None = None,
) -> Program | Divided:
    """The program of a whole graph on a device (``cuda``, ``cuda:1``).

    Args:
        memory: the most bytes that all sessions may hold there together.
        layers: how many layers run there, ``auto`` for those that fit, all where None; the others run on the CPU with so many `threads`.
        packed: what is made of weights for the CPU, shared by all programs of a session.
    """
    pool = Share(pool_of(number_of(device)), memory)
    kernels()
    if layers is not None:
        from .divided import divided

        found = divided(graph, layers, pool, threads, {} if packed is None else packed, lent)
        if found is not None:
            return found
    return Program(graph.nodes, graph.inputs, graph.outputs, weights_of(graph), pool, {}, lent)


def weights_of(graph: Graph) -> dict[Value, np.ndarray | Blocks | Packed]:
    """The weights that are used and not fed, quantized ones as their blocks; bytes of a file that several are, here or elsewhere, are held once."""
    used = {value for node in graph.nodes for value in needed(node)} | set(graph.outputs)
    same: dict[int, np.ndarray | Blocks | Packed] = {}
    found = {}
    for name, tensor in graph.weights.items():
        value = graph.values.get(name)
        if value is None or value not in used or value in graph.inputs:
            continue
        found[value] = same[id(tensor)] if id(tensor) in same else same.setdefault(id(tensor), once(tensor))
    return found


def described(feed: Any, decides: bool) -> OnDevice | OnHost:
    """What a plan has to know of a feed: of one whose values decide what a node is, its very values."""
    if isinstance(feed, DeviceArray):
        return OnDevice(feed.dtype, feed.shape)
    if isinstance(feed, np.ndarray):
        data = feed.tobytes() if decides and feed.dtype.kind in "fiubV" and feed.size <= DECIDING_ELEMENTS else None
        return OnHost(dtype_of(feed), feed.shape, data)
    return OnHost(None, None)


class Runner:
    """Runs one plan; several threads may do so at once."""

    def __init__(self, plan: Plan, program: Program) -> None:
        self.plan = plan
        self.program = program
        program.pool.check(plan)
        self._below: dict[int, Program] = {}
        self._stretches = stretches(plan.steps, Launch)
        self.replays = Replays(program.pool.number)

    @property
    def below(self) -> list[Program]:
        """Programs of subgraphs that have run."""
        return list(self._below.values())

    def run(self, feeds: Sequence[Any], on_tap: Tap | None = None, on_device: bool | None = False) -> list[Any]:
        """Outputs, which share no memory with anything else."""
        share = self.program.pool
        arena = share.take(self.plan)
        try:
            return self._run(arena.memory(self.plan, share), feeds, on_tap, on_device)
        finally:
            share.give(arena)

    def _run(self, memory: Memory, feeds: Sequence[Any], on_tap: Tap | None, on_device: bool | None) -> list[Any]:
        plan = self.plan
        objects: dict[Value, Any] = dict(plan.objects)
        for place, feed in zip(plan.fed, feeds, strict=True):
            if isinstance(place, int):
                memory.slots[place] = feed.bytes
            elif not isinstance(feed, Tensor):
                objects[place] = feed
        if plan.flagged is not None:
            memory.upload(plan.flagged, np.zeros(len(plan.flags), np.uint8))
        clock = watched()
        if clock is None:
            for number, step in enumerate(self._stretches):
                self._step(memory, number, step, objects)
        else:
            for step, node in zip(plan.steps, plan.nodes, strict=True):
                alone = (step,) if isinstance(step, Launch) else step
                noted(clock, node, step, functools.partial(self._step, memory, 0, alone, objects))
        raised = memory.download(plan.flagged) if plan.flagged is not None else ()
        for flag, (_, why) in zip(raised, plan.flags, strict=True):
            if flag:
                raise UsageError("E-OP-INDEX", None, why, hint="Compare the inputs with what the model expects")
        if on_tap is not None:
            for name, home in plan.taps.items():
                on_tap(name, np.array(fetched(objects[home])) if isinstance(home, Value) else memory.array(home).numpy())
        if plan.rest is None:
            if on_device:
                return [self._staying(memory, home, feeds, objects) for home in plan.outputs]
            if on_device is None:
                return [memory.kept(home) if isinstance(home, Buffer) else _owned(objects[home], feeds, plan) for home in plan.outputs]
            return [memory.download(home) if isinstance(home, Buffer) else _owned(fetched(objects[home]), feeds, plan) for home in plan.outputs]
        live = [objects[home] if isinstance(home, Value) else memory.array(home) for home in plan.live]
        found = plan.rest.run(live, on_device=on_device)
        return found if on_device else [_owned(result, feeds, plan) for result in found]

    def _step(self, memory: Memory, number: int, step: Any, objects: dict[Value, Any]) -> None:
        """One step, or launches together."""
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
        """A stretch of launches; as one graph where it works on memory that it has worked on before."""

        def launched(stream: Any) -> None:
            for step in launches:
                step.kernel.launch(step.blocks, [memory.view(item) if isinstance(item, Buffer) else item for item in step.arguments], stream)

        if len(launches) < SHORTEST:
            launched(0)
        else:
            self.replays.run((number, *memory.addresses()), launched)

    def _staying(self, memory: Memory, home: Buffer | Value, feeds: Sequence[Any], objects: Mapping[Value, Any]) -> Any:
        """An output on the device: an array that was lent and written into as it is, others in memory of their own."""
        if not isinstance(home, Buffer):
            return memory.uploaded(objects[home])
        if home.room.lent and home.room.slot is not None and home.nbytes == home.room.nbytes:
            lent = feeds[home.room.slot]
            return DeviceArray(home.dtype, home.shape, lent.bytes, lent if lent.owner is None else lent.owner)
        return memory.kept(home)

    def _upload(self, memory: Memory, step: Upload, found: Any) -> None:
        array = found if isinstance(found, DeviceArray) else np.asarray(found)
        if array.dtype != step.buffer.dtype or array.shape != step.buffer.shape:
            raise UsageError(
                "E-RUN-SHAPE", None, f"{step.value.name!r} is not what the graph says", expected=f"{step.buffer.dtype}{list(step.buffer.shape)}",
                found=f"{array.dtype}{list(array.shape)}", hint="Please report it",
            )
        if isinstance(array, DeviceArray):
            memory.fill(step.buffer, array)
        else:
            memory.upload(step.buffer, array)

    def _on_host(self, memory: Memory, step: HostStep, objects: dict[Value, Any]) -> None:
        node = step.node
        attributes = node.attributes
        if node.op.asks:
            run = functools.partial(self._subgraph, memory, step, objects)
            attributes = {**attributes, "call": Call(node, tuple(bool(value.name) for value in node.outputs), run)}
        assert node.op.compute is not None
        inputs = [None if value is None else fetched(objects[value]) for value in step.inputs]
        results = node.op.compute(*map(taken(node.op), inputs), **attributes)
        for value, result in zip(node.outputs, results if isinstance(results, tuple) else (results,), strict=False):
            objects[value] = result if result is None or isinstance(result, list | dict | np.ndarray) else np.asarray(result)

    def _control(self, memory: Memory, step: Control, objects: dict[Value, Any]) -> None:
        """A node that decides: its subgraphs' results stay on the device."""
        node = step.node
        attributes = node.attributes
        rule = CONTROLLED[node.op]
        compute = rule.compute or node.op.compute
        assert compute is not None
        if rule.compute is not None or node.op.asks:
            run = functools.partial(self._subgraph, memory, step, objects)
            wanted = tuple(bool(value.name) for value in node.outputs)
            attributes = {**attributes, "call": DeviceCall(node, wanted, run, self.program)}
        inputs = [None if home is None else numbers(self._found(memory, home, objects)) for home in step.inputs]
        results = compute(*(fetched(item) if index in rule.looks else item for index, item in enumerate(inputs)), **attributes)
        for value, result in zip(node.outputs, results if isinstance(results, tuple) else (results,), strict=False):
            objects[value] = own(result, self.program)

    def _found(self, memory: Memory, home: Buffer | Value, objects: dict[Value, Any]) -> Any:
        return DeviceArray.of(home, memory) if isinstance(home, Buffer) else objects[home]

    def _subgraph(
        self, memory: Memory, step: HostStep | Control, objects: dict[Value, Any], graph: Graph, inputs: Sequence[Any],
    ) -> list[Any]:
        """A subgraph's results: on the host for a node that is computed there, else where they are."""
        below = self._below.get(id(graph))
        known = {value: objects[home] for value, home in step.captured.items() if isinstance(home, Value)}
        weights = {value: found for value, found in known.items() if isinstance(found, Blocks | Packed)}
        around = [value for value in captures(graph) if value not in weights]
        if below is None:
            made = self.program.sub(graph.nodes, [*graph.inputs, *around], graph.outputs, weights_of(graph) | weights)
            below = self._below.setdefault(id(graph), made)
        fed: list[Any] = [item if item is None or isinstance(item, list | dict | DeviceArray) else np.asarray(item) for item in inputs]
        fed += [self._found(memory, step.captured[value], objects) for value in around]
        return below.run(fed, on_device=None if isinstance(step, Control) else False)


def told(program: Program, feeds: Sequence[Any]) -> list[Any]:
    """What a program is fed: small arrays whose values decide what a node is are read, so that it is planned for these. UsageError for an array of
    another device."""
    for feed in feeds:
        number = getattr(feed.owner, "number", None) if isinstance(feed, DeviceArray) else None
        if number not in (None, program.pool.number):
            why = f"an array on device {number} is fed to a session on device {program.pool.number}"
            raise UsageError("E-DEVICE-ARRAY", None, why, hint="Copy it there first")
    return [
        feed.numpy() if decides and isinstance(feed, DeviceArray) and feed.size <= DECIDING_ELEMENTS else feed
        for feed, decides in zip(feeds, program.decides, strict=True)
    ]


def _owned(result: Any, feeds: Sequence[Any], plan: Plan) -> Any:
    result = numbers(result)
    if isinstance(result, list):
        return [_owned(item, feeds, plan) for item in result]
    if not isinstance(result, np.ndarray):
        return result
    known = (*feeds, *plan.objects.values())
    return result.copy() if result.base is not None or any(result is array for array in known) else result
