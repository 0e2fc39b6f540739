"""Programs: a list of nodes made ready to run for the shapes that come. Plans are cached by shape, and each run has memory of its own."""

from __future__ import annotations

import copy
import functools
import itertools
import math
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from .applying import applied
from .blocks import Blocks, Unread, taken, weight
from .copies import captures, needed
from .dtype import STRING, of_numpy
from .encoding import check
from .errors import LimitError, UsageError
from .expecting import Expecting
from .garbage import unsearched
from .graph import Graph, Node, Value
from .limits import current
from .op import Call
from .plan import COUNTER, FUEL, GOES_ON, TRIPS, Branch, Loop, Plan, PythonStep, Signature, Steered, Step, Stretch, plain
from .planner import Planner
from .preparing import prepare
from .record import dataclass
from .reserve import Reserve
from .steering import VALUES, steering
from .timing import Clock, Event
from .workspace import Workspace

if TYPE_CHECKING:
    from .regex import Searcher

PLANS = 32
"""Plans that are kept for the shapes seen last."""
RECENT, IDLE = 2, 16 << 20
"""Plans that keep the memory that they have run in, and bytes of such memory that all the older ones may keep: what is made again in milliseconds."""
UNATTENDED = 0.005
"""Seconds for which a loop may repeat before Python looks at the clock again."""
ENDLESS = (1 << 63) - 1
OnTap = Callable[[str, Any], None]


@dataclass(frozen=True)
class Run:
    """How programs are run.

    Attributes:
        taps: names of intermediate values, each after the path of its subgraph, that `on_tap` is given.
        deadline: when it has to be done, by the monotonic clock.
        clock: is told how long every launch and every step in Python takes.
    """

    threads: int
    native: bool
    taps: Searcher | None = None
    on_tap: OnTap | None = None
    deadline: float = math.inf
    clock: Clock | None = None

    def look(self, what: str = "this run") -> None:
        """LimitError when the time is over."""
        if time.monotonic() > self.deadline:
            raise LimitError("E-RUN-TIME", None, f"{what} takes more than {current().time:g} s", hint="Raise it with --limit time=30m")


class Refused(Exception):
    """A kernel met values that it does not compute."""


class Program:
    """Nodes that compute outputs from inputs and weights.

    Attributes:
        inputs: fed ones first; for a subgraph, the values that it uses from around follow.
        packed: what planners have made of weights, shared by all programs of a session.
        paths: for each node, that of the graph it is in.
        steered: whether plans are made for the values of its steering inputs.
        lent: names of inputs whose arrays may be written into and become outputs.
        expecting: what may be fed later, whose kernels are compiled with those of the first run.
    """

    def __init__(
        self, nodes: Sequence[Node], inputs: Sequence[Value], outputs: Sequence[Value], weights: Mapping[Value, np.ndarray | Blocks | Unread],
        packed: dict[Any, Any], path: str = "", steered: bool = False, lent: Collection[str] = (),
    ) -> None:
        self.nodes = list(nodes)
        self.paths = [path] * len(self.nodes)
        self.inputs = list(inputs)
        self.outputs = list(outputs)
        self.weights = dict(weights)
        self.packed = packed
        self.lent = frozenset(lent)
        self.expecting = Expecting(self)
        self._plans: OrderedDict[Any, Runner] = OrderedDict()
        self._newest: Runner | None = None
        self._last: tuple[Any, ...] = ()
        self._steering = steering(self.nodes, self.inputs) if steered else frozenset()
        self._values: set[tuple[int, ...]] = set()
        self._lock = threading.Lock()

    def run(self, feeds: Sequence[Any], run: Run) -> list[Any]:
        """Outputs for arrays (or lists, maps, None) in the order of `inputs`."""
        last, kinds = self._last, [(feed.dtype, feed.shape) if type(feed) is np.ndarray else None for feed in feeds]
        if last and last[0] == kinds and last[1:3] == (run.native, run.taps) and not current().chosen:
            return self._run(last[3], feeds, run)
        runner = self.prepare(feeds, run)
        if not self._steering and None not in kinds:
            self._last = (kinds, run.native, run.taps, runner)
        return self._run(runner, feeds, run)

    @unsearched
    def prepare(self, feeds: Sequence[Any], run: Run) -> Runner:
        """The runner of a plan for the dtypes and shapes of some feeds."""
        key = (self.signatures(feeds), run.taps, run.native)
        runner = self._plans.get(key)
        if runner is None:
            others = functools.partial(self.expecting.kernels, feeds, run)
            runner = Runner(Planner(self, key[0], run.threads, run.native, run.taps).made(others), self.packed)
            self.expecting.note()
        elif current().chosen:
            check(runner.plan, run.threads)
        return runner if runner is self._newest else self._used(key, runner)

    def _used(self, key: Any, runner: Runner) -> Runner:
        """Note that a plan is the one used last; the one that is kept, where another thread has made the same."""
        with self._lock:
            self._newest = runner = self._plans.setdefault(key, runner)
            self._plans.move_to_end(key)
            while len(self._plans) > PLANS:
                self._plans.popitem(last=False)
            room = IDLE
            for older in itertools.islice(reversed(self._plans.values()), RECENT, None):
                room -= older.idle
                if room < 0:
                    older.rest()
        return runner

    def signatures(self, feeds: Sequence[Any]) -> tuple[Any, ...]:
        """What a plan has to know of some feeds."""
        found = tuple(map(_signature, feeds))
        return self._steered(found, feeds) if self._steering else found

    def beside(self) -> Program:
        """The same program, which keeps what it packs for itself."""
        made = copy.copy(self)
        made.packed, made._values = dict(self.packed), set(self._values)
        return made

    def prepare_others(self, feeds: Sequence[Any], run: Run) -> None:
        """Compile what runs that may follow need."""
        prepare((), functools.partial(self.expecting.kernels, feeds, run))
        self.expecting.note()

    def _run(self, runner: Runner, feeds: Sequence[Any], run: Run) -> list[Any]:
        try:
            return runner.run(feeds, run)
        except Refused:
            return self.run(feeds, replace(run, native=False))

    def _steered(self, signatures: tuple[Any, ...], feeds: Sequence[Any]) -> tuple[Any, ...]:
        """The signatures with the values of steering inputs, as long as these are few."""
        found = [
            Steered(item.dtype, item.shape, feeds[index].item())
            if index in self._steering and isinstance(item, Signature) and item.dtype.kind in "iub" and feeds[index].size == 1 else item
            for index, item in enumerate(signatures)
        ]
        values = tuple(item.value for item in found if isinstance(item, Steered))
        if values not in self._values:
            if len(self._values) == VALUES:
                self._steering = frozenset()
                return signatures
            self._values.add(values)
        return tuple(found)

    def inside(self, graph: Graph) -> dict[Value, np.ndarray | Blocks | Unread]:
        """The weights of a subgraph."""
        return _weights(graph, self.packed)

    @property
    def plans(self) -> list[Plan]:
        """The plans that are cached."""
        return [runner.plan for runner in self._plans.values()]


