"""Model functions: operators that a model defines as a graph, and their inlining."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from ..base.errors import FormatError, LimitError
from ..base.limits import current
from ..base.units import counted
from . import registry
from .builder import Builder
from .graph import Function, Graph, Node, Reference, Value
from .node_check import invalid_reason
from .op import Foreign, Op

EXPANSION = 32
"""Nodes that inlining may add per node of the model."""
LEAST_EXPANSION = 50_000
"""Nodes that inlining may add to any model."""
DEEPEST_CALLS = 64
"""Maximum depth of nested function calls, including subgraphs between them; bounds Python's recursion."""


def check_expansion(graph: Graph) -> None:
    """LimitError if inlining would add too many nodes, or calls nest too deep."""
    called = {node.op for node in nodes_below(graph) if isinstance(node.op, Function)}
    if not called:
        return
    reached, pending = set(called), list(called)
    while pending:
        found = [function for function in _called(pending.pop()) if function not in reached]
        reached.update(found)
        pending += found
    order = sizes(reached)
    depths: dict[Function, int] = {}
    for function in order:
        inner = (
            (depths[node.op] if isinstance(node.op, Function) else 0) + level for node, level in _levels(function.body)
        )
        depths[function] = 1 + max(inner, default=0)
    total = sum(order[node.op] if isinstance(node.op, Function) else 1 for node in nodes_below(graph))
    written = sum(1 for part in (graph, *(function.body for function in reached)) for _ in nodes_below(part))
    limits = current()
    most = limits.entries if "entries" in limits.chosen else min(limits.entries, LEAST_EXPANSION + EXPANSION * written)
    if total > most:
        why = f"the model's functions expand to {counted(total, 'node')}, {most:,} are allowed"
        raise LimitError(
            "E-ONNX-INLINE", None, why, hint=f"If you trust the file, raise it with --limit entries={total}"
        )
    if max(depths.values()) > DEEPEST_CALLS:
        why = f"functions call each other more than {DEEPEST_CALLS} deep"
        raise LimitError("E-ONNX-DEPTH", None, why, hint="Inline them where the model is made")


def _levels(graph: Graph) -> Iterator[tuple[Node, int]]:
    """The nodes of a graph and its subgraphs, with their depth."""
    pending = [(graph, 0)]
    while pending:
        part, level = pending.pop()
        for node in part.nodes:
            yield node, level
            pending += [(inner, level + 1) for inner in node.subgraphs]


def inline(graph: Graph) -> bool:
    """Inline all function calls, also those in subgraphs and function bodies; returns whether there were any.

    Raises:
        LimitError: the functions expand to too many nodes.
    """
    check_expansion(graph)
    changed = False
    pending = [graph]
    while pending:
        inner = pending.pop()
        while any(isinstance(node.op, Function) for node in inner.nodes):
            changed = True
            before, inner.nodes = inner.nodes, []
            build = Builder(inner)
            for node in before:
                nodes = [node] if not isinstance(node.op, Function) else instance(node, inner)
                for made in nodes:
                    build.keep(made)
        pending += [below for node in inner.nodes for below in node.subgraphs]
    return changed


def instance(call: Node, graph: Graph) -> list[Node]:
    """The nodes that replace a function call; constants of the function body become weights of `graph`.

    Raises:
        FormatError: the call lacks required attributes or inputs, or they are of the wrong kind.
    """
    function = call.op
    assert isinstance(function, Function)
    missing = [name for name in function.required if name not in call.attributes]
    if missing:
        raise FormatError(
            "E-ONNX-NODE", None, f"a call of the function {function.name!r} lacks the attribute {missing[0]!r}"
        )
    attributes = {**function.given, **call.attributes}
    stem = call.name or function.name
    made = _Copy(attributes, graph, stem).body(function.body, call)
    for node in made:
        for inner in (node, *(below for part in node.subgraphs for below in nodes_below(part))):
            why = invalid_reason(inner)
            if why is not None:
                raise FormatError(
                    "E-ONNX-NODE", None, f"{inner.label}, in a call of the function {function.name!r}: {why}"
                )
    return made


