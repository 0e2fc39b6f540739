"""Dead code elimination: unused nodes, and weights that only they used."""

from __future__ import annotations

from ...base.dataclass import dataclass
from ...ir.clone import needed
from ...ir.graph import Graph
from .replace_nodes import drop_unused_weights, graphs


@dataclass(frozen=True)
class RemoveDeadCode:
    """Remove nodes that no output depends on; unused optional outputs of other nodes lose their names."""

    def run(self, graph: Graph) -> bool:
        """Return whether anything was removed."""
        changed = False
        for inner in graphs(graph):
            kept, used = [], set(inner.outputs)
            for node in reversed(inner.nodes):
                if any(value in used for value in node.outputs):
                    kept.append(node)
                    used.update(needed(node))
            changed |= len(kept) < len(inner.nodes)
            gone = {value for node in inner.nodes for value in node.outputs} - {
                value for node in kept for value in node.outputs
            }
            inner.nodes = kept[::-1]
            for value in gone:
                if inner.values.get(value.name) is value:
                    del inner.values[value.name]
        before = len(graph.weights)
        drop_unused_weights(graph)
        return changed or len(graph.weights) < before