def of_graph(graph: Graph, packed: dict[Any, Any], lent: Collection[str] = ()) -> Program:
    """The program of a whole graph; weights that are inputs too are fed."""
    return Program(graph.nodes, graph.inputs, graph.outputs, _weights(graph, packed), packed, steered=True, lent=lent)


def of_subgraph(graph: Graph, packed: dict[Any, Any], known: Mapping[Value, np.ndarray | Blocks | Unread], path: str) -> Program:
    """The program of a subgraph; what it uses from around and is not known is fed after its inputs."""
    weights = _weights(graph, packed)
    used = captures(graph)
    weights.update((value, known[value]) for value in used if value in known)
    return Program(graph.nodes, [*graph.inputs, *(value for value in used if value not in known)], graph.outputs, weights, packed, path)


def _weights(graph: Graph, packed: dict[Any, Any]) -> dict[Value, np.ndarray | Blocks | Unread]:
    """The weights that are used and not fed; bytes of a file that several of them are, are held once."""
    used = {value for node in graph.nodes for value in needed(node)} | set(graph.outputs)
    reserve: Reserve = packed.setdefault(Reserve, Reserve())
    found = {}
    for name, tensor in graph.weights.items():
        value = graph.values.get(name)
        if value is None or value not in used or value in graph.inputs:
            continue
        key = (tensor.storage.key or id(tensor), tensor.dtype, tensor.shape)
        if key not in packed:
            packed[key] = (weight(tensor, reserve), tensor)
        found[value] = packed[key][0]
    return found


@functools.lru_cache(maxsize=4096)
def _plain(dtype: np.dtype[Any], shape: tuple[int, ...]) -> Any:
    if plain(dtype):
        return Signature(dtype, shape)
    return (STRING if dtype.kind in "OUT" else of_numpy(dtype), shape)


def _signature(feed: Any) -> Any:
    return _plain(feed.dtype, feed.shape) if isinstance(feed, np.ndarray) else None