class _Copy:
    """A copy of a function's body with new names."""

    def __init__(self, attributes: dict[str, Any], graph: Graph, stem: str) -> None:
        self.attributes = attributes
        self.stem = stem
        self.graph = graph
        self.values: dict[Value, Value | None] = {}

    def body(self, body: Graph, call: Node) -> list[Node]:
        inputs = [*call.inputs, *[None] * len(body.inputs)]
        self.values.update(zip(body.inputs, inputs, strict=False))
        outputs = dict(zip(body.outputs, call.outputs, strict=False))
        direct = [value for value in outputs if value in self.values or value.name in body.weights]
        self.values.update((value, outputs[value]) for value in outputs if value not in direct)
        self.weights(body, self.graph)
        nodes = [self.node(node, self.graph) for node in body.nodes]
        identity = _identity()
        return nodes + [
            Node(identity, [self.values[value]], [outputs[value]]) for value in direct if outputs[value].name
        ]

    def weights(self, source: Graph, target: Graph) -> None:
        for name, tensor in source.weights.items():
            value = self.fresh(source.values[name], target)
            target.weights[value.name] = tensor

    def fresh(self, value: Value, graph: Graph) -> Value:
        name = self.graph.fresh(f"{self.stem}/{value.name}") if value.name else ""
        made = self.values[value] = Value(name, value.dtype, value.shape, value.container)
        if name:
            graph.values[name] = made
        return made

    def node(self, node: Node, graph: Graph) -> Node:
        inputs = [None if value is None else self.values.get(value, value) for value in node.inputs]
        found = {name: self.attribute(value, graph) for name, value in node.attributes.items()}
        attributes = {name: value for name, value in found.items() if value is not None}
        outputs = []
        for value in node.outputs:
            replaced = self.values.get(value)
            if replaced is None:
                replaced = self.fresh(value, graph)
            outputs.append(replaced)
        made = Node(node.op, inputs, outputs, attributes, f"{self.stem}/{node.name}" if node.name else "")
        for value in outputs:
            value.producer = made
        return made

    def attribute(self, value: Any, graph: Graph) -> Any:
        if isinstance(value, Reference):
            return self.attributes.get(value.name)
        if isinstance(value, Graph):
            return self.subgraph(value, graph)
        if isinstance(value, list):
            return [self.attribute(item, graph) for item in value]
        return value

    def subgraph(self, source: Graph, parent: Graph) -> Graph:
        """Recursion is bounded by the reader's limit of nested subgraphs."""
        graph = Graph(parent=parent, opsets=source.opsets, name=source.name)
        graph.inputs = [self.fresh(value, graph) for value in source.inputs]
        self.weights(source, graph)
        graph.nodes = [self.node(node, graph) for node in source.nodes]
        graph.outputs = [self.values.get(value) or value for value in source.outputs]
        return graph


def _identity() -> Op:
    return registry.operator("Identity") or Foreign("Identity")


def sizes(functions: Iterable[Function]) -> dict[Function, int]:
    """The number of nodes that each function expands to.

    Raises:
        FormatError: a function calls itself, directly or through others.
    """
    done: dict[Function, int] = {}
    for root in functions:
        path: list[tuple[Function, Iterator[Function]]] = [(root, _called(root))]
        active = {root}
        while path:
            function, calls = path[-1]
            called = next((other for other in calls if other not in done), None)
            if called is None:
                done[function] = sum(
                    done[node.op] if isinstance(node.op, Function) else 1 for node in nodes_below(function.body)
                )
                active.discard(function)
                path.pop()
            elif called in active:
                raise FormatError("E-ONNX-RECURSION", None, f"the function {called.name!r} calls itself")
            else:
                active.add(called)
                path.append((called, _called(called)))
    return done


def _called(function: Function) -> Iterator[Function]:
    return iter(dict.fromkeys(node.op for node in nodes_below(function.body) if isinstance(node.op, Function)))


def nodes_below(graph: Graph) -> Iterator[Node]:
    """All nodes of a graph and its subgraphs."""
    pending = [graph]
    while pending:
        nodes = pending.pop().nodes
        yield from nodes
        pending += [inner for node in nodes for inner in node.subgraphs]
