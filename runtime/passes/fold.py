"""Constant folding: what depends on constants alone is computed once, within a budget; so are shapes that inference knows in full."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from ..applying import applied
from ..deferred import tensors
from ..dtype import I64
from ..errors import Error
from ..graph import Graph, Node, Value
from ..infer import Facts, infer
from ..record import dataclass
from ..tensor import Tensor
from .rewrite import constant, drop_unused_weights, graphs

if TYPE_CHECKING:
    import numpy as np


ALL, FROM_NOTHING, TIMES = 4, 1 << 26, 32
"""All results of one run of the pass may take `ALL` budgets together, `FROM_NOTHING` bytes at most, and `TIMES` the bytes of the weights: codes of
4 bits become f32, are cast and transposed."""


READINGS = 64
"""Nodes that may be computed again for one reading of a deferred result: a chain that uses each result several times would need ever more."""


@dataclass(frozen=True)
class FoldConstants:
    """Replace nodes by the constants that they make.

    Attributes:
        budget: bytes that a result may have beyond those of the node's inputs.
        deferred: whether large results are computed again whenever they are read, rather than held.
    """

    budget: int = 1 << 20
    deferred: bool = False

    def run(self, graph: Graph) -> bool:
        """Whether any were folded."""
        facts = infer(graph)
        changed = False
        left = min(ALL * self.budget, FROM_NOTHING) + TIMES * sum(inner.nbytes for inner in graphs(graph))
        costs: dict[Value | None, int] = {}
        for inner in graphs(graph):
            outputs = set(inner.outputs)
            kept = []
            for node in inner.nodes:
                cost = 1 + sum(costs.get(value, 0) for value in set(node.inputs))
                skipped = bool(outputs & set(node.outputs)) or (self.deferred and cost > READINGS)
                made = None if skipped else self._made(inner, node, facts, left)
                if made is None:
                    kept.append(node)
                    continue
                costs.update(dict.fromkeys(node.outputs, cost))
                changed = True
                left -= _nbytes(node.outputs) or 0
                for value, held in zip(node.outputs, made, strict=False):
                    if value.name and held is not None:
                        _hold(inner, value, held)
            inner.nodes = kept
        if changed:
            drop_unused_weights(graph)
        return changed

    def _made(self, graph: Graph, node: Node, facts: Facts, left: int) -> list[Tensor | None] | None:
        if not node.op.repeatable or node.subgraphs or node.op.asks or node.op.compute is None:
            return None
        known = [facts.partial.get(value) for value in node.outputs[:1]]
        if known and known[0] is not None and node.outputs[0].dtype is I64 and all(isinstance(dim, int) for dim in known[0]):
            return _whole(node.outputs[0], [dim for dim in known[0] if isinstance(dim, int)])
        inputs = [constant(graph, value) for value in node.inputs]
        given = [tensor for tensor, value in zip(inputs, node.inputs, strict=True) if value is not None]
        if any(tensor is None or tensor.qtype is not None for tensor in given) or not given:
            return None
        size = _nbytes(node.outputs)
        if size is None or size > min(left, self.budget + _given(graph, node)):
            return None
        make = functools.partial(_results, node, inputs)
        try:
            return tensors(make) if self.deferred else [None if array is None else Tensor.of(array) for array in make()]
        except Error:
            return None


def _given(graph: Graph, node: Node) -> int:
    """Bytes of the constants that a node takes, each counted once."""
    return sum(held.nbytes for held in (constant(graph, value) for value in set(node.inputs)) if held is not None)


def _results(node: Node, inputs: list[Tensor | None]) -> list[np.ndarray | None]:
    """What a node makes of constants."""
    import numpy

    results = applied(node, [None if held is None else held.numpy() for held in inputs], node.attributes)
    return [None if array is None else numpy.asarray(array) for array in (results if isinstance(results, tuple) else (results,))]


def _whole(value: Value, dims: list[int]) -> list[Tensor | None] | None:
    import numpy

    if value.shape not in ((), (len(dims),)):
        return None
    return [Tensor.of(numpy.array(dims, numpy.int64).reshape([dim for dim in value.shape or () if isinstance(dim, int)]))]


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


def _hold(graph: Graph, value: Value, held: Tensor) -> None:
    value.dtype, value.shape, value.producer = held.dtype, held.shape, None
    graph.weights[value.name] = held
    graph.values[value.name] = value
