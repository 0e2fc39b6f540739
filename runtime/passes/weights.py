"""Weights of a whole model, those inside subgraphs included, for formats that hold nothing else."""

from __future__ import annotations

from ..graph import Graph
from ..tensor import Tensor


def collected(graph: Graph) -> dict[str, Tensor]:
    """Every weight by name; in subgraphs, a name that is taken gets those of the nodes around it in front."""
    found: dict[str, Tensor] = {}
    waiting: list[tuple[str, Graph]] = [("", graph)]
    while waiting:
        prefix, inner = waiting.pop()
        for name, tensor in inner.weights.items():
            place = name if name not in found else f"{prefix}{name}"
            while place in found:
                place += "'"
            found[place] = tensor
        below = [
            (f"{prefix}{node.name or node.op.name}/{key}{f'.{index}' if index else ''}/", part)
            for node in inner.nodes for key, value in node.attributes.items()
            for index, part in enumerate(value if isinstance(value, list) else [value]) if isinstance(part, Graph)
        ]
        waiting += reversed(below)
    return found


def weights_only(graph: Graph) -> bool:
    """Leave nothing of a graph but its weights and what describes the model; whether it had nodes."""
    if not graph.nodes and not graph.inputs:
        return False
    graph.weights = collected(graph)
    graph.note("W-NODES", f"the weights are taken, the {len(graph.nodes):,} nodes of the graph are dropped")
    graph.nodes, graph.inputs, graph.outputs, graph.training = [], [], [], []
    graph.values, graph.functions, graph.constants = {}, {}, {}
    return True
