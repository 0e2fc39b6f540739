"""Sharing: what is made of a weight is there once, however many nodes use it, and large tensors are made when they are read."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING

from ..build import Builder
from ..deferred import tensors
from ..graph import Graph, Value

if TYPE_CHECKING:
    import numpy as np


class Shared:
    """Constants by the weight that they are made of, and how; they are where the weight is."""

    def __init__(self) -> None:
        self._made: dict[tuple[Graph, Value, Hashable], list[Value]] = {}

    def constants(self, build: Builder, value: Value, how: Hashable, make: Callable[[], Sequence[np.ndarray]]) -> list[Value]:
        """Constants with the arrays of `make`, which is called for the first node, and again when they are read."""
        home = owner(build.graph, value)
        place = (home, value, how)
        if place not in self._made:
            beside = Builder(home, stem=build.stem)
            self._made[place] = [beside.weight(held) for held in tensors(make) if held is not None]
        return self._made[place]


def owner(graph: Graph, value: Value) -> Graph:
    """The graph, `graph` or one around it, that a value belongs to."""
    while graph.parent is not None and graph.values.get(value.name) is not value:
        graph = graph.parent
    return graph
