"""Subgraph extraction: the nodes between given inputs and outputs, as a new graph."""

from __future__ import annotations

from collections.abc import Sequence

from ...base.errors import UsageError
from ...ir.clone import copied_graph, needed
from ...ir.graph import Function, Graph, Node, Value
from ..pattern.replace_nodes import drop_unused_weights, graphs


def extract(graph: Graph, inputs: Sequence[str], outputs: Sequence[str]) -> Graph:
    """The nodes that compute `outputs` from `inputs`, and from the graph inputs that are needed besides, with the
    functions that they use.

    Tensors are shared with `graph`. Raises UsageError for unknown names.
    """
    starts = [_value(graph, name) for name in inputs]
    ends = [_value(graph, name) for name in outputs]
    if not ends:
        why = "missing outputs"
        hint = "Choose them with --outputs; candle-convert inspect lists the values"
        raise UsageError("E-GRAPH-OUTPUTS", None, why, hint=hint)
    used = set(ends)
    kept: list[Node] = []
    for node in reversed(graph.nodes):
        if any(value in used and value not in starts for value in node.outputs):
            kept.append(node)
            used.update(needed(node))
    made = [value for node in kept for value in node.outputs]
    own = [value for value in graph.inputs if value in used and value not in starts]
    fed = [value for value in starts if value in used or value in ends]
    part = Graph(
        weights=dict(graph.weights),
        metadata=dict(graph.metadata),
        inputs=[*fed, *own],
        outputs=ends,
        nodes=kept[::-1],
        format=graph.format,
        files=list(graph.files),
        name=graph.name,
        opsets=dict(graph.opsets),
    )
    part.values = {value.name: value for value in (*fed, *own, *made, *ends) if value.name}
    part.values.update({name: graph.values[name] for name in graph.weights if name in graph.values})
    for value in fed:
        part.weights.pop(value.name, None)
    drop_unused_weights(part)
    part = copied_graph(part, {}, typed=True)
    _cut(part)
    called = _called(part)
    part.functions = {key: function for key, function in graph.functions.items() if function in called}
    return part


def _cut(graph: Graph) -> None:
    """Rename outputs of nodes that are inputs of the graph."""
    fed = set(graph.inputs)
    for value in fed:
        value.producer = None
    for node in graph.nodes:
        for index, value in enumerate(node.outputs):
            if value in fed:
                name = graph.fresh(value.name)
                node.outputs[index] = graph.values[name] = Value(name, value.dtype, value.shape, value.container, node)


def _called(graph: Graph) -> set[Function]:
    """The functions that nodes use, within subgraphs and other functions too."""
    found: set[Function] = set()
    pending = [graph]
    while pending:
        for inner in graphs(pending.pop()):
            used = {node.op for node in inner.nodes if isinstance(node.op, Function)} - found
            found |= used
            pending += [function.body for function in used]
    return found


def _value(graph: Graph, name: str) -> Value:
    value = graph.values.get(name)
    if value is None:
        raise UsageError(
            "E-GRAPH-VALUE", None, f"no value named {name!r}", hint="candle-convert inspect lists the values"
        )
    return value
