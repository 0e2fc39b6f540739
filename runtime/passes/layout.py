"""Layout: work that goes element by element moved before transpositions, so that those around it cancel out."""

from __future__ import annotations

import numpy as np

from ..build import Builder
from ..graph import Graph, Node, Value
from ..infer import infer
from ..record import dataclass
from ..registry import operator
from ..tensor import Tensor
from .dead import DropDead
from .rewrite import constant, graphs
from .transposes import Order, after, order_of
from .view import View

SINGLE = frozenset({"QuantizeLinear", "DequantizeLinear"})
"""Operators that go element by element where their parameters are for the whole tensor."""
ALONG_AXIS = frozenset({"Concat", "Softmax", "LogSoftmax", "Split"})


@dataclass(frozen=True)
class CancelTransposes:
    """Move work that goes element by element, or along axes that can be renamed, before the transpositions of its inputs.

    It is done for a stretch of nodes where fewer transpositions are left in the end: those that undo the ones before go with them.
    """

    def run(self, graph: Graph) -> bool:
        """Whether any were moved. Every element stays as it was."""
        if not any(order_of(node) for inner in graphs(graph) for node in inner.nodes):
            return False
        infer(graph)
        view = View(graph)
        changed = False
        for inner in list(graphs(graph)):
            orders = {found for node in inner.nodes if (found := order_of(node)) is not None and found != tuple(sorted(found))}
            for order in sorted(orders):
                changed |= _move(inner, order, view)
                view = View(graph) if changed else view
        return changed and (DropDead().run(graph) or True)


def _move(graph: Graph, order: Order, view: View) -> bool:
    touched: set[Value] = set()
    chosen: list[Node] = []
    for part in _connected(_region(graph, order)):
        near = {value for node in part for value in (*_data(node), *node.outputs) if value is not None}
        if touched.isdisjoint(near) and _gain(graph, part, order, view) > 0:
            touched |= _around(near, order, view)
            chosen += part
    if chosen:
        _Mover(graph, chosen, order, view).run()
    return bool(chosen)


def _around(values: set[Value], order: Order, view: View) -> set[Value]:
    """What a move changes beside its own part: who reads the transpositions' inputs, and who makes their results."""
    makers = [value.producer for value in values if value.producer is not None and order_of(value.producer) == order]
    undone = [reader for value in values for reader in view.readers.get(value, ()) if _undoes(reader, order)]
    return {value for node in makers for value in node.inputs if value is not None} | {value for node in (*makers, *undone) for value in node.outputs}


def _region(graph: Graph, order: Order) -> dict[Node, None]:
    """The nodes all of whose inputs are transposed in this order, made of such, or constant."""
    kept: dict[Node, None] = {}
    transposed: set[Value] = set()
    for node in graph.nodes:
        if order_of(node) == order:
            transposed.add(node.outputs[0])
        elif moved(node, order, graph) is not None and _inputs_fit(node, order, graph, transposed):
            kept[node] = None
            transposed.update(node.outputs)
    return kept


def _inputs_fit(node: Node, order: Order, graph: Graph, transposed: set[Value]) -> bool:
    data = [value for value in _data(node) if value is not None]
    free = [value for value in data if value not in transposed]
    return len(free) < len(data) and all(_fitting(graph, value, len(order)) for value in free)


def _data(node: Node) -> list[Value | None]:
    """Inputs that have the axes of the result; the others are parameters."""
    name = node.op.name
    named = name in ALONG_AXIS or name in SINGLE or name.startswith("Reduce") or name in ("Pad", "Slice", "Clip", "Cast")
    return node.inputs if name == "Concat" or not named else node.inputs[:1]


def _fitting(graph: Graph, value: Value, rank: int) -> bool:
    held = constant(graph, value)
    return held is not None and len(held.shape) <= rank and held.dtype.numpy is not None and held.dtype.bits >= 8


def moved(node: Node, order: Order, graph: Graph) -> dict[str, object] | None:
    """Attributes of a node that works before a transposition in this order; None where it cannot."""
    shape = node.outputs[0].shape
    if node.op.domain or shape is None or len(shape) != len(order) or node.subgraphs:
        return None
    if node.op.name in ALONG_AXIS:
        axis = node.attributes.get("axis", node.op.defaults.get("axis"))
        return None if axis is None else {**node.attributes, "axis": order[axis % len(order)]}
    if node.op.name.startswith("Reduce"):
        keeps = node.attributes.get("keepdims", 1) and len(node.inputs) > 1 and _integers(graph, node.inputs[1]) is not None
        return dict(node.attributes) if keeps else None
    if node.op.name in SINGLE:
        whole = [constant(graph, value) for value in node.inputs[1:] if value is not None]
        return dict(node.attributes) if all(held is not None and held.count == 1 for held in whole) else None
    if node.op.name in ("Pad", "Slice"):
        known = all(_integers(graph, value) is not None for value in node.inputs[1 : 2 if node.op.name == "Pad" else None] if value is not None)
        plain = node.op.name == "Slice" or len(node.inputs) < 4 or node.inputs[3] is None
        return dict(node.attributes) if known and plain else None
    return dict(node.attributes) if node.op.scalar is not None or node.op.name in ("Cast", "Clip", "Identity") else None


