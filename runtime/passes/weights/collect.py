"""All weights of a model, including those of subgraphs, for formats without a graph."""

from __future__ import annotations

from ...base.units import counted
from ...ir.graph import Graph
from ...tensor.stored_tensor import StoredTensor


def collect_weights(graph: Graph) -> dict[str, StoredTensor]:
    """Every weight by name; a duplicate name in a subgraph is prefixed with its enclosing nodes."""
    found: dict[str, StoredTensor] = {}
    pending: list[tuple[str, Graph]] = [("", graph)]
    while pending:
        prefix, inner = pending.pop()
        for name, tensor in inner.weights.items():
            place = name if name not in found else f"{prefix}{name}"
            while place in found:
                place += "'"
            found[place] = tensor
        below = [
            (f"{prefix}{node.name or node.op.name}/{key}{f'.{index}' if index else ''}/", part)
            for node in inner.nodes
            for key, value in node.attributes.items()
            for index, part in enumerate(value if isinstance(value, list) else [value])
            if isinstance(part, Graph)
        ]
        pending += reversed(below)
    return found


def weights_only(graph: Graph) -> bool:
    """Reduce a graph to its weights and metadata; return whether it had nodes."""
    if not graph.nodes and not graph.inputs:
        return False
    graph.weights = collect_weights(graph)
    dropped = counted(len(graph.nodes), "node", verb="is")
    graph.note("W-NODES", f"only weights are written, by name: {dropped} dropped, and the file cannot be run")
    graph.nodes, graph.inputs, graph.outputs, graph.training = [], [], [], []
    graph.values, graph.functions, graph.constants = {}, {}, {}
    return True
