"""Graph builder: adds nodes, weights and constants to a graph by operator name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..tensor.tensor import Tensor
from . import registry
from .graph import Graph, Node, Value
from .op import Foreign, Op

if TYPE_CHECKING:
    import numpy as np


class Builder:
    """Adds nodes to the end of a list, and their constants to a graph.

    Args:
        graph: gets the constants, and the nodes unless `nodes` is given.
        stem: what new names start with.
    """

    def __init__(self, graph: Graph, nodes: list[Node] | None = None, stem: str = "") -> None:
        self.graph = graph
        self.nodes = graph.nodes if nodes is None else nodes
        self.stem = stem

    def name(self, word: str) -> str:
        """A name that no value of the graph has."""
        return self.graph.fresh(f"{self.stem}/{word}" if self.stem else word)

    def constant(self, array: np.ndarray | Sequence[Any] | float, dtype: str = "int64") -> Value:
        """A constant value; a list or number is taken as `dtype` (numpy's name)."""
        import numpy

        return self.weight(
            Tensor.of(numpy.asarray(array, None if isinstance(array, numpy.ndarray | numpy.generic) else dtype))
        )

    def weight(self, held: Tensor) -> Value:
        """A constant value that a tensor is."""
        value = Value(self.name("constant"), held.dtype, held.shape)
        self.graph.weights[value.name] = held
        self.graph.values[value.name] = value
        return value

    def add(
        self,
        op: str | Op,
        inputs: Sequence[Value | None],
        attributes: dict[str, Any] | None = None,
        *,
        domain: str = "",
        outputs: int | Sequence[Value] = 1,
        name: str = "",
    ) -> Value:
        """Add a node and give its first output; `outputs` are a number of new values, or values that exist."""
        return self.node(op, inputs, attributes, domain=domain, outputs=outputs, name=name).outputs[0]

    def node(
        self,
        op: str | Op,
        inputs: Sequence[Value | None],
        attributes: dict[str, Any] | None = None,
        *,
        domain: str = "",
        outputs: int | Sequence[Value] = 1,
        name: str = "",
    ) -> Node:
        """Add a node."""
        operator = registry.operator(op, domain) or Foreign(op, domain) if isinstance(op, str) else op
        made = [Value(self.name(operator.name)) for _ in range(outputs)] if isinstance(outputs, int) else list(outputs)
        node = Node(operator, list(inputs), made, dict(attributes or {}), name)
        self.keep(node)
        return node

    def keep(self, node: Node) -> None:
        """Add a node that exists."""
        self.nodes.append(node)
        for value in node.outputs:
            value.producer = node
            if value.name:
                self.graph.values[value.name] = value
