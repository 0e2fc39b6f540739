"""Dead code: nodes whose results nobody uses, and the weights that only they used."""

from __future__ import annotations

from dataclasses import dataclass

from ..graph import Graph, Node, Value
from .rewrite import drop_unused_weights, graphs


@dataclass(frozen=True)
class DropDead:
    """Remove what no output depends on; unused outputs of nodes that stay lose their names where the standard lets them."""

    def run(self, graph: Graph) -> bool:
        """Whether anything was removed."""
        changed = False
        for inner in graphs(graph):
            kept, needed = [], set(inner.outputs)
            for node in reversed(inner.nodes):
                if any(value in needed for value in node.outputs):
                    kept.append(node)
                    needed.update(reads(node))
            changed |= len(kept) < len(inner.nodes)
            gone = {value for node in inner.nodes for value in node.outputs} - {value for node in kept for value in node.outputs}
            inner.nodes = kept[::-1]
            for value in gone:
                if inner.values.get(value.name) is value:
                    del inner.values[value.name]
        before = len(graph.weights)
        drop_unused_weights(graph)
        return changed or len(graph.weights) < before


def reads(node: Node) -> set[Value]:
    """The values that a node reads, those that its subgraphs take from outside included."""
    found = {value for value in node.inputs if value is not None}
    for below in node.subgraphs:
        for inner in graphs(below):
            found.update(value for each in inner.nodes for value in each.inputs if value is not None)
            found.update(inner.outputs)
    return found
