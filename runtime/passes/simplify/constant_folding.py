"""Constant folding within a memory budget; shapes that inference knows completely are folded too."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING

from ...base.dataclass import dataclass
from ...base.errors import Error
from ...ir.evaluate import compute_node
from ...ir.graph import Graph, Node, Value
from ...ir.shape_inference import Facts, infer
from ...tensor.dtype import I64
from ...tensor.recomputed import tensors
from ...tensor.stored_tensor import StoredTensor
from ..pattern.replace_nodes import constant, drop_unused_weights, graphs

if TYPE_CHECKING:
    import numpy as np


BUDGETS, MAX_FOLDED_BYTES, WEIGHT_MULTIPLE = 4, 1 << 26, 32
"""One run of the pass may fold `BUDGETS` budgets, at most `MAX_FOLDED_BYTES` bytes, plus `WEIGHT_MULTIPLE` times the
bytes of the weights (4-bit codes become f32, are cast and transposed)."""


MAX_RECOMPUTED = 64
"""Nodes recomputed for one read of a deferred result, at most: a chain that uses each result several times would
grow exponentially."""


@dataclass(frozen=True)
class FoldConstants:
    """Replace nodes with constant inputs by their results.

    Attributes:
        budget: bytes that a result may have beyond those of the node's inputs.
        deferred: whether large results are computed again whenever they are read, rather than held.
        unfolded: whether a node stays.
    """

    budget: int = 1 << 20
    deferred: bool = False
    unfolded: Callable[[Node], bool] = lambda node: False

    def run(self, graph: Graph) -> bool:
        """Return whether any were folded."""
        facts = infer(graph)
        changed = False
        left = min(BUDGETS * self.budget, MAX_FOLDED_BYTES) + WEIGHT_MULTIPLE * sum(
            inner.nbytes for inner in graphs(graph)
        )
        costs: dict[Value | None, int] = {}
        for inner in graphs(graph):
            outputs = set(inner.outputs)
            kept = []
            for node in inner.nodes:
                cost = 1 + sum(costs.get(value, 0) for value in set(node.inputs))
                skipped = bool(outputs & set(node.outputs)) or (self.deferred and cost > MAX_RECOMPUTED)
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

    def _made(self, graph: Graph, node: Node, facts: Facts, left: int) -> list[StoredTensor | None] | None:
        if self.unfolded(node) or not node.op.repeatable or node.subgraphs:
            return None
        if node.op.asks or node.op.compute is None:
            return None
        known = [facts.partial.get(value) for value in node.outputs[:1]]
        if (
            known
            and known[0] is not None
            and node.outputs[0].dtype is I64
            and all(isinstance(dim, int) for dim in known[0])
        ):
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
            return (
                tensors(make)
                if self.deferred
                else [None if array is None else StoredTensor.of(array) for array in make()]
            )
        except Error:
            return None


def _given(graph: Graph, node: Node) -> int:
    """Bytes of a node's constant inputs, each counted once."""
    return sum(held.nbytes for held in (constant(graph, value) for value in set(node.inputs)) if held is not None)


def _results(node: Node, inputs: list[StoredTensor | None]) -> list[np.ndarray | None]:
    """The results of a node with constant inputs."""
    import numpy

    results = compute_node(node, [None if held is None else held.numpy() for held in inputs], node.attributes)
    return [
        None if array is None else numpy.asarray(array)
        for array in (results if isinstance(results, tuple) else (results,))
    ]


def _whole(value: Value, dims: list[int]) -> list[StoredTensor | None] | None:
    import numpy

    if value.shape not in ((), (len(dims),)):
        return None
    return [
        StoredTensor.of(
            numpy.array(dims, numpy.int64).reshape([dim for dim in value.shape or () if isinstance(dim, int)])
        )
    ]


def _nbytes(values: list[Value]) -> int | None:
    """Bytes of all outputs, None if a shape or dtype is unknown."""
    total = 0
    for value in values:
        if value.name:
            if (
                value.dtype is None
                or value.shape is None
                or value.container
                or not all(isinstance(dim, int) for dim in value.shape)
            ):
                return None
            count = 1
            for dim in value.shape:
                count *= int(dim or 0)
            total += count * max(1, value.dtype.bits // 8)
    return total


def _hold(graph: Graph, value: Value, held: StoredTensor) -> None:
    value.dtype, value.shape, value.producer = held.dtype, held.shape, None
    graph.weights[value.name] = held
    graph.values[value.name] = value
