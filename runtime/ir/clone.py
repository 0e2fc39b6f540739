"""Copies of nodes and graphs with values of their own, and the outer values that subgraphs capture."""

from __future__ import annotations

import dataclasses
from collections.abc import MutableMapping

from .graph import Graph, Node, Value


def copied(node: Node, values: MutableMapping[Value, Value], parent: Graph | None = None) -> Node:
    """Copy a node whose values, and those of its subgraphs, may be given other shapes."""

    def value_of(value: Value) -> Value:
        return values.setdefault(value, Value(value.name, container=value.container))

    attributes = {
        name: [copied_graph(part, values, parent) if isinstance(part, Graph) else part for part in item]
        if isinstance(item, list)
        else copied_graph(item, values, parent)
        if isinstance(item, Graph)
        else item
        for name, item in node.attributes.items()
    }
    outputs = [value_of(value) if value.name else Value("") for value in node.outputs]
    inputs = [None if value is None else value_of(value) for value in node.inputs]
    made = Node(node.op, inputs, outputs, attributes, node.name, node.carried)
    for value in outputs:
        value.producer = made
    return made


def copied_graph(
    graph: Graph, values: MutableMapping[Value, Value], parent: Graph | None = None, typed: bool = False
) -> Graph:
    """Copy a graph with its nodes and values; with `typed` also what is known of these. Tensors are shared."""
    made = dataclasses.replace(
        graph, weights=dict(graph.weights), values={}, parent=parent or graph.parent, _fresh=dict(graph._fresh)
    )
    for name, value in graph.values.items():
        held = graph.weights.get(name)
        keeps = typed or held is not None
        values[value] = Value(name, value.dtype if keeps else None, value.shape if keeps else None, value.container)
        values[value].carried = value.carried if typed else None
        made.values[name] = values[value]
    for value in graph.inputs:
        values[value].dtype, values[value].shape = value.dtype, value.shape
    made.inputs = [values[value] for value in graph.inputs]
    made.nodes = [copied(node, values, made) for node in graph.nodes]
    made.outputs = [values.setdefault(value, Value(value.name)) for value in graph.outputs]
    return made


def with_own_tables(graph: Graph) -> Graph:
    """The graph with weights, values and keys that can be added and removed without the first one; nodes, values and
    tensors are shared."""
    return dataclasses.replace(
        graph,
        weights=dict(graph.weights),
        metadata=dict(graph.metadata),
        attachments=dict(graph.attachments),
        notes=list(graph.notes),
        files=list(graph.files),
        opsets=dict(graph.opsets),
        values=dict(graph.values),
        _fresh=dict(graph._fresh),
    )


def captures(graph: Graph) -> list[Value]:
    """Values of the enclosing graphs that a graph and its subgraphs use."""
    own: set[Value] = set()
    used: dict[Value, None] = {}
    pending = [graph]
    while pending:
        inner = pending.pop()
        own.update(inner.values.values())
        own.update(inner.inputs)
        for node in inner.nodes:
            own.update(node.outputs)
            used.update(dict.fromkeys(value for value in node.inputs if value is not None))
            pending += node.subgraphs
        used.update(dict.fromkeys(inner.outputs))
    return [value for value in used if value not in own]


def needed(node: Node) -> list[Value]:
    """Values that a node uses, including those that its subgraphs capture."""
    found = [value for value in node.inputs if value is not None]
    for graph in node.subgraphs:
        found += captures(graph)
    return found
