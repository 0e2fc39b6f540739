"""Graph view for pattern matching: producers and readers of values, and the bindings of a match."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from ...ir.graph import Graph, Node, Value
from .product_form import Factors
from .replace_nodes import constant, graphs

Bound = Value | Node | float


class View:
    """A graph as patterns see it: who makes and who reads its values.

    Attributes:
        readers: the nodes that read a value, in subgraphs too; results: what a graph or subgraph gives.
        graph_of: the graph that a node is in; nodes that have been replaced are left out.
        graph: the one whose nodes are matched.
        products: values as products of at most so many factors, as far as they have been asked for.
    """

    def __init__(self, root: Graph) -> None:
        self.readers: dict[Value, list[Node]] = defaultdict(list)
        self.graph_of: dict[Node, Graph] = {}
        self.results: set[Value] = set()
        self.graph = root
        self.products: dict[tuple[Value, int], list[Factors]] = {}
        self._numbers: dict[Value, float | None] = {}
        for graph in graphs(root):
            self.results.update(graph.outputs)
            for node in graph.nodes:
                self.graph_of[node] = graph
                for value in node.inputs:
                    if value is not None:
                        self.readers[value].append(node)

    def maker(self, value: Value | None) -> Node | None:
        """The node of the viewed graph that computes a value."""
        made = None if value is None else value.producer
        return made if made is not None and self.graph_of.get(made) is self.graph else None

    def number(self, value: Value | None) -> float | None:
        """A one-element constant as a float, None for other values."""
        if value is None:
            return None
        if value not in self._numbers:
            held = constant(self.graph, value)
            plain = (
                held is not None
                and held.count == 1
                and held.dtype.kind in ("float", "int", "uint")
                and held.dtype.numpy is not None
            )
            self._numbers[value] = float(held.numpy().reshape(())) if held is not None and plain else None
        return self._numbers[value]

    def only(self, value: Value) -> bool:
        """Whether exactly one node reads a value that is not a graph output."""
        return value not in self.results and len(set(self.readers.get(value, ()))) == 1


class PartialMatch(NamedTuple):
    """A partial match: values, nodes and numbers by name, and the nodes inside the pattern."""

    bound: Mapping[str, Bound] = MappingProxyType({})
    inner: tuple[Node, ...] = ()

    def bind(self, name: str, item: Bound) -> PartialMatch | None:
        """The match with a name bound; None if the name is bound to something else."""
        if not name:
            return self
        if name in self.bound:
            return self if self.bound[name] is item or (isinstance(item, float) and self.bound[name] == item) else None
        return PartialMatch({**self.bound, name: item}, self.inner)

    def within(self, *nodes: Node) -> PartialMatch:
        """The match with further inner nodes."""
        return PartialMatch(self.bound, self.inner + tuple(node for node in nodes if node not in self.inner))
