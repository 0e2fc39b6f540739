"""Names for lengths that are not known, so that a length is known to be the same wherever it comes back."""

from __future__ import annotations

from ..graph import Graph, Node, Value
from ..infer import Facts
from .rewrite import graphs

MARK = "\0"
"""What such names start with; no file's names do."""


class Names(Facts):
    """Facts that name the lengths of the main graph that inference leaves open. They stay in the graph until `forget`."""

    def __init__(self, graph: Graph) -> None:
        super().__init__()
        self.root = graph
        self.count = 0
        for value in graph.inputs:
            self.give(value)
        self.infer(graph)

    def infer_node(self, node: Node) -> None:
        super().infer_node(node)
        if len(self.graphs) == 1:
            for value in node.outputs:
                self.give(value)

    def give(self, value: Value) -> None:
        """Name what is open in a value's shape; no other length is known to equal it."""
        if value.shape is not None and None in value.shape and not value.container:
            names = []
            for dim in value.shape:
                self.count += dim is None
                names.append(f"{MARK}{self.count}" if dim is None else dim)
            value.shape = tuple(names)

    def forget(self) -> None:
        """Take the names out of the graph again."""
        for graph in graphs(self.root):
            values = {*graph.values.values(), *graph.inputs, *graph.outputs, *(value for node in graph.nodes for value in node.outputs)}
            for value in values:
                if value.shape is not None and any(_is_given(dim) for dim in value.shape):
                    value.shape = tuple(None if _is_given(dim) else dim for dim in value.shape)


def _is_given(dim: object) -> bool:
    return isinstance(dim, str) and dim.startswith(MARK)
