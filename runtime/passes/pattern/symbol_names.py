"""Names for unknown dimensions, so that equal dimensions are recognized wherever they occur."""

from __future__ import annotations

from ...ir.graph import Graph, Node, Value
from ...ir.shape_inference import Facts
from .replace_nodes import graphs

MARK = "\0"
"""Prefix of these names; names in files never begin with it."""


class NamedDims(Facts):
    """Facts that name the unknown dimensions of the main graph. The names stay in the graph until `forget`."""

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
        """Name the unknown dimensions of a value's shape."""
        if value.shape is not None and None in value.shape and not value.container:
            names = []
            for dim in value.shape:
                self.count += dim is None
                names.append(f"{MARK}{self.count}" if dim is None else dim)
            value.shape = tuple(names)

    def forget(self) -> None:
        """Remove the names from the graph."""
        for graph in graphs(self.root):
            values = {
                *graph.values.values(),
                *graph.inputs,
                *graph.outputs,
                *(value for node in graph.nodes for value in node.outputs),
            }
            for value in values:
                if value.shape is not None and any(_is_given(dim) for dim in value.shape):
                    value.shape = tuple(None if _is_given(dim) else dim for dim in value.shape)


def _is_given(dim: object) -> bool:
    return isinstance(dim, str) and dim.startswith(MARK)
