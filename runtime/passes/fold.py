"""Constant folding: what depends on constants alone is computed once, within a budget; so are shapes that inference knows in full."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..applying import applied
from ..dtype import I64
from ..errors import Error
from ..graph import Graph, Node, Value
from ..infer import Facts, infer
from ..tensor import Tensor
from .rewrite import constant, drop_unused_weights, graphs

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True)
class FoldConstants:
    """Replace nodes by the constants that they make.

    Attributes:
        budget: bytes that a result may have beyond those of the node's inputs.
    """

    budget: int = 1 << 20

    def run(self, graph: Graph) -> bool:
        """Whether any were folded."""
        facts = infer(graph)
        changed = False
        for inner in graphs(graph):
            outputs = set(inner.outputs)
            kept = []
            for node in inner.nodes:
                made = None if outputs & set(node.outputs) else self._made(inner, node, facts)
                if made is None:
                    kept.append(node)
                    continue
                changed = True
                for value, array in zip(node.outputs, made, strict=False):
                    if value.name and array is not None:
                        _hold(inner, value, array)
            inner.nodes = kept
        if changed:
            drop_unused_weights(graph)
        return changed

    def _made(self, graph: Graph, node: Node, facts: Facts) -> list[Any] | None:
        if not node.op.repeatable or node.subgraphs or node.op.asks or node.op.compute is None:
            return None
        known = [facts.partial.get(value) for value in node.outputs[:1]]
        if known and known[0] is not None and node.outputs[0].dtype is I64 and all(isinstance(dim, int) for dim in known[0]):
            return _whole(node.outputs[0], [dim for dim in known[0] if isinstance(dim, int)])
        tensors = [constant(graph, value) for value in node.inputs if value is not None]
        if any(tensor is None or tensor.qtype is not None for tensor in tensors) or not tensors:
            return None
        size = _nbytes(node.outputs)
        if size is None or size > self.budget + sum(tensor.nbytes for tensor in tensors if tensor is not None):
            return None
        inputs = [None if held is None else held.numpy() for held in (constant(graph, value) for value in node.inputs)]
        try:
            results = applied(node, inputs, node.attributes)
        except Error:
            return None
        return list(results) if isinstance(results, tuple) else [results]


def _whole(value: Value, dims: list[int]) -> list[Any] | None:
    import numpy

    if value.shape not in ((), (len(dims),)):
        return None
    return [numpy.array(dims, numpy.int64).reshape([dim for dim in value.shape or () if isinstance(dim, int)])]


def _nbytes(values: list[Value]) -> int | None:
    """Bytes of all outputs, None where one is not known."""
    total = 0
    for value in values:
        if value.name:
            if value.dtype is None or value.shape is None or value.container or not all(isinstance(dim, int) for dim in value.shape):
                return None
            count = 1
            for dim in value.shape:
                count *= int(dim or 0)
            total += count * max(1, value.dtype.bits // 8)
    return total


def _hold(graph: Graph, value: Value, array: np.ndarray) -> None:
    import numpy

    held = Tensor.of(numpy.asarray(array))
    value.dtype, value.shape, value.producer = held.dtype, held.shape, None
    graph.weights[value.name] = held
    graph.values[value.name] = value
