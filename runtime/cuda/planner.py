"""The device planner: nodes become launches, with steps on the CPU between them where an operator has no CUDA path, and the copies these cost.

Nodes are inferred with the shapes at hand, and what follows from constants is computed here. Where a shape depends on data, the plan ends:
the nodes behind it are a program of their own, planned when the shape is known.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ..blocks import Blocks, Packed, held
from ..copies import captures, copied, needed
from ..dtype import STRING, DType
from ..errors import UnsupportedError
from ..folding import folded
from ..graph import Graph, Node, Value
from ..known import Known
from ..launch import Buffer, Room, View
from ..plan import dtype_of, dtype_of_numpy, ints, known, size
from ..registry import operators
from .coded import coded
from .element import holds
from .hosted import once
from .kernel import Launch
from .order import inputs_first
from .packed import PackedBuffer, packed_buffer
from .place import CONTROLLED, DECIDING_ELEMENTS, PLANNERS, SIZED, Stays, Step, deciding, formula_of, placed, planned
from .plan import Control, Download, Draw, Fixed, Home, HostStep, OnDevice, OnHost, Plan, Upload, laid_out
from .sized import Sized
from .zip import Chain, joined

if TYPE_CHECKING:
    from .program import Program


def _held(dtype: DType | None) -> bool:
    """Whether kernels can be handed arrays of the dtype."""
    return dtype is not None and dtype is not STRING and dtype.numpy is not None and holds(dtype.as_numpy())


class Planner:
    """Makes one plan."""

    def __init__(self, program: Program, feeds: Sequence[OnDevice | OnHost | Fixed], keep: frozenset[str]) -> None:
        self.program = program
        self.keep = keep
        self.plan = Plan()
        self.values: dict[Value, Value] = {}
        self.constants: dict[Value, np.ndarray | Blocks | Packed] = {}
        self.host: set[Value] = set()
        self.device: dict[Value, Buffer] = {}
        self.sized: dict[Value, Sized] = {}
        self.steps: list[Chain | Launch | HostStep | Control | Draw | Upload | Download] = []
        self.nodes: list[Node | None] = []
        self.facts = Known(self.constants)
        self.nodes_left = [copied(node, self.values) for node in program.nodes]
        self.uses: Counter[Value] = Counter(value for node in self.nodes_left for value in needed(node))
        self.results = [self._value(value) for value in program.outputs]
        self.uses.update(self.results)
        self.uses.update(value for node in self.nodes_left for value in node.outputs if value.name in keep)
        for value, array in program.weights.items():
            self._constant(self._value(value), array, value.dtype)
        for value, feed in zip(program.inputs, feeds, strict=True):
            self._feed(self._value(value), feed, value)

    def _value(self, value: Value) -> Value:
        return self.values.setdefault(value, Value(value.name))

    def _constant(self, value: Value, array: np.ndarray | Blocks | Packed, dtype: DType | None = None) -> None:
        value.dtype, value.shape = dtype or dtype_of(array), array.shape
        self.constants[value] = array

    def _feed(self, value: Value, feed: OnDevice | OnHost | Fixed, described: Value) -> None:
        if isinstance(feed, Fixed):
            self._constant(value, once(feed.tensor), feed.tensor.dtype)
            self.plan.fed.append(value)
            return
        if isinstance(feed, OnDevice):
            value.dtype, value.shape = dtype_of_numpy(feed.dtype), feed.shape
            slot = len(self.plan.fed)
            room = Room(size(feed.shape) * feed.dtype.itemsize, slot=slot, lent=described.name in self.program.lent)
            self.device[value] = Buffer(feed.dtype, feed.shape, room)
            self.plan.fed.append(slot)
            return
        if feed.data is not None and feed.dtype is not None and feed.shape is not None:
            self._constant(value, np.frombuffer(feed.data, feed.dtype.as_numpy()).reshape(feed.shape), feed.dtype)
            self.plan.fed.append(value)
            return
        value.container, value.dtype, value.shape = described.container, feed.dtype or described.dtype, feed.shape
        self.host.add(value)
        self.plan.fed.append(value)

    def made(self) -> Plan:
        """The plan."""
        waiting = self.nodes_left[::-1]
        while waiting:
            node = waiting.pop()
            done = self._node(node)
            if done is None:
                self._cut([node, *waiting[::-1]])
                break
            if not done:
                waiting += self._expanded(node)[::-1]
            elif (waiting or self.sized) and any(self._unknown(value) for value in node.outputs):
                self._cut(waiting[::-1])
                break
        else:
            self.plan.outputs = [self._result(value) for value in self.results]
        return self._finished()

    def _readable(self, value: Value) -> bool:
        """Whether a value is few numbers that are computed before it is needed, which the host can read."""
        home = self.device.get(value)
        if value in self.constants or home is None:
            return value in self.host and value not in self.constants and value not in self.plan.fed
        made_here = home.room.constant is None and home.room.slot is None
        return made_here and home.count <= DECIDING_ELEMENTS and home.dtype.kind in "fiub"

    def _unknown(self, value: Value) -> bool:
        return bool(value.name) and self.uses[value] > 0 and value not in self.constants and not value.container and (
            value.dtype is not STRING and (value.dtype is None or not known(value.shape))
        )

    def _node(self, node: Node) -> bool | None:
        """Whether the node is done with; otherwise others stand for it. None where few numbers decide what it is that are computed before: these are
        read, and the plan for what follows is made for them, so that the tensors that it works on stay on the device."""
        if self._branch(node) is not None:
            return False
        self.facts.infer_node(node)
        if not any(value.name and self.uses[value] for value in node.outputs) or self._folded(node):
            return True
        if node.op in CONTROLLED:
            self._controlled(node)
            return True
        why = placed(node.op)
        if why is None:
            if node.op not in PLANNERS:
                why = self._unfit(node)
                if why is None:
                    return False
            else:
                why = self._launched(node)
        if why is not None:
            if any(self._readable(value) for value in deciding(node)):
                return None
            self._on_host(node, why)
        return True

    def _unfit(self, node: Node) -> str | None:
        """Why a node cannot be taken to the device whatever its operator, None when it can."""
        for value in node.inputs:
            if value is None or value in self.constants:
                continue
            if value.container:
                return "it takes a sequence, a map or an optional"
            if value.dtype is STRING:
                return "it takes strings"
            if value not in self.device and (not _held(value.dtype) or not known(value.shape)):
                return "the shape of an input is not known" if _held(value.dtype) else f"kernels do not know {value.dtype}"
        for value in node.outputs:
            if value.name and self.uses[value]:
                if value.container or not _held(value.dtype):
                    return f"kernels do not know {'sequences' if value.container else value.dtype}"
                if not known(value.shape):
                    if node.op in SIZED:
                        continue
                    return "the shape of its output depends on data"
                if not size(value.shape):
                    return "there is nothing to compute"
        return None

    def _branch(self, node: Node) -> Graph | None:
        """The subgraph that a known condition chooses."""
        condition = node.inputs[0] if node.op.name == "If" and not node.op.domain and node.inputs else None
        known_condition = None if condition is None else self.constants.get(condition)
        if not isinstance(known_condition, np.ndarray) or known_condition.size != 1:
            return None
        graph = node.attributes["then_branch" if known_condition.reshape(()) else "else_branch"]
        return graph if isinstance(graph, Graph) else None

    def _inlined(self, graph: Graph, outputs: Sequence[Value]) -> list[Node]:
        """The nodes of a branch; its results get the names of the node's outputs."""
        for name, tensor in graph.weights.items():
            self._constant(graph.values[name], held(tensor), tensor.dtype)
        identity = operators()["", "Identity"]
        last = [Node(identity, [result], [value]) for result, value in zip(graph.outputs, outputs, strict=True) if value.name]
        for made in (*graph.nodes, *last):
            self.uses.update(needed(made))
        return [*graph.nodes, *last]

    def _expanded(self, node: Node) -> list[Node]:
        """The nodes that a node is made of, their constants known."""
        from ..build import Builder

        branch = self._branch(node)
        if branch is not None:
            return self._inlined(branch, node.outputs)
        formula = formula_of(node.op)
        assert formula is not None
        graph = Graph()
        build = Builder(graph, stem=node.name or node.op.name)
        try:
            formula(node, build)
        except Stays as stays:
            self._on_host(node, str(stays))
            return []
        for name, tensor in graph.weights.items():
            self._constant(graph.values[name], held(tensor), tensor.dtype)
        for made in graph.nodes:
            self.uses.update(needed(made))
        return graph.nodes

    def _folded(self, node: Node) -> bool:
        found = folded(node, self.facts, self.constants)
        for value, array in (found or {}).items():
            self._constant(value, array, value.dtype)
        return found is not None

    def _launched(self, node: Node) -> str | None:
        """Add a node's launches; why it has none."""
        why = self._unfit(node)
        if why is not None:
            return why
        homes = {value: self._described(value) for value in node.inputs if value is not None}
        for value, home in homes.items():
            if home is None or not home.count:
                return "it takes nothing" if home is not None else f"kernels do not know {value.dtype}"
        inputs = [None if value is None else homes[value] for value in node.inputs]
        results = [
            (value.dtype.as_numpy(), ints(value.shape) if known(value.shape) else ())
            if value.name and self.uses[value] and value.dtype is not None else None
            for value in node.outputs
        ]
        attributes = {**node.op.defaults, **node.attributes}
        step = Step(node, inputs, attributes, results, self.program.cache, self.program.pool.number, spare=self._spare)
        found = planned(step)
        if isinstance(found, str):
            return found
        for value, home in homes.items():
            if home is not None and value in self.host and value not in self.device:
                self.device[value] = home
                self._add(Upload(value, home), node)
        if isinstance(found, View):
            assert results[0] is not None
            made = self.device[node.outputs[0]] = found.buffer.view(results[0][1])
            if isinstance(made, PackedBuffer):
                self._constant(node.outputs[0], made.host())
            return None
        for index, value in enumerate(node.outputs):
            if index in step.outputs:
                self.device[value] = step.outputs[index]
            elif index in step.sized and known(value.shape):
                self.device[value] = step.sized[index].buffer.view(ints(value.shape))
            elif index in step.sized:
                self.sized[value] = step.sized[index]
        self.plan.flags += step.flags
        for buffer in step.fresh:
            self._add(Draw(buffer), node)
        for item in found if isinstance(found, list) else [found]:
            self._fuse(item, node)
        return None

    def _described(self, value: Value) -> Buffer | None:
        """The buffer of a value, which may have to be uploaded."""
        home = self.device.get(value)
        if home is not None:
            return home
        array = self.constants.get(value)
        if isinstance(array, Blocks):
            blocks = coded(array)
            if blocks is not None:
                self.device[value] = blocks
            return blocks
        if isinstance(array, Packed):
            home = self.device[value] = packed_buffer(array)
            return home
        if array is not None:
            if array.dtype.kind in "OUT" or not holds(array.dtype):
                return None
            plain = array if array.flags.c_contiguous else np.ascontiguousarray(array).reshape(array.shape)
            home = self.device[value] = Buffer(plain.dtype, plain.shape, Room(plain.nbytes, constant=plain))
            return home
        if value.container or not _held(value.dtype) or not known(value.shape) or value.dtype is None:
            return None
        dtype = value.dtype.as_numpy()
        return Buffer(dtype, ints(value.shape), Room(size(value.shape) * dtype.itemsize)) if holds(dtype) else None

    def _add(self, item: Chain | Launch | HostStep | Control | Draw | Upload | Download, node: Node | None) -> None:
        self.steps.append(item)
        self.nodes.append(node)

    def _fuse(self, item: Chain | Launch, node: Node) -> None:
        before = self.steps[-1] if self.steps else None
        if isinstance(item, Chain) and isinstance(before, Chain | Launch) and before.output is not None and not self.keep:
            both = joined(before, item)
            if both is not None and self._only_use(before.output):
                self.steps[-1], self.nodes[-1] = both, node
                return
        self._add(item, node)

    def _spare(self, buffer: Buffer) -> bool:
        """Whether nothing else needs the memory of an input: a value of the run's own, or an array that was lent."""
        room = buffer.room
        whole = buffer.offset == 0 and buffer.nbytes == room.nbytes
        return whole and room.constant is None and (room.slot is None or room.lent) and self._only_use(buffer) and not self.keep

    def _only_use(self, buffer: Buffer) -> bool:
        users = [value for value, home in self.device.items() if home.room is buffer.room]
        return len(users) == 1 and self.uses[users[0]] == 1 and users[0] not in self.results

    def _on_host(self, node: Node, why: str) -> None:
        if node.op.compute is None:
            raise UnsupportedError("E-OP-MISSING", None, f"no implementation of {node.op.name}", hint="List them with candle-convert ops")
        inputs = [None if value is None else self._at_host(value, node) for value in node.inputs]
        self._add(HostStep(node, why, inputs, self._captured(node)), node)
        self.host.update(value for value in node.outputs if value.name)

    def _controlled(self, node: Node) -> None:
        looks = CONTROLLED[node.op].looks
        inputs = [
            None if value is None else self._at_host(value, node) if index in looks else self._where(value, node)
            for index, value in enumerate(node.inputs)
        ]
        self._add(Control(node, inputs, self._captured(node)), node)
        self.host.update(value for value in node.outputs if value.name)

    def _captured(self, node: Node) -> dict[Value, Buffer | Value]:
        return {value: self._where(value, node) for graph in node.subgraphs for value in captures(graph)}

    def _where(self, value: Value, node: Node) -> Buffer | Value:
        """A value on the device where it is there already, else on the host; weights too, which programs of subgraphs upload."""
        home = self.device.get(value)
        return home if home is not None and home.room.constant is None else self._at_host(value, node)

    def _at_host(self, value: Value, node: Node | None) -> Value:
        if value in self.constants:
            self.plan.objects[value] = self.constants[value]
        elif value not in self.host:
            self._add(Download(self.device[value], value), node)
            self.host.add(value)
        return value

    def _result(self, value: Value) -> Buffer | Value:
        return self._at_host(value, None) if value in self.constants or value in self.host else self.device[value]

    def _cut(self, nodes: list[Node]) -> None:
        """Leave nodes to a program of their own, which is planned when the values that it needs are there."""
        wanted = {value for node in nodes for value in needed(node)} | set(self.results)
        fed = [value for value in wanted if value not in self.constants and any(value in homes for homes in (self.device, self.sized, self.host))]
        weights = {value: self.constants[value] for value in wanted if value in self.constants}
        self.plan.rest = self.program.sub(nodes, fed, self.results, weights)
        self.plan.live = [self._home(value) for value in fed]

    def _home(self, value: Value) -> Home:
        return self.sized[value] if value in self.sized else self.device.get(value, value)

    def _finished(self) -> Plan:
        plan = self.plan
        plan.taps = {value.name: self._home(value) for value in (*self.device, *self.sized, *self.host) if value.name in self.keep}
        fed = {value for value in plan.fed if isinstance(value, Value)}
        steps, plan.nodes = inputs_first(self.steps, self.nodes, lambda step: isinstance(step, Upload) and step.value in fed)
        plan.steps = [item.launch() if isinstance(item, Chain) else item for item in steps]
        laid_out(plan)
        return plan