def _integers(graph: Graph, value: Value | None) -> list[int] | None:
    held = constant(graph, value)
    return None if held is None or held.dtype.kind not in ("int", "uint") else [int(item) for item in held.numpy().reshape(-1)]


def _connected(region: dict[Node, None]) -> list[list[Node]]:
    """Nodes in groups that share no value, each in order."""
    group: dict[Node, list[Node]] = {}
    seen: dict[Value, Node] = {}
    for node in region:
        mine = group[node] = [node]
        for value in [*node.inputs, *node.outputs]:
            other = seen.setdefault(value, node) if value is not None else node
            if group[other] is not mine:
                merged = group[other] + mine
                for member in merged:
                    group[member] = merged
                mine = merged
    position = {node: index for index, node in enumerate(region)}
    return [sorted(part, key=position.__getitem__) for part in {id(part): part for part in group.values()}.values()]


def _gain(graph: Graph, part: list[Node], order: Order, view: View) -> int:
    """By how many transpositions there are fewer when a part is moved."""
    own = set(part)
    before = {value for node in part for value in _data(node) if value is not None and order_of(value.producer) == order}
    gone = sum(value not in view.results and own.issuperset(view.readers[value]) for value in before)
    undone = added = 0
    for node in part:
        for value in node.outputs:
            outside = [reader for reader in view.readers.get(value, ()) if reader not in own]
            back = [reader for reader in outside if _undoes(reader, order) and view.home.get(reader) is graph]
            undone += len(back)
            added += len(back) < len(outside) or value in view.results
    return gone + undone - added


def _undoes(node: Node, order: Order) -> bool:
    back = order_of(node)
    return back is not None and len(back) == len(order) and after(order, back) == tuple(range(len(order)))


class _Mover:
    """Moves the nodes of a part before their transpositions."""

    def __init__(self, graph: Graph, part: list[Node], order: Order, view: View) -> None:
        self.graph, self.order, self.view = graph, order, view
        self.part = set(part)
        self.inverse = tuple(int(axis) for axis in np.argsort(order))
        self.before: dict[Value, Value] = {}
        self.here = {node for node, home in view.home.items() if home is graph}

    def run(self) -> None:
        nodes, self.graph.nodes = self.graph.nodes, []
        for node in nodes:
            if node in self.part:
                self.move(node)
            elif _undoes(node, self.order) and node.inputs[0] in self.before:
                identity = operator("Identity")
                assert identity is not None
                node.op, node.inputs, node.attributes = identity, [self.before[node.inputs[0]]], {}
                self.graph.nodes.append(node)
            else:
                self.graph.nodes.append(node)

    def move(self, node: Node) -> None:
        attributes = moved(node, self.order, self.graph)
        assert attributes is not None
        data = {value for value in _data(node) if value is not None}
        inputs = [self.source(value) if value in data else value for value in node.inputs]
        build = Builder(self.graph, stem=node.name or node.op.name)
        self.parameters(node, inputs, build)
        made = build.node(node.op, inputs, dict(attributes), outputs=len(node.outputs), name=node.name)
        for old, new in zip(node.outputs, made.outputs, strict=True):
            new.dtype = old.dtype
            new.shape = None if old.shape is None else tuple(old.shape[axis] for axis in self.inverse)
            self.before[old] = new
            readers = [reader for reader in self.view.readers.get(old, ()) if reader not in self.part]
            if old in self.view.results or any(not (_undoes(reader, self.order) and reader in self.here) for reader in readers):
                build.add("Transpose", [new], {"perm": list(self.order)}, outputs=[old])
            elif self.graph.values.get(old.name) is old:
                del self.graph.values[old.name]

    def source(self, value: Value | None) -> Value | None:
        """A value as it is before the transposition."""
        if value is None or value in self.before:
            return None if value is None else self.before[value]
        if order_of(value.producer) == self.order and value.producer is not None:
            return value.producer.inputs[0]
        held = constant(self.graph, value)
        assert held is not None
        if held.count == 1:
            return value
        array = held.numpy().reshape((1,) * (len(self.order) - len(held.shape)) + held.shape)
        made = Value(self.graph.fresh(value.name), held.dtype)
        self.graph.weights[made.name] = Tensor.of(np.ascontiguousarray(array.transpose(self.inverse)))
        made.shape = self.graph.weights[made.name].shape
        self.graph.values[made.name] = made
        return made

    def parameters(self, node: Node, inputs: list[Value | None], build: Builder) -> None:
        """Axes among the inputs, for the order before."""
        rank = len(self.order)
        if node.op.name.startswith("Reduce"):
            axes = _integers(self.graph, node.inputs[1]) or []
            inputs[1] = build.constant([self.order[axis % rank] for axis in axes])
        elif node.op.name == "Slice":
            given = _integers(self.graph, node.inputs[3]) if len(inputs) > 3 and inputs[3] is not None else None
            axes = list(range(len(_integers(self.graph, node.inputs[1]) or []))) if given is None else given
            inputs += [None] * (4 - len(inputs))
            inputs[3] = build.constant([self.order[axis % rank] for axis in axes])
        elif node.op.name == "Pad":
            pads = _integers(self.graph, node.inputs[1]) or []
            inputs[1] = build.constant([pads[side * rank + axis] for side in (0, 1) for axis in self.inverse])
