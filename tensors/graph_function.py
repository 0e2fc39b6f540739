"""Graphs as functions of tensors: nodes become expressions, so that gradients flow through them to the weights."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ..runtime.base.dataclass import dataclass
from ..runtime.base.errors import UnsupportedError, UsageError
from ..runtime.ir.graph import Graph, Node, Value
from ..runtime.ir.registry import onnx
from ..runtime.ir.shape_inference import MAX_DATA
from ..runtime.tensor.dtype import BlockType
from ..runtime.tensor.stored_tensor import StoredTensor
from ..runtime.tensor.weight_array import Blocks, load_weight
from .core.expression import Expression, apply_all, block_leaf, cast, constant, leaf, placeholder
from .core.tensor import Tensor
from .operations.random import GENERATOR

Rule = Callable[[Sequence["Expression | None"]], Sequence[Expression]]
"""Computes the outputs of a node from its inputs in place of its operator."""
MAX_TRACES = 64
"""Types of inputs whose steps are kept; all are dropped when there are more."""


@dataclass(frozen=True)
class Trace:
    """The nodes of a graph that are left for inputs of certain types, once what follows from shapes is known.

    Attributes:
        known: expressions that do not depend on inputs and given weights.
    """

    nodes: tuple[Node, ...]
    known: dict[Value, Expression]


class GraphFunction:
    """A graph as a function of tensors.

    Args:
        graph: its nodes have no subgraphs.
        rules: what computes a node in place of its operator; a rule is called each time.
    """

    def __init__(self, graph: Graph, rules: Mapping[Node, Rule] | None = None) -> None:
        nested = next((node for node in graph.nodes if node.subgraphs), None)
        if nested is not None:
            why = f"{nested.op.name} has a subgraph, and gradients do not flow through it"
            raise UnsupportedError("E-TENSOR-SUBGRAPH", None, why, expected="a graph without loops and branches")
        self.graph = graph
        self.rules = dict(rules or {})
        self._traces: dict[Any, Trace] = {}
        self._held: dict[Value, Expression] = {}

    def __call__(
        self,
        inputs: Mapping[str, Tensor],
        weights: Mapping[str, Tensor] | None = None,
        outputs: Sequence[str] | None = None,
    ) -> dict[str, Tensor]:
        """The outputs by name.

        Args:
            inputs: a tensor for each input of the graph, by name.
            weights: tensors in place of weights of the graph, by name; those that are not given are constants, in
                blocks where they are quantized.
            outputs: the outputs that are wanted, None for all.

        Raises UsageError for inputs that are missing or do not fit.
        """
        found: dict[Value, Expression] = {}
        for value in self.graph.inputs:
            if value.name not in inputs:
                raise UsageError("E-TENSOR-INPUT", None, f"the input {value.name!r} is missing")
            found[value] = _as(value, inputs[value.name].expression)
        for name, tensor in (weights or {}).items():
            if name in self.graph.weights:
                value = self.graph.values[name]
                found[value] = _as(value, tensor.expression)
        trace = self._trace(found)
        found.update(trace.known)
        for node in trace.nodes:
            self._apply(node, found)
        wanted = (
            self.graph.outputs
            if outputs is None
            else [output for output in self.graph.outputs if output.name in outputs]
        )
        return {value.name: Tensor(found[value]) for value in wanted}

    def _apply(self, node: Node, found: dict[Value, Expression]) -> None:
        inputs = [None if value is None else found[value] for value in node.inputs]
        rule = self.rules.get(node)
        made = apply_all(node.op, inputs, node.attributes, len(node.outputs)) if rule is None else rule(inputs)
        found.update(zip(node.outputs, made, strict=True))

    def _trace(self, given: Mapping[Value, Expression]) -> Trace:
        key = tuple([expression.type.number for expression in given.values()])
        trace = self._traces.get(key)
        if trace is None:
            if len(self._traces) >= MAX_TRACES:
                self._traces.clear()
            trace = self._traces[key] = self._traced(given)
        return trace

    def _traced(self, given: Mapping[Value, Expression]) -> Trace:
        """Compute what follows from shapes and constants alone. What rules draw on the way is drawn again by the call,
        so that a run that goes on in another process draws the same numbers."""
        state = GENERATOR.get_state()
        try:
            return self._followed(given)
        finally:
            GENERATOR.set_state(state)

    def _followed(self, given: Mapping[Value, Expression]) -> Trace:
        found = {value: placeholder(expression.type) for value, expression in given.items()}
        arrays: dict[Value, np.ndarray] = {}
        known: dict[Value, Expression] = {}
        for name, tensor in self.graph.weights.items():
            value = self.graph.values[name]
            if value not in given and (tensor.qtype is not None or tensor.count > MAX_DATA):
                known[value] = self._constant(value, tensor)
            elif value not in given:
                arrays[value] = tensor.numpy()
        found.update(known)
        nodes = []
        for node in self.graph.nodes:
            results = None if node in self.rules else _folded(node, found, arrays)
            if results is not None:
                arrays.update(zip(node.outputs, results, strict=False))
                continue
            for each in node.inputs:
                if each in arrays and each not in found:
                    known[each] = found[each] = _expression(arrays[each])
            nodes.append(node)
            self._apply(node, found)
        known.update((value, _expression(arrays[value])) for value in self.graph.outputs if value in arrays)
        return Trace(tuple(nodes), known)

    def _constant(self, value: Value, tensor: StoredTensor) -> Expression:
        """A large weight, read once."""
        if value not in self._held:
            array = load_weight(tensor)
            self._held[value] = block_leaf(array) if isinstance(array, Blocks) else leaf(array)
        return self._held[value]


def _as(value: Value, given: Expression) -> Expression:
    return given if value.dtype is None or isinstance(value.dtype, BlockType) else cast(given, value.dtype)


def _folded(node: Node, found: Mapping[Value, Expression], arrays: Mapping[Value, np.ndarray]) -> list[Any] | None:
    """The outputs of a node that depends on shapes and constants alone; None for others."""
    op = node.op
    if op.compute is None or not op.repeatable or op.asks:
        return None
    given: list[Any] = []
    for value in node.inputs:
        if value is None or value in arrays:
            given.append(None if value is None else arrays[value])
        elif op in (onnx.Shape, onnx.Size) and not isinstance(found[value].type.dtype, BlockType):
            given.append(np.broadcast_to(np.zeros((), found[value].type.dtype.as_numpy()), found[value].type.shape))
        else:
            return None
    results = op.compute(*given, **node.attributes)
    return [np.asarray(item) for item in (results if isinstance(results, tuple) else (results,))]


def _expression(array: np.ndarray) -> Expression:
    return constant(array, array.dtype) if array.size <= MAX_DATA else leaf(array)
