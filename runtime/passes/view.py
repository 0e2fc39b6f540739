"""A graph as patterns see it, and what a pattern has found in it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import field
from typing import TYPE_CHECKING

from ..graph import Graph, Node, Value
from ..record import dataclass
from .rewrite import constant, graphs

if TYPE_CHECKING:
    from .factors import Factors

Bound = Value | Node | float


class View:
    """A graph as patterns see it: who makes and who reads its values.

    Attributes:
        readers: the nodes that read a value, in subgraphs too; results: what a graph or subgraph gives.
        home: the graph that a node is in; nodes that have been replaced are left out.
        graph: the one whose nodes are matched.
        products: values as products of at most so many factors, as far as they have been asked for.
    """

    def __init__(self, root: Graph) -> None:
        self.readers: dict[Value, list[Node]] = defaultdict(list)
        self.home: dict[Node, Graph] = {}
        self.results: set[Value] = set()
        self.graph = root
        self.products: dict[tuple[Value, int], list[Factors]] = {}
        self._numbers: dict[Value, float | None] = {}
        for graph in graphs(root):
            self.results.update(graph.outputs)
            for node in graph.nodes:
                self.home[node] = graph
                for value in node.inputs:
                    if value is not None:
                        self.readers[value].append(node)

    def maker(self, value: Value | None) -> Node | None:
        """The node of the graph in view that makes a value."""
        made = None if value is None else value.producer
        return made if made is not None and self.home.get(made) is self.graph else None

    def number(self, value: Value | None) -> float | None:
        """The constant of one element that a value is."""
        if value is None:
            return None
        if value not in self._numbers:
            held = constant(self.graph, value)
            plain = held is not None and held.count == 1 and held.dtype.kind in ("float", "int", "uint") and held.dtype.numpy is not None
            self._numbers[value] = float(held.numpy().reshape(())) if held is not None and plain else None
        return self._numbers[value]

    def only(self, value: Value) -> bool:
        """Whether a value is read by one node, and is no result."""
        return value not in self.results and len(set(self.readers.get(value, ()))) == 1


@dataclass(frozen=True)
class Found:
    """What has been matched so far: values, nodes and numbers by name, and the nodes that are the pattern's own."""

    bound: Mapping[str, Bound] = field(default_factory=dict)
    inner: tuple[Node, ...] = ()

    def bind(self, name: str, item: Bound) -> Found | None:
        """With a name bound, None where it stands for something else already."""
        if not name:
            return self
        if name in self.bound:
            return self if self.bound[name] is item or (isinstance(item, float) and self.bound[name] == item) else None
        return Found({**self.bound, name: item}, self.inner)

    def within(self, *nodes: Node) -> Found:
        """With further nodes of its own."""
        return Found(self.bound, self.inner + tuple(node for node in nodes if node not in self.inner))
