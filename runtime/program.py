"""Programs: a list of nodes made ready to run for the shapes that come. Plans are cached by shape, and each run has memory of its own."""

from __future__ import annotations

import functools
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from .blocks import Blocks, held, numbers
from .copies import captures, needed
from .dtype import STRING, of_numpy
from .errors import UsageError
from .graph import Graph, Node, Value
from .launch import Buffer
from .op import Call
from .plan import Plan, PythonStep, Signature
from .planner import Planner

PLANS = 32
"""Plans that are kept for the shapes seen last."""
Tap = Callable[[str, np.ndarray], None]


class Program:
    """Nodes that compute outputs from inputs and weights.

    Attributes:
        inputs: fed ones first; for a subgraph, the values that it uses from around follow.
        packed: what planners have made of weights, shared by all programs of a session.
    """

    def __init__(
        self, nodes: Sequence[Node], inputs: Sequence[Value], outputs: Sequence[Value], weights: Mapping[Value, np.ndarray | Blocks],
        packed: dict[Any, Any],
    ) -> None:
        self.nodes = list(nodes)
        self.inputs = list(inputs)
        self.outputs = list(outputs)
        self.weights = dict(weights)
        self.packed = packed
        self._plans: OrderedDict[Any, Runner] = OrderedDict()
        self._lock = threading.Lock()

    def run(self, feeds: Sequence[Any], threads: int, native: bool, keep: frozenset[str] | None = None, on_tap: Tap | None = None) -> list[Any]:
        """Outputs for arrays (or lists, maps, None) in the order of `inputs`."""
        key = (tuple(map(_signature, feeds)), keep)
        runner = self._plans.get(key)
        if runner is None:
            made = Runner(Planner(self, key[0], threads, native, keep).made(), threads, native)
            with self._lock:
                runner = self._plans.setdefault(key, made)
                while len(self._plans) > PLANS:
                    self._plans.popitem(last=False)
        return runner.run(feeds, keep, on_tap)

    @property
    def plans(self) -> list[Plan]:
        """The plans that are cached."""
        return [runner.plan for runner in self._plans.values()]


def of_graph(graph: Graph, packed: dict[Any, Any]) -> Program:
    """The program of a whole graph; weights that are inputs too are fed."""
    return Program(graph.nodes, graph.inputs, graph.outputs, _weights(graph, packed), packed)


def of_subgraph(graph: Graph, packed: dict[Any, Any]) -> Program:
    """The program of a subgraph; what it uses from around is fed after its inputs."""
    return Program(graph.nodes, [*graph.inputs, *captures(graph)], graph.outputs, _weights(graph, packed), packed)


def _weights(graph: Graph, packed: dict[Any, Any]) -> dict[Value, np.ndarray | Blocks]:
    """The weights that are used and not fed; bytes of a file that several of them are, are held once."""
    used = {value for node in graph.nodes for value in needed(node)} | set(graph.outputs)
    found = {}
    for name, tensor in graph.weights.items():
        value = graph.values.get(name)
        if value is None or value not in used or value in graph.inputs:
            continue
        key = (tensor.storage.key or id(tensor), tensor.dtype, tensor.shape)
        if key not in packed:
            packed[key] = (held(tensor), tensor)
        found[value] = packed[key][0]
    return found


@functools.lru_cache(maxsize=4096)
def _plain(dtype: np.dtype[Any], shape: tuple[int, ...]) -> Any:
    if dtype.kind in "fiub" and dtype.itemsize <= 8:
        return Signature(dtype, shape)
    return (STRING if dtype.kind in "OUT" else of_numpy(dtype), shape)


def _signature(feed: Any) -> Any:
    return _plain(feed.dtype, feed.shape) if isinstance(feed, np.ndarray) else None


