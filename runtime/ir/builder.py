"""Graph builder: adds nodes, weights and constants to a graph by operator name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..tensor.stored_tensor import StoredTensor
from . import registry
from .graph import Graph, Node, Value
from .op import Foreign, Op

if TYPE_CHECKING:
    import numpy as np


class Builder:
    """Adds nodes to the end of a list, and their constants to a graph.

    Args:
        graph: receives the constants, and the nodes unless `nodes` is given.
        stem: prefix of new names.
    """

    def __init__(self, graph: Graph, nodes: list[Node] | None = None, stem: str = "") -> None:
        self.graph = graph
        self.nodes = graph.nodes if nodes is None else nodes
        self.stem = stem

    def name(self, word: str) -> str:
        """A name that is unused in the graph."""
        return self.graph.fresh(f"{self.stem}/{word}" if self.stem else word)

    def constant(self, array: np.ndarray | Sequence[Any] | float, dtype: str = "int64") -> Value:
        """Add a constant; a list or number becomes an array of `dtype` (NumPy's name)."""
        import numpy

        return self.weight(
            StoredTensor.of(numpy.asarray(array, None if isinstance(array, numpy.ndarray | numpy.generic) else dtype))
        )

    def weight(self, held: StoredTensor) -> Value:
        """Add a tensor as a constant."""
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
        """Add a node and return its first output. `outputs` is the number of new values, or existing values."""
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
        """Add an existing node."""
        self.nodes.append(node)
        for value in node.outputs:
            value.producer = node
            if value.name:
                self.graph.values[value.name] = value
