"""16-bit KV caches: keys and values that persist between runs are stored as f16 (as in llama.cpp) and read in place."""

from __future__ import annotations

from collections import defaultdict

from ...ir.builder import Builder
from ...ir.graph import Graph, Node, Value
from ...ir.registry import onnx
from ...tensor.dtype import F16, F32
from ..pattern.replace_nodes import by_operator, rewrite

KEYS, VALUES = 1, 2
"""Inputs of Attention."""


class StoreKVCacheAsHalf:
    """Store f32 inputs as f16 if TensorScatter updates their rows and only Attention reads them as keys or values.

    Our Attention accepts keys and values of another dtype than its queries, and computes in f32.
    """

    def run(self, graph: Graph) -> bool:
        """Return whether any changed."""
        uses: dict[Value, list[tuple[Node, int]]] = defaultdict(list)
        for node in graph.nodes:
            for index, value in enumerate(node.inputs):
                if value is not None:
                    uses[value].append((node, index))
        fed, given = set(graph.inputs), set(graph.outputs)

        def kept(whole: Value) -> bool:
            """Whether the elements of keys or values are read by Attention alone, and given to the next run."""
            others = [
                node for node, index in uses[whole] if node.op is not onnx.Attention or index not in (KEYS, VALUES)
            ]
            return all(
                node.op is onnx.Shape or (node.op is onnx.Identity and node.outputs[0] in given) for node in others
            )

        def narrowed(node: Node, build: Builder) -> bool:
            past, new, *rest = node.inputs
            (whole,) = node.outputs
            if past is None or past not in fed or past.dtype is not F32 or len(uses[past]) != 1 or not kept(whole):
                return False
            past.dtype = whole.dtype = F16
            for user, _ in uses[whole]:
                if user.op is onnx.Identity:
                    user.outputs[0].dtype = F16
            build.add(
                "TensorScatter",
                [past, build.add("Cast", [new], {"to": F16.onnx}), *rest],
                node.attributes,
                outputs=[whole],
                name=node.name,
            )
            return True

        return rewrite(graph, by_operator({"TensorScatter": narrowed}))
