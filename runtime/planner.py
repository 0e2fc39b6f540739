"""The planner: nodes of a graph become the steps of a plan.

Nodes are inferred with the shapes at hand. What follows from constants is computed once, here. A node runs natively when its operator has a
planner that takes it; otherwise its `compute` runs in Python. Where a shape depends on data, the plan ends: the nodes behind it are a program
of their own, planned when the shape is known.
"""

from __future__ import annotations

import functools
import struct
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .blocks import Blocks, numbers
from .copies import captures, copied, needed
from .dtype import STRING, DType
from .errors import LimitError, UnsupportedError
from .graph import Node, Value
from .infer import MAX_DATA, Facts
from .launch import PLANNERS, Buffer, Launch, Room, Step, View, parts_for
from .limits import current
from .memory import aligned, place
from .plan import Plan, PythonStep, Signature, Stretch, addressable, dtype_of, dtype_of_numpy, ints, known, size

if TYPE_CHECKING:
    from .fusion import Chain
    from .program import Program

FOLDED_ELEMENTS = 1 << 16
"""Elements of a result that is computed while planning."""
WORTH_A_PLAN = 6
"""Nodes behind a data-dependent shape from which they are planned again when it is known."""


class Known(Facts):
    """Facts that know constants by value, whichever graph they come from."""

    def __init__(self, constants: dict[Value, np.ndarray | Blocks]) -> None:
        super().__init__()
        self.constants = constants

    def array(self, value: Value) -> np.ndarray | None:
        held = self.constants.get(value)
        if held is not None:
            return held if held.size <= MAX_DATA and isinstance(held, np.ndarray) else None
        return super().array(value)


