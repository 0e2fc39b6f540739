"""Identity elimination: Identity, inference-mode Dropout, casts to the same dtype, transposes that cancel."""

from __future__ import annotations

from ...base.dataclass import dataclass
from ...ir.graph import Graph, Node, Value
from ...ir.registry import onnx
from ...ir.shape_inference import infer
from ...tensor.dtype import BY_ONNX
from ..pattern.dead_code import RemoveDeadCode
from ..pattern.replace_nodes import constant, graphs, substitute


@dataclass(frozen=True)
class RemoveIdentities:
    """Replace the results of such nodes by their inputs; nodes that compute a graph output stay."""

    def run(self, graph: Graph) -> bool:
        """Return whether any were removed."""
        infer(graph)
        replaced: dict[Value, Value] = {}
        for inner in graphs(graph):
            outputs = set(inner.outputs)
            for node in inner.nodes:
                same = _passed(inner, node, replaced)
                if (
                    same is not None
                    and node.outputs[0] not in outputs
                    and not any(value.name for value in node.outputs[1:])
                ):
                    replaced[node.outputs[0]] = same
        return substitute(graph, replaced) and (RemoveDeadCode().run(graph) or True)


def _passed(graph: Graph, node: Node, replaced: dict[Value, Value]) -> Value | None:
    """The value that equals the node's first output, None for other nodes."""
    first = node.inputs[0] if node.inputs and not node.op.domain else None
    if first is None:
        return None
    first = replaced.get(first, first)
    if node.op is onnx.Identity:
        return first
    if node.op is onnx.Dropout:
        mode = node.inputs[2] if len(node.inputs) > 2 else None
        held = constant(graph, mode)
        return first if mode is None or (held is not None and not held.numpy().any()) else None
    if node.op is onnx.Cast:
        return first if first.dtype is not None and first.dtype is BY_ONNX.get(node.attributes.get("to", 0)) else None
    return _untransposed(node, first, replaced) if node.op is onnx.Transpose else None


def _untransposed(node: Node, first: Value, replaced: dict[Value, Value]) -> Value | None:
    order, before = node.attributes.get("perm"), first.producer
    if order is not None and list(order) == sorted(order):
        return first
    if (
        order is None
        or before is None
        or before.op is not node.op
        or before.attributes.get("perm") is None
        or before.inputs[0] is None
    ):
        return None
    both = [before.attributes["perm"][axis] for axis in order]
    return replaced.get(before.inputs[0], before.inputs[0]) if both == sorted(both) else None
