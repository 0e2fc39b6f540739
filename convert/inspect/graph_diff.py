"""Graph diff: versions, inputs, outputs and nodes of two graphs, matched by their computation."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ...runtime.ir.graph import Graph, Node, Reference, Value
from ...runtime.tensor.stored_tensor import StoredTensor
from .content_hash import tensor_hash
from .graph_summary import ORIGIN, operator, type_text

Described = dict[str, Any]


def described(graph: Graph) -> Described:
    """Everything about a graph but its weights, by a name for each part; equal parts are equal values."""
    if graph.parts:
        return {f"{name}/{key}": value for name, part in graph.parts.items() for key, value in described(part).items()}
    if not graph.nodes and not graph.outputs:
        return {}
    found: Described = {f"opset {domain or 'ai.onnx'}": version for domain, version in graph.opsets.items()}
    found |= {key: value for key, value in (graph.carried or {}).items() if key in ORIGIN}
    for title, values in (("input", graph.inputs), ("output", graph.outputs)):
        found |= {
            f"{title} {value.name}": type_text(value)
            for value in values
            if title == "output" or value.name not in graph.weights
        }
    for (domain, name, overload), function in graph.functions.items():
        place = ".".join(part for part in (domain, name, overload) if part)
        found |= {f"function {place}/{key}": value for key, value in _nodes(function.body)}
    return found | dict(_nodes(graph))


def _nodes(graph: Graph) -> Iterator[tuple[str, Any]]:
    """Every node by the position of its graph and its first named output."""
    pending: list[tuple[str, Graph]] = [("", graph)]
    while pending:
        place, inner = pending.pop()
        yield f"outputs {place or 'of the graph'}", [value.name for value in inner.outputs]
        for node in inner.nodes:
            key = next((value.name for value in node.outputs if value.name), node.name)
            yield f"node {place}{key}", _node(node)
            pending += [
                (f"{place}{key}/{name}/", below) for name, below in node.attributes.items() if isinstance(below, Graph)
            ]


def _node(node: Node) -> Described:
    return {
        "operator": operator(node),
        "name": node.name,
        "inputs": ["" if value is None else value.name for value in node.inputs],
        "outputs": [value.name for value in node.outputs],
        "attributes": {name: _attribute(value) for name, value in sorted(node.attributes.items())},
    }


def _attribute(value: Any) -> Any:
    """An attribute's value as something that can be compared and shown."""
    if isinstance(value, StoredTensor):
        return f"{value.dtype.name}{list(value.shape)} {tensor_hash(value)[:12]}"
    if isinstance(value, Graph):
        return "graph"
    if isinstance(value, Value):
        return type_text(value)
    if isinstance(value, Reference):
        return f"${value.name}"
    return [_attribute(item) for item in value] if isinstance(value, list) else value
