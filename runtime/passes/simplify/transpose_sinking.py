"""Transpose sinking: elementwise nodes move before transposes, so that pairs of transposes cancel."""

from __future__ import annotations

import numpy as np

from ...base.dataclass import dataclass
from ...ir.builder import Builder
from ...ir.graph import Graph, Node, Value
from ...ir.op import Trait
from ...ir.registry import onnx, operator
from ...ir.shape_inference import infer
from ...tensor.stored_tensor import StoredTensor
from ..pattern.dead_code import RemoveDeadCode
from ..pattern.graph_view import View
from ..pattern.replace_nodes import constant, graphs
from .transpose import Order, compose, order_of


@dataclass(frozen=True)
class SinkTransposes:
    """Move elementwise nodes, and nodes with an axis attribute, before the transposes of their inputs.

    A connected region of nodes moves if fewer transposes remain in total: those that undo the input transposes
    cancel.
    """

    def run(self, graph: Graph) -> bool:
        """Return whether any nodes moved. Elements are unchanged."""
        if not any(order_of(node) for inner in graphs(graph) for node in inner.nodes):
            return False
        infer(graph)
        view = View(graph)
        changed = False
        for inner in list(graphs(graph)):
            orders = {
                found for node in inner.nodes if (found := order_of(node)) is not None and found != tuple(sorted(found))
            }
            for order in sorted(orders):
                changed |= _move(inner, order, view)
                view = View(graph) if changed else view
        return changed and (RemoveDeadCode().run(graph) or True)


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
    """The values outside of a region that a move affects: readers of the transposes' inputs, and producers of their
    results."""
    makers = [value.producer for value in values if value.producer is not None and order_of(value.producer) == order]
    undone = [reader for value in values for reader in view.readers.get(value, ()) if _undoes(reader, order)]
    return {value for node in makers for value in node.inputs if value is not None} | {
        value for node in (*makers, *undone) for value in node.outputs
    }


def _region(graph: Graph, order: Order) -> dict[Node, None]:
    """The nodes whose inputs are all transposed by this permutation, computed in the region, or constant.

    A transpose that undoes what the region computed ends it, also where the permutation is its own inverse.
    """
    kept: dict[Node, None] = {}
    transposed: set[Value] = set()
    for node in graph.nodes:
        if order_of(node) == order:
            if not (_undoes(node, order) and node.inputs[0] in transposed):
                transposed.add(node.outputs[0])
        elif permuted_attributes(node, order, graph) is not None and _inputs_fit(node, order, graph, transposed):
            kept[node] = None
            transposed.update(node.outputs)
    return kept


def _inputs_fit(node: Node, order: Order, graph: Graph, transposed: set[Value]) -> bool:
    data = [value for value in _data(node) if value is not None]
    free = [value for value in data if value not in transposed]
    return len(free) < len(data) and all(_fitting(graph, value, len(order)) for value in free)


def _data(node: Node) -> list[Value | None]:
    """Inputs with the axes of the result; the others are parameters."""
    alone = Trait.REDUCTION in node.op.traits or node.op in (
        onnx.Cast, onnx.Clip, onnx.DequantizeLinear, onnx.LogSoftmax, onnx.Pad, onnx.QuantizeLinear, onnx.Slice,
        onnx.Softmax, onnx.Split,
    )  # fmt: skip
    return node.inputs[:1] if alone else node.inputs


def _fitting(graph: Graph, value: Value, rank: int) -> bool:
    held = constant(graph, value)
    return held is not None and len(held.shape) <= rank and held.dtype.numpy is not None and held.dtype.bits >= 8


