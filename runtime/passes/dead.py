"""Dead code: nodes whose results nobody uses, and the weights that only they used."""

from __future__ import annotations

from ..copies import needed
from ..graph import Graph
from ..record import dataclass
from .rewrite import drop_unused_weights, graphs


@dataclass(frozen=True)
class DropDead:
    """Remove what no output depends on; unused outputs of nodes that stay lose their names where the standard lets them."""

    def run(self, graph: Graph) -> bool:
        """Whether anything was removed."""
        changed = False
        for inner in graphs(graph):
            kept, used = [], set(inner.outputs)
            for node in reversed(inner.nodes):
                if any(value in used for value in node.outputs):
                    kept.append(node)
                    used.update(needed(node))
            changed |= len(kept) < len(inner.nodes)
            gone = {value for node in inner.nodes for value in node.outputs} - {value for node in kept for value in node.outputs}
            inner.nodes = kept[::-1]
            for value in gone:
                if inner.values.get(value.name) is value:
                    del inner.values[value.name]
        before = len(graph.weights)
        drop_unused_weights(graph)
        return changed or len(graph.weights) < before