class Planner:
    """Makes one plan."""

    def __init__(self, program: Program, feeds: Sequence[Any], threads: int, native: bool, keep: frozenset[str] | None) -> None:
        self.program = program
        self.threads = threads
        self.native = native
        self.keep = keep
        self.plan = Plan()
        self.values: dict[Value, Value] = {}
        self.constants: dict[Value, np.ndarray | Blocks] = {}
        self.stored: dict[Value, Buffer] = {}
        self.homes: dict[Value, Buffer | Value] = {}
        self.chains: list[Chain | Launch | PythonStep] = []
        self.nodes: list[Node | None] = []
        self.python_steps: dict[Value, PythonStep] = {}
        self.scratch: list[tuple[Room, int]] = []
        self.rooms: dict[int, Room] = {}
        self.facts = Known(self.constants)
        self.nodes_left = [copied(node, self.values) for node in program.nodes]
        self.uses: Counter[Value] = Counter(value for node in self.nodes_left for value in needed(node))
        self.results = [self._value(value) for value in program.outputs]
        self.uses.update(self.results)
        for value, array in program.weights.items():
            self._constant(self._value(value), array, value.dtype)
        for value, feed in zip(program.inputs, feeds, strict=True):
            self._feed(self._value(value), feed, value)

    def _value(self, value: Value) -> Value:
        return self.values.setdefault(value, Value(value.name))

    def _constant(self, value: Value, array: np.ndarray | Blocks, dtype: DType | None = None) -> None:
        value.dtype, value.shape = dtype or dtype_of(array), array.shape
        self.constants[value] = array

    def _feed(self, value: Value, feed: Any, described: Value) -> None:
        if isinstance(feed, Signature):
            value.dtype, value.shape = dtype_of_numpy(feed.dtype), feed.shape
            slot = self._slot(feed.dtype, feed.shape)
            self.homes[value] = Buffer(feed.dtype, feed.shape, self._slot_room(slot))
            self.plan.inputs.append(slot)
            return
        value.container, value.dtype = described.container, described.dtype
        if isinstance(feed, tuple):
            value.dtype, value.shape = feed
        self.homes[value] = value
        self.plan.inputs.append(value)

    def _slot(self, dtype: np.dtype[Any], shape: tuple[int, ...]) -> int:
        self.plan.slots.append((dtype, shape))
        return len(self.plan.slots) - 1

    def _slot_room(self, slot: int) -> Room:
        dtype, shape = self.plan.slots[slot]
        return Room(int(np.prod(shape, dtype=np.int64)) * dtype.itemsize, slot=slot)

    def made(self) -> Plan:
        """The plan."""
        nodes = self.nodes_left
        for index, node in enumerate(nodes):
            self._node(node)
            if index + WORTH_A_PLAN < len(nodes) and any(self._unknown(value) for value in node.outputs) and self.native:
                self._cut(nodes[index + 1 :], index + 1)
                break
        else:
            self.plan.outputs = [self._home(value) for value in self.results]
        return self._finished()

    def _unknown(self, value: Value) -> bool:
        return bool(value.name) and self.uses[value] > 0 and value not in self.constants and not value.container and (
            value.dtype is not STRING and (value.dtype is None or not known(value.shape))
        )

    def _node(self, node: Node) -> None:
        self.facts.infer_node(node)
        if self._folded(node):
            return
        if self.native and self._planned(node):
            return
        self._python(node)

    def _folded(self, node: Node) -> bool:
        inputs = [value for value in node.inputs if value is not None]
        if node.subgraphs or node.op.asks or node.op.compute is None or not node.op.repeatable:
            return False
        outputs = [value for value in node.outputs if value.name]
        for value in outputs:
            found = self.facts.array(value)
            if found is not None and len(outputs) == 1 and value.dtype is not None and value.dtype.kind in ("int", "uint", "bool"):
                self._constant(value, found.astype(value.dtype.as_numpy(), copy=False), value.dtype)
                return True
        if any(value not in self.constants for value in inputs):
            return False
        if any(not known(value.shape) or size(value.shape) > FOLDED_ELEMENTS for value in outputs):
            return False
        if sum(self.constants[value].size for value in inputs) > FOLDED_ELEMENTS:
            return False
        given = [None if value is None else self.constants[value] for value in node.inputs]
        results = node.op.compute(*(given if node.op.stored else map(numbers, given)), **node.attributes)
        results = results if isinstance(results, tuple) else (results,)
        if any(isinstance(result, list | dict) or result is None for result in results):
            return False
        for value, result in zip(node.outputs, results, strict=False):
            if value.name:
                self._constant(value, np.asarray(result), value.dtype)
        return True

    def _planned(self, node: Node) -> bool:
        planner = PLANNERS.get(node.op)
        if planner is None:
            return False
        inputs: list[Buffer | None] = []
        for value in node.inputs:
            home = None if value is None else self._stored(value) if node.op.stored else self._home(value)
            if isinstance(home, Value):
                home = self._as_slot(home)
            if value is not None and (home is None or not home.count):
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
        step = Step(node, inputs, {**node.op.defaults, **node.attributes}, results, self.threads, self.program.packed)
        planned = planner(step)
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
            self._append(launch, node)
        made = {buffer.room for buffer in step.outputs.values()}
        self.scratch += [(room, position) for room in step.rooms if room not in made]
        return True

    def _append(self, item: Any, node: Node) -> None:
        from .fusion import LONGEST, SPECIALIZED, Apply
        from .fusion import Chain as Elementwise

        before = self.chains[-1] if self.chains else None
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
        users = [value for value, home in self.homes.items() if isinstance(home, Buffer) and home.room is buffer.room]
        return len(users) == 1 and self.uses[users[0]] == 1 and users[0] not in self.results

    def _as_slot(self, value: Value) -> Buffer | None:
        """A result of Python whose dtype and shape are known, as an array of a slot."""
        if value.container or not addressable(value.dtype) or not known(value.shape):
            return None
        assert value.dtype is not None
        step = self.python_steps.get(value)
        if step is None:
            return None
        slot = self._slot(value.dtype.as_numpy(), ints(value.shape))
        step.slots[step.node.outputs.index(value)] = slot
        buffer = Buffer(value.dtype.as_numpy(), ints(value.shape), self._slot_room(slot))
        self.homes[value] = buffer
        return buffer

    def _home(self, value: Value) -> Buffer | Value:
        if value not in self.homes:
            array = self.constants[value]
            if isinstance(array, Blocks) or array.dtype.kind in "OUT" or array.dtype.kind == "V":
                self.homes[value] = value
                self.plan.texts[value] = array
            else:
                plain = np.ascontiguousarray(array).reshape(array.shape)
                self.homes[value] = Buffer(plain.dtype, plain.shape, Room(plain.nbytes, constant=plain))
        return self.homes[value]

    def _stored(self, value: Value) -> Buffer | Value:
        """As `_home`; weights are buffers in every dtype, blocks as the bytes of their rows."""
        array = self.constants.get(value)
        if not isinstance(array, Blocks) and (array is None or array.dtype.kind != "V"):
            return self._home(value)
        if value not in self.stored:
            data = array.data if isinstance(array, Blocks) else np.ascontiguousarray(array)
            self.stored[value] = Buffer(data.dtype, data.shape, Room(data.nbytes, constant=data))
        return self.stored[value]

    def _python(self, node: Node) -> None:
        if node.op.compute is None:
            raise UnsupportedError("E-OP-MISSING", None, f"no implementation of {node.op.name}", hint="List them with candle-convert ops")
        inputs = [None if value is None else self._home(value) for value in node.inputs]
        captured = {value: self._home(value) for graph in node.subgraphs for value in captures(graph)}
        step = PythonStep(node, inputs, captured, [None] * len(node.outputs), dict(node.attributes), len(self.chains))
        self.chains.append(step)
        self.nodes.append(node)
        for value in node.outputs:
            self.homes[value] = value
            self.python_steps[value] = step

    def _cut(self, nodes: list[Node], start: int) -> None:
        from .program import Program

        back = {copy: value for value, copy in self.values.items()}
        wanted = {value for node in nodes for value in needed(node)} | set(self.results)
        live = [value for value in wanted if (value in self.homes or value in self.constants) and value in back]
        fed = [value for value in live if value not in self.constants]
        weights = {back[value]: self.constants[value] for value in live if value in self.constants}
        self.plan.rest = Program(
            self.program.nodes[start:], [back[value] for value in fed], self.program.outputs, weights, self.program.packed,
        )
        self.plan.live = [self._home(value) for value in fed]

    def _finished(self) -> Plan:
        plan = self.plan
        launches = self._output_slots()
        position = 0
        arena: dict[int, Room] = {}

        def use(buffer: Buffer, at: int) -> None:
            room = buffer.room
            if room.constant is None and room.slot is None:
                arena[id(room)] = room
                room.first = at if room.first < 0 else min(room.first, at)
                room.last = max(room.last, at)

        last = len(launches)
        for position, step in enumerate(launches):
            if isinstance(step, PythonStep):
                for home in (*step.inputs, *step.captured.values()):
                    if isinstance(home, Buffer):
                        use(home, position)
            else:
                for argument in step.arguments:
                    if isinstance(argument, Buffer):
                        use(argument, position)
        for room, _ in self.scratch:
            room.last = max(room.last, room.first)
        kept: list[Buffer | Value] = [*plan.outputs, *plan.live]
        if self.keep is not None:
            plan.taps = {value.name: home for value, home in self.homes.items() if value.name in self.keep}
            kept += plan.taps.values()
        for home in kept:
            if isinstance(home, Buffer):
                use(home, last)
        for room in arena.values():
            room.first = 0 if room.first < 0 else room.first
        plan.arena = place(list(arena.values()))
        need = plan.arena + sum(aligned(self._nbytes(slot)) for slot in plan.made)
        if need > current().memory:
            raise LimitError(
                "E-RUN-MEMORY", None, f"this run needs {need:,} bytes beside the weights, {current().memory:,} are allowed",
                hint="Raise it with --limit memory=8GiB, or feed smaller inputs",
            )
        self._encode(launches)
        return plan

    def _nbytes(self, slot: int) -> int:
        dtype, shape = self.plan.slots[slot]
        return size(shape) * dtype.itemsize

    def _output_slots(self) -> list[Launch | PythonStep]:
        """Launches of all chains; outputs that a launch fills get arrays of their own."""
        from .fusion import Chain as Elementwise

        produced = {id(item.output.room) for item in self.chains if isinstance(item, Elementwise)}
        produced |= {
            id(argument.room) for item in self.chains if isinstance(item, Launch) for argument in item.arguments
            if isinstance(argument, Buffer) and argument.room.constant is None and argument.room.slot is None
        }
        for home in self.plan.outputs:
            if not isinstance(home, Buffer) or home.room.constant is not None or home.room.slot is not None or id(home.room) not in produced:
                continue
            if home.offset == 0 and home.nbytes == home.room.nbytes:
                home.room.slot = self._slot(home.dtype, home.shape)
                self.plan.made.append(home.room.slot)
        parts = functools.partial(parts_for, self.threads)
        return [item.launch(parts) if isinstance(item, Elementwise) else item for item in self.chains]

    def _encode(self, launches: list[Launch | PythonStep]) -> None:
        plan = self.plan
        words: list[int] = []
        arena: list[tuple[int, int]] = []
        constants: list[np.ndarray] = []
        for index, item in enumerate(launches):
            if isinstance(item, PythonStep):
                plan.steps.append(item)
                continue
            if plan.steps and isinstance(plan.steps[-1], Stretch) and plan.steps[-1].stop == len(plan.calls):
                stretch = plan.steps[-1]
            else:
                stretch = Stretch(len(plan.calls), len(plan.calls), False)
                plan.steps.append(stretch)
            plan.calls.append((item.kernel.address, item.parts, len(words)))
            plan.launches.append((item, self.nodes[index]))
            stretch.stop += 1
            stretch.parallel = stretch.parallel or item.parts > 1
            for argument in item.arguments:
                place_of_word = len(words)
                if not isinstance(argument, Buffer):
                    words.append(struct.unpack("q", struct.pack("d", argument))[0] if isinstance(argument, float) else int(argument))
                elif argument.room.constant is not None:
                    constants.append(argument.room.constant)
                    words.append(argument.room.constant.ctypes.data + argument.offset)
                elif argument.room.slot is not None:
                    plan.slot_words.setdefault(argument.room.slot, []).append((place_of_word, argument.offset))
                    words.append(0)
                else:
                    arena.append((place_of_word, argument.room.at + argument.offset))
                    words.append(0)
        plan.words = np.array(words, np.int64)
        plan.arena_words = (np.array([place_of for place_of, _ in arena], np.int64), np.array([offset for _, offset in arena], np.int64))
        plan.held = constants
