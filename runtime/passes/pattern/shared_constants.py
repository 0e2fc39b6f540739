"""Derived constants, one per weight and derivation, shared by all nodes and computed when read."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING

from ...ir.builder import Builder
from ...ir.graph import Graph, Value
from ...tensor.recomputed import tensors

if TYPE_CHECKING:
    import numpy as np


class SharedConstants:
    """Constants by source weight and derivation; they belong to the weight's graph."""

    def __init__(self) -> None:
        self._made: dict[tuple[Graph, Value, Hashable], list[Value]] = {}

    def constants(
        self, build: Builder, value: Value, how: Hashable, make: Callable[[], Sequence[np.ndarray]]
    ) -> list[Value]:
        """Constants with the arrays of `make`, which is called for the first node, and again when they are read."""
        scope = owner_graph(build.graph, value)
        place = (scope, value, how)
        if place not in self._made:
            beside = Builder(scope, stem=build.stem)
            self._made[place] = [beside.weight(held) for held in tensors(make) if held is not None]
        return self._made[place]


def owner_graph(graph: Graph, value: Value) -> Graph:
    """The graph that a value belongs to: `graph` or one that encloses it."""
    while graph.parent is not None and graph.values.get(value.name) is not value:
        graph = graph.parent
    return graph
