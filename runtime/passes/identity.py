"""Nodes that pass their input on: Identity, Dropout outside training, casts to the same dtype, transpositions that undo each other."""

from __future__ import annotations

from ..dtype import BY_ONNX
from ..graph import Graph, Node, Value
from ..infer import infer
from ..record import dataclass
from .rewrite import constant, graphs, substitute


@dataclass(frozen=True)
class DropIdentities:
    """Let the users of such a node use its input; nodes that make an output of the graph stay."""

    def run(self, graph: Graph) -> bool:
        """Whether any were removed."""
        infer(graph)
        replaced: dict[Value, Value] = {}
        for inner in graphs(graph):
            outputs = set(inner.outputs)
            for node in inner.nodes:
                same = _passed(inner, node, replaced)
                if same is not None and node.outputs[0] not in outputs and not any(value.name for value in node.outputs[1:]):
                    replaced[node.outputs[0]] = same
        return substitute(graph, replaced)


def _passed(graph: Graph, node: Node, replaced: dict[Value, Value]) -> Value | None:
    """The value that the node's first output equals."""
    first = node.inputs[0] if node.inputs and not node.op.domain else None
    if first is None:
        return None
    first = replaced.get(first, first)
    if node.op.name == "Identity":
        return first
    if node.op.name == "Dropout":
        mode = node.inputs[2] if len(node.inputs) > 2 else None
        held = constant(graph, mode)
        return first if mode is None or (held is not None and not held.numpy().any()) else None
    if node.op.name == "Cast":
        return first if first.dtype is not None and first.dtype is BY_ONNX.get(node.attributes.get("to", 0)) else None
    return _untransposed(node, first, replaced) if node.op.name == "Transpose" else None


def _untransposed(node: Node, first: Value, replaced: dict[Value, Value]) -> Value | None:
    order, before = node.attributes.get("perm"), first.producer
    if order is not None and list(order) == sorted(order):
        return first
    if order is None or before is None or before.op is not node.op or before.attributes.get("perm") is None or before.inputs[0] is None:
        return None
    both = [before.attributes["perm"][axis] for axis in order]
    return replaced.get(before.inputs[0], before.inputs[0]) if both == sorted(both) else None
