"""An encoder of codes that computes the first quantizers only."""

from __future__ import annotations

import dataclasses

from .....runtime.ir.graph import Graph, Node
from .....runtime.ir.registry import onnx


def fewer_quantizers(graph: Graph, count: int) -> Graph:
    """The graph, whose output joins codes [batch, 1, frames] of each quantizer, with the first `count` of them; the
    graph itself if its output is made otherwise."""
    made = {value.name: node for node in graph.nodes for value in node.outputs}
    value = graph.outputs[0]
    while value.name in made and made[value.name].op is onnx.Identity:
        value = made[value.name].inputs[0]  # type: ignore[assignment]
    node = made.get(value.name)
    if node is None or node.op is not onnx.Concat or len(node.inputs) <= count:
        return graph
    fewer = Node(node.op, node.inputs[:count], node.outputs, dict(node.attributes), node.name)
    return dataclasses.replace(graph, nodes=[fewer if each is node else each for each in graph.nodes])