def permuted_attributes(node: Node, order: Order, graph: Graph) -> dict[str, object] | None:
    """Attributes of a node before a transpose with this permutation; None if it cannot move."""
    shape = node.outputs[0].shape
    if node.op.domain or shape is None or len(shape) != len(order) or node.subgraphs:
        return None
    if node.op in (onnx.Concat, onnx.Softmax, onnx.LogSoftmax, onnx.Split):
        axis = node.attributes.get("axis", node.op.defaults.get("axis"))
        return None if axis is None else {**node.attributes, "axis": order[axis % len(order)]}
    if Trait.REDUCTION in node.op.traits:
        keeps = (
            node.attributes.get("keepdims", 1) and len(node.inputs) > 1 and _integers(graph, node.inputs[1]) is not None
        )
        return dict(node.attributes) if keeps else None
    if node.op in (onnx.QuantizeLinear, onnx.DequantizeLinear):
        whole = [constant(graph, value) for value in node.inputs[1:] if value is not None]
        return dict(node.attributes) if all(held is not None and held.count == 1 for held in whole) else None
    if node.op in (onnx.Pad, onnx.Slice):
        known = all(
            _integers(graph, value) is not None
            for value in node.inputs[1 : 2 if node.op is onnx.Pad else None]
            if value is not None
        )
        plain = node.op is onnx.Slice or len(node.inputs) < 4 or node.inputs[3] is None
        return dict(node.attributes) if known and plain else None
    free = node.op.scalar is not None or node.op in (onnx.Cast, onnx.Clip, onnx.Identity)
    return dict(node.attributes) if free else None


def _integers(graph: Graph, value: Value | None) -> list[int] | None:
    held = constant(graph, value)
    return (
        None
        if held is None or held.dtype.kind not in ("int", "uint")
        else [int(item) for item in held.numpy().reshape(-1)]
    )


def _connected(region: dict[Node, None]) -> list[list[Node]]:
    """Connected components of a region, each in order."""
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
    """The number of transposes that a move removes."""
    own = set(part)
    before = {
        value for node in part for value in _data(node) if value is not None and order_of(value.producer) == order
    }
    gone = sum(value not in view.results and own.issuperset(view.readers[value]) for value in before)
    undone = added = 0
    for node in part:
        for value in node.outputs:
            outside = [reader for reader in view.readers.get(value, ()) if reader not in own]
            back = [reader for reader in outside if _undoes(reader, order) and view.graph_of.get(reader) is graph]
            undone += len(back)
            added += len(back) < len(outside) or value in view.results
    return gone + undone - added


def _undoes(node: Node, order: Order) -> bool:
    back = order_of(node)
    return back is not None and len(back) == len(order) and compose(order, back) == tuple(range(len(order)))


class _Mover:
    """Moves the nodes of a region before their transposes."""

    def __init__(self, graph: Graph, part: list[Node], order: Order, view: View) -> None:
        self.graph, self.order, self.view = graph, order, view
        self.part = set(part)
        self.inverse = tuple(int(axis) for axis in np.argsort(order))
        self.before: dict[Value, Value] = {}
        self.here = {node for node, scope in view.graph_of.items() if scope is graph}

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
        attributes = permuted_attributes(node, self.order, self.graph)
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
            if old in self.view.results or any(
                not (_undoes(reader, self.order) and reader in self.here) for reader in readers
            ):
                build.add("Transpose", [new], {"perm": list(self.order)}, outputs=[old])
            elif self.graph.values.get(old.name) is old:
                del self.graph.values[old.name]

    def source(self, value: Value | None) -> Value | None:
        """The value before the transpose."""
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
        self.graph.weights[made.name] = StoredTensor.of(np.ascontiguousarray(array.transpose(self.inverse)))
        made.shape = self.graph.weights[made.name].shape
        self.graph.values[made.name] = made
        return made

    def parameters(self, node: Node, inputs: list[Value | None], build: Builder) -> None:
        """Inputs that hold axes, permuted."""
        rank = len(self.order)
        if Trait.REDUCTION in node.op.traits:
            axes = _integers(self.graph, node.inputs[1]) or []
            inputs[1] = build.constant([self.order[axis % rank] for axis in axes])
        elif node.op is onnx.Slice:
            given = _integers(self.graph, node.inputs[3]) if len(inputs) > 3 and inputs[3] is not None else None
            axes = list(range(len(_integers(self.graph, node.inputs[1]) or []))) if given is None else given
            inputs += [None] * (4 - len(inputs))
            inputs[3] = build.constant([self.order[axis % rank] for axis in axes])
        elif node.op is onnx.Pad:
            pads = _integers(self.graph, node.inputs[1]) or []
            inputs[1] = build.constant([pads[side * rank + axis] for side in (0, 1) for axis in self.inverse])
