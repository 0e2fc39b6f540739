"""Graph summary for `inspect`: versions, inputs, outputs, and operators with their counts."""

from __future__ import annotations

from collections import Counter
from typing import Any

from ...runtime.ir.function import nodes_below
from ...runtime.ir.graph import Graph, Node, Value

ORIGIN = ("ir_version", "producer_name", "producer_version", "domain", "model_version", "doc_string")


def facts(graph: Graph, *, nodes: bool) -> dict[str, Any]:
    """The facts as JSON; every node of the graph and of the graphs inside it with `nodes`."""
    everything = list(nodes_below(graph))
    counts = Counter(operator(node) for node in everything)
    found = {
        "name": graph.name,
        **{key: value for key, value in (graph.carried or {}).items() if key in ORIGIN},
        "opsets": {domain or "ai.onnx": version for domain, version in graph.opsets.items()},
        "inputs": [described(value) for value in graph.inputs if value.name not in graph.weights],
        "outputs": [described(value) for value in graph.outputs],
        "node_count": len(graph.nodes),
        "nodes_in_subgraphs": len(everything) - len(graph.nodes),
        "operators": dict(sorted(counts.items(), key=lambda item: (-item[1], item[0]))),
        "functions": [f"{domain or 'ai.onnx'}.{name}" for domain, name, _ in graph.functions],
        "training": len(graph.training),
    }
    if nodes:
        found["nodes"] = [node_facts(node) for node in everything]
    return found


def operator(node: Node) -> str:
    """``Conv``, or with its domain ``com.microsoft.FusedConv``."""
    return f"{node.op.domain}.{node.op.name}" if node.op.domain else node.op.name


def described(value: Value) -> dict[str, Any]:
    """A value's name, dtype, shape (numbers, names, None) and containers."""
    shape = None if value.shape is None else list(value.shape)
    return {
        "name": value.name,
        "dtype": None if value.dtype is None else value.dtype.name,
        "shape": shape,
        "container": list(value.container),
    }


def node_facts(node: Node) -> dict[str, Any]:
    """A node's name, operator, and the names of what it reads and computes."""
    return {
        "name": node.name,
        "operator": operator(node),
        "inputs": ["" if value is None else value.name for value in node.inputs],
        "outputs": [value.name for value in node.outputs],
        "attributes": sorted(node.attributes),
    }


def type_text(value: Value) -> str:
    """``f32[batch, 3, ?]``, or ``sequence(f32[...])``."""
    dims = (
        "[...]"
        if value.shape is None
        else "[" + ", ".join("?" if dim is None else str(dim) for dim in value.shape) + "]"
    )
    text = f"{'?' if value.dtype is None else value.dtype.name}{dims}"
    for wrapper in reversed(value.container):
        text = f"{wrapper}({text})"
    return text