class Runner:
    """Runs one plan; several threads may do so at once."""

    def __init__(self, plan: Plan, threads: int, native: bool) -> None:
        self.plan = plan
        self.threads = threads
        self.native = native
        self._free: list[Memory] = []
        self._subprograms: dict[int, Program] = {}

    def run(self, feeds: Sequence[Any], keep: frozenset[str] | None, on_tap: Tap | None) -> list[Any]:
        """Outputs, which share no memory with anything else."""
        try:
            memory = self._free.pop()
        except IndexError:
            memory = Memory(self.plan)
        try:
            return self._run(memory, feeds, keep, on_tap)
        finally:
            memory.forget()
            self._free.append(memory)

    def _run(self, memory: Memory, feeds: Sequence[Any], keep: frozenset[str] | None, on_tap: Tap | None) -> list[Any]:
        plan = self.plan
        memory.objects.update(plan.texts)
        for place, feed in zip(plan.inputs, feeds, strict=True):
            if isinstance(place, int):
                memory.put(place, feed)
            else:
                memory.objects[place] = feed
        for slot in plan.made:
            memory.put(slot, np.empty(plan.slots[slot][1], plan.slots[slot][0]))
        for step in plan.steps:
            if isinstance(step, PythonStep):
                self._python(memory, step)
            else:
                memory.walk(step.start, step.stop, self.threads if step.parallel else 1)
        if on_tap is not None:
            for name, home in plan.taps.items():
                on_tap(name, memory.get(home).copy())
        if plan.rest is not None:
            live = [memory.get(home) for home in plan.live]
            results = plan.rest.run(live, self.threads, self.native, keep, on_tap)
        else:
            results = [memory.get(home) for home in plan.outputs]
        return [memory.owned(result, feeds) for result in results]

    def _python(self, memory: Memory, step: PythonStep) -> None:
        node = step.node
        inputs = [None if home is None else memory.get(home) for home in step.inputs]
        if not node.op.stored:
            inputs = [numbers(item) for item in inputs]
        attributes = step.attributes
        if node.op.asks:
            call = Call(node, tuple(bool(value.name) for value in node.outputs), functools.partial(self._subgraph, memory, step))
            attributes = {**attributes, "call": call}
        assert node.op.compute is not None
        results = node.op.compute(*inputs, **attributes)
        for value, slot, result in zip(node.outputs, step.slots, results if isinstance(results, tuple) else (results,), strict=False):
            found = result if result is None or isinstance(result, list | dict | np.ndarray) else np.asarray(result)
            found = memory.apart(found)
            memory.objects[value] = found
            if slot is None:
                continue
            dtype, shape = self.plan.slots[slot]
            if found is None or found.dtype != dtype or found.shape != shape:
                raise UsageError(
                    "E-RUN-SHAPE", None, f"{node.op.name} gave an unforeseen output", expected=f"{dtype}{list(shape)}",
                    found=None if found is None else f"{found.dtype}{list(found.shape)}", hint="Please report it",
                )
            memory.put(slot, found)

    def _subgraph(self, memory: Memory, step: PythonStep, graph: Graph, inputs: Sequence[Any]) -> list[Any]:
        program = self._subprograms.get(id(graph))
        if program is None:
            program = self._subprograms.setdefault(id(graph), of_subgraph(graph, {}))
        fed = [item if item is None or isinstance(item, list | dict) else np.asarray(item) for item in inputs]
        fed += [memory.get(step.captured[value]) for value in program.inputs[len(graph.inputs) :]]
        return program.run(fed, self.threads, self.native)


class Memory:
    """What one run of a plan works in."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.arena = np.empty(plan.arena + 64, np.uint8)
        self.start = -self.arena.ctypes.data % 64
        words = plan.words.copy()
        words[plan.arena_words[0]] = plan.arena_words[1] + (self.arena.ctypes.data + self.start)
        self.words = words
        self.cells = memoryview(words)  # type: ignore[arg-type]
        self.arrays: list[Any] = [None] * len(plan.slots)
        self.objects: dict[Value, Any] = {}
        self._views: dict[int, np.ndarray] = {}
        self.constants = [home.room.constant for home in plan.outputs if isinstance(home, Buffer) and home.room.constant is not None]
        if plan.calls:
            from .team import Code

            self.code = Code(plan.calls, words)

    def put(self, slot: int, array: np.ndarray) -> None:
        """Give a slot its array for this run."""
        if not array.flags.c_contiguous:
            array = np.ascontiguousarray(array)
        self.arrays[slot] = array
        places = self.plan.slot_words.get(slot)
        if places:
            address = array.__array_interface__["data"][0]
            cells = self.cells
            for place, offset in places:
                cells[place] = address + offset

    def get(self, home: Buffer | Value) -> Any:
        """The array or object of a home."""
        if isinstance(home, Value):
            return self.objects[home]
        room = home.room
        if room.slot is not None:
            array = self.arrays[room.slot]
            if home.offset == 0 and array.dtype == home.dtype and array.shape == home.shape:
                return array
            return _view(array.reshape(-1).view(np.uint8), home, 0)
        found = self._views.get(id(home))
        if found is None:
            base = self.arena if room.constant is None else room.constant.reshape(-1).view(np.uint8)
            found = self._views[id(home)] = _view(base, home, self.start + room.at if room.constant is None else 0)
        return found

    def walk(self, start: int, stop: int, threads: int) -> None:
        """Run the native launches from `start` to `stop`."""
        self.code.walk(start, stop, threads)

    def apart(self, result: Any) -> Any:
        """A result of Python that does not lie in the arena, whose bytes others will use."""
        if isinstance(result, np.ndarray):
            return result.copy() if self.plan.arena and np.may_share_memory(result, self.arena) else result
        return [self.apart(item) for item in result] if isinstance(result, list) else result

    def owned(self, result: Any, feeds: Sequence[Any]) -> Any:
        """A result that shares no memory with inputs, weights or the arena."""
        result = numbers(result)
        if not isinstance(result, np.ndarray):
            return [self.owned(item, feeds) for item in result] if isinstance(result, list) else result
        if any(result is array for array in (self.arrays[slot] for slot in self.plan.made)):
            return result
        private = result.base is None and not any(result is array for array in (*feeds, *self.plan.held, *self.constants))
        return result if private else result.copy()

    def forget(self) -> None:
        """Let go of the arrays of a run."""
        self.objects.clear()
        self.arrays = [None] * len(self.arrays)


def _view(base: np.ndarray, home: Buffer, start: int) -> np.ndarray:
    at = start + home.offset
    return base[at : at + home.nbytes].view(home.dtype).reshape(home.shape)