class Runner:
    """Runs one plan; several threads may do so at once."""

    def __init__(self, plan: Plan, packed: dict[Any, Any]) -> None:
        self.plan = plan
        self.packed = packed
        self._free: list[Workspace] = []
        self._subprograms: dict[int, Program] = {}

    @property
    def idle(self) -> int:
        """Bytes that are kept for the next run."""
        return sum(memory.arena.nbytes for memory in tuple(self._free))

    def rest(self) -> None:
        """Let them go."""
        self._free.clear()

    def run(self, feeds: Sequence[Any], run: Run) -> list[Any]:
        """Outputs, which share no memory with anything else."""
        try:
            memory = self._free.pop()
        except IndexError:
            memory = Workspace(self.plan)
        try:
            return self._run(memory, feeds, run)
        finally:
            memory.forget()
            self._free.append(memory)

    def _run(self, memory: Workspace, feeds: Sequence[Any], run: Run) -> list[Any]:
        plan = self.plan
        if plan.texts:
            memory.objects.update(plan.texts)
        for place, feed in zip(plan.inputs, feeds, strict=True):
            if isinstance(place, int):
                memory.put(place, feed)
            elif place is not None:
                memory.objects[place] = feed
        for slot in plan.made:
            memory.put(slot, np.empty(plan.slots[slot][1], plan.slots[slot][0]))
        if memory.refusal is not None:
            memory.refusal[0] = 0
        self._steps(memory, plan.steps, run)
        if plan.rest is not None:
            results = plan.rest.run([memory.get(home) for home in plan.live], run)
        else:
            results = [memory.get(home) for home in plan.outputs]
        own = {id(memory.arrays[slot]) for slot in (*plan.made, *plan.lent)}
        return [result if id(result) in own else memory.owned(result, feeds) for result in results]

    def _steps(self, memory: Workspace, steps: Sequence[Step], run: Run) -> None:
        """Run steps; branches and loops nest only as deep as the reader lets subgraphs."""
        for step in steps:
            if run.clock is not None and isinstance(step, Stretch | PythonStep):
                self._timed(memory, step, run, run.clock)
            elif isinstance(step, Stretch):
                memory.walk(step.start, step.stop, run.threads if step.parallel else 1)
                if memory.refusal is not None and memory.refusal[0]:
                    raise Refused
            elif isinstance(step, PythonStep):
                self._python(memory, step, run)
            elif isinstance(step, Branch):
                self._steps(memory, step.taken if memory.get(step.condition).reshape(-1)[0] else step.other, run)
            elif isinstance(step, Loop):
                self._loop(memory, step, run)
            elif run.on_tap is not None:
                run.on_tap(step.name, _copied(memory.get(step.home)))
            if step.frees:
                memory.free(step.frees)
            if run.deadline != math.inf:
                run.look()

    def _timed(self, memory: Workspace, step: Stretch | PythonStep, run: Run, clock: Clock) -> None:
        if isinstance(step, PythonStep):
            began = time.monotonic_ns()
            self._python(memory, step, run)
            clock.events.append(Event(step.node, None, began, time.monotonic_ns()))
            return
        memory.walk(step.start, step.stop, run.threads if step.parallel else 1, clock.address)
        for address, began, ended in clock.drained():
            launch, node = self.plan.launches[memory.code.position(address)]
            clock.events.append(Event(node, launch, began, ended))

    def _loop(self, memory: Workspace, step: Loop, run: Run) -> None:
        trips = step.limit if step.trips is None else int(memory.get(step.trips).reshape(-1)[0])
        cells = memory.get(step.cells)
        cells[COUNTER] = 0
        cells[TRIPS] = ENDLESS if trips is None else min(trips, ENDLESS)
        cells[GOES_ON] = cells[TRIPS] > 0 and (step.condition is None or bool(memory.get(step.condition).reshape(-1)[0]))
        end, fuel = min(run.deadline, time.monotonic() + current().time), 1
        while cells[GOES_ON]:
            cells[FUEL] = fuel
            began = time.monotonic()
            self._steps(memory, step.body, run)
            now = time.monotonic()
            if now > end:
                raise LimitError(
                    "E-RUN-TIME", None, f"{step.operator} runs for more than {current().time:g} s", found=f"{cells[COUNTER]:,} iterations",
                    hint="Raise it with --limit time=30m",
                )
            if step.whole and now - began < UNATTENDED:
                fuel *= 2

    def _python(self, memory: Workspace, step: PythonStep, run: Run) -> None:
        node = step.node
        take = taken(node.op)
        inputs = [None if home is None else take(memory.get(home)) for home in step.inputs]
        attributes = step.attributes
        if node.op.asks:
            call = Call(node, tuple(bool(value.name) for value in node.outputs), functools.partial(self._subgraph, memory, step, run))
            attributes = {**attributes, "call": call}
        results = applied(node, inputs, attributes)
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

    def _subgraph(self, memory: Workspace, step: PythonStep, run: Run, graph: Graph, inputs: Sequence[Any]) -> list[Any]:
        program = self._subprograms.get(id(graph))
        if program is None:
            name = next((name for name, value in step.node.attributes.items() if value is graph), "")
            path = f"{step.path}{step.node.name or step.node.outputs[0].name}/{name}/"
            program = self._subprograms.setdefault(id(graph), of_subgraph(graph, self.packed, step.constants, path))
        fed = [item if item is None or isinstance(item, list | dict) else np.asarray(item) for item in inputs]
        fed += [memory.get(step.captured[value]) for value in program.inputs[len(graph.inputs) :]]
        return program.run(fed, run)


def _copied(value: Any) -> Any:
    """A copy for `on_tap`, which may keep it."""
    return value.copy() if isinstance(value, np.ndarray) else [_copied(item) for item in value] if isinstance(value, list) else value
