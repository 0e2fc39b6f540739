"""Sessions: a graph made ready to run, in the shape of ONNX Runtime's."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from .errors import UnsupportedError, UsageError
from .graph import Graph, Node, Value
from .op import Call


class Session:
    """Runs a graph on the host.

    Args:
        graph: nodes of the newest opset.
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        missing = sorted({f"{node.op.domain or 'ai.onnx'}.{node.op.name}" for node in walk(graph) if node.op.compute is None})
        if missing:
            raise UnsupportedError("E-OP-MISSING", None, f"no implementation of {', '.join(missing)}", hint="List them with candle-convert ops")

    def get_inputs(self) -> list[Value]:
        """The inputs that have to be fed."""
        return [value for value in self.graph.inputs if value.name not in self.graph.weights]

    def get_outputs(self) -> list[Value]:
        """The outputs."""
        return list(self.graph.outputs)

    def run(self, names: Sequence[str] | None, feeds: Mapping[str, Any]) -> list[Any]:
        """Compute outputs by name (None for all).

        Args:
            feeds: an array for each input; a list for a sequence; None for an empty optional.

        Raises UsageError for a missing input.
        """
        import numpy

        values: dict[Value, Any] = {}
        for value in self.graph.inputs:
            if value.name in feeds:
                fed = feeds[value.name]
                values[value] = fed if fed is None or isinstance(fed, list | dict) else numpy.asarray(fed)
            elif value.name not in self.graph.weights:
                raise UsageError("E-RUN-INPUT", None, f"input {value.name!r} is missing", hint="Name every input that get_inputs() lists")
        self._run(self.graph, values)
        found = {value.name: values[value] for value in self.graph.outputs}
        return list(found.values()) if names is None else [found[name] for name in names]

    def _run(self, graph: Graph, values: dict[Value, Any]) -> None:
        for name, tensor in graph.weights.items():
            values.setdefault(graph.values[name], tensor.numpy())
        left = Counter(value for node in graph.nodes for value in node.inputs if value is not None)
        left.update(graph.outputs)
        for node in graph.nodes:
            inputs = [None if value is None else values[value] for value in node.inputs]
            values.update(zip(node.outputs, self._step(node, inputs, values), strict=False))

    def _step(self, node: Node, inputs: list[Any], values: dict[Value, Any]) -> list[Any]:
        import numpy

        operator = node.op
        attributes = dict(node.attributes)
        if operator.asks:
            attributes["call"] = Call(node, tuple(bool(value.name) for value in node.outputs), functools.partial(self._subgraph, values))
        assert operator.compute is not None
        results = operator.compute(*inputs, **attributes)
        return [
            result if result is None or isinstance(result, list | dict | numpy.ndarray) else numpy.asarray(result)
            for result in (results if isinstance(results, tuple) else (results,))
        ]

    def _subgraph(self, outer: dict[Value, Any], graph: Graph, inputs: Sequence[Any]) -> list[Any]:
        values = dict(outer)
        values.update(zip(graph.inputs, inputs, strict=False))
        self._run(graph, values)
        return [values[value] for value in graph.outputs]


def walk(graph: Graph) -> list[Node]:
    """All nodes of a graph and of the graphs below it."""
    found: list[Node] = []
    waiting = [graph]
    while waiting:
        nodes = waiting.pop().nodes
        found += nodes
        waiting += [inner for node in nodes for inner in node.subgraphs]
    return found
