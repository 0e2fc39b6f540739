"""LayerGraph: the calls of layers between symbolic inputs and outputs, in Keras' order."""

from __future__ import annotations

from typing import Any

from ....runtime.base.errors import UsageError
from ....tensors.core.nested import mapped
from ..core.symbolic import KerasTensor, Node, symbolic_tensors


class LayerGraph:
    """A graph of layers.

    Args:
        inputs, outputs: nested symbolic tensors.

    Attributes:
        nodes: calls, each after those it depends on.
        layers: in Keras' order: those far from the outputs first, and among equals those met first from the outputs.
    """

    def __init__(self, inputs: Any, outputs: Any) -> None:
        self.inputs, self.outputs = inputs, outputs
        self.given = symbolic_tensors(inputs)
        self._ends = {id(each) for each in self.given}
        self.nodes: list[Node] = []
        self._met: dict[int, int] = {}
        seen: set[int] = set()
        for each in symbolic_tensors(outputs):
            self._visit(each, seen)
        self.layers = self._ordered()

    def _visit(self, tensor: KerasTensor, seen: set[int]) -> None:
        node = tensor.node
        if node is None:
            why = f"the output depends on {tensor!r}, which is not an input of the model"
            raise UsageError("E-NN-INPUT", None, why, hint="Name every keras.Input in inputs")
        if id(node) in seen:
            return
        seen.add(id(node))
        self._met.setdefault(id(node.layer), len(self._met))
        if id(tensor) not in self._ends:
            if not node.inputs and node.output is tensor:
                why = f"the output depends on the input {tensor.name!r}, which is not an input of the model"
                raise UsageError("E-NN-INPUT", None, why, hint="Name every keras.Input in inputs")
            for each in node.inputs:
                self._visit(each, seen)
        self.nodes.append(node)

    def _ordered(self) -> list[Any]:
        depth_of_node: dict[int, int] = {}
        depth_of_layer: dict[int, int] = {}
        layers = {}
        for node in reversed(self.nodes):
            depth = max(depth_of_node.get(id(node), 0), depth_of_layer.get(id(node.layer), 0))
            depth_of_node[id(node)] = depth_of_layer[id(node.layer)] = depth
            layers[id(node.layer)] = node.layer
            for each in node.inputs if not self._is_input(node) else ():
                before = each.node
                if before is not None:
                    depth_of_node[id(before)] = max(depth + 1, depth_of_node.get(id(before), 0))
        for each in self.given:
            if each.node is not None and id(each.node.layer) not in layers:
                layers[id(each.node.layer)] = each.node.layer
        return sorted(layers.values(), key=lambda each: (-depth_of_layer.get(id(each), 0), self._met.get(id(each), -1)))

    def _is_input(self, node: Node) -> bool:
        return any(id(each) in self._ends for each in symbolic_tensors(node.output))

    def run(self, given: list[Any]) -> Any:
        """The outputs for the values of the inputs, in order."""
        values = {id(symbol): value for symbol, value in zip(self.given, given, strict=True)}
        for node in self.nodes:
            if self._is_input(node):
                continue
            result = node.run(values)
            for symbol, value in zip(symbolic_tensors(node.output), _leaves(result), strict=True):
                values[id(symbol)] = value
        return mapped(self.outputs, lambda each: values[id(each)] if isinstance(each, KerasTensor) else each)


def _leaves(item: Any) -> list[Any]:
    found: list[Any] = []
    mapped(item, found.append)
    return found
