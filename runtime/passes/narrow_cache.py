"""Narrow caches: keys and values that a graph keeps from run to run are stored as halves, as llama.cpp does, and read as they are."""

from __future__ import annotations

from collections import defaultdict

from ..build import Builder
from ..dtype import F16, F32
from ..graph import Graph, Node, Value
from .rewrite import by_operator, rewrite

KEYS, VALUES = 1, 2
"""Inputs of Attention."""


class NarrowCache:
    """Inputs of f32 that TensorScatter writes rows into, and nothing but Attention reads as keys or values, become f16.

    Attention takes keys and values of another dtype than its queries here, and computes in f32.
    """

    def run(self, graph: Graph) -> bool:
        """Whether any did."""
        uses: dict[Value, list[tuple[Node, int]]] = defaultdict(list)
        for node in graph.nodes:
            for index, value in enumerate(node.inputs):
                if value is not None:
                    uses[value].append((node, index))
        fed, given = set(graph.inputs), set(graph.outputs)

        def kept(whole: Value) -> bool:
            """Whether keys or values are read by Attention alone, and given to the next run."""
            others = [node for node, index in uses[whole] if node.op.domain or node.op.name != "Attention" or index not in (KEYS, VALUES)]
            return all(not node.op.domain and node.op.name == "Identity" and node.outputs[0] in given for node in others)

        def narrowed(node: Node, build: Builder) -> bool:
            past, new, *rest = node.inputs
            (whole,) = node.outputs
            if past is None or past not in fed or past.dtype is not F32 or len(uses[past]) != 1 or not kept(whole):
                return False
            past.dtype = whole.dtype = F16
            for user, _ in uses[whole]:
                if user.op.name == "Identity":
                    user.outputs[0].dtype = F16
            build.add("TensorScatter", [past, build.add("Cast", [new], {"to": F16.onnx}), *rest], node.attributes, outputs=[whole], name=node.name)
            return True

        return rewrite(graph, by_operator({"TensorScatter": narrowed}))
