"""Byte table fusion: elementwise nodes between DequantizeLinear and QuantizeLinear become one lookup of 256 entries.

Between them there may be any number of nodes, further pairs of both among them, as long as every element of the result
depends on one element of the codes: SiLU is ``x * sigmoid(x)``, with both factors quantized. The entries are what the
NumPy functions of the nodes compute.
"""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING

from ...base.dataclass import dataclass
from ...base.errors import Error
from ...ir.builder import Builder
from ...ir.domain import CANDLE
from ...ir.evaluate import compute_node
from ...ir.graph import Graph, Node, Value
from ...ir.registry import onnx
from ...tensor.stored_tensor import StoredTensor
from ..pattern.dead_code import RemoveDeadCode
from ..pattern.replace_nodes import constant, rewrite
from ..pattern.stage import PipelinePass
from .qdq_fusion import quantization_of

if TYPE_CHECKING:
    import numpy as np

MAX_NODES = 64
"""Maximum number of nodes that a table stands for."""


@dataclass
class FuseByteTables:
    """Replace in place.

    A QuantizeLinear becomes LookupBytes; nodes before it whose results have other uses remain.
    """

    _codes: dict[Value, Value] = field(default_factory=dict, repr=False)
    _nodes: dict[Value, Node] = field(default_factory=dict, repr=False)

    def run(self, graph: Graph) -> bool:
        """Return whether anything was replaced."""
        changed = rewrite(graph, self._replace)
        return changed and (RemoveDeadCode().run(graph) or True)

    def _replace(self, node: Node, build: Builder) -> bool:
        codes = self._codes_of(node, build.graph)
        if codes is None:
            return False
        (output,) = node.outputs
        self._codes[output], self._nodes[output] = codes, node
        if node.op is not onnx.QuantizeLinear or self._is_same(node, codes, build.graph):
            return False
        table = self._table(node, codes, build.graph)
        if table is None:
            del self._codes[output]
            return False
        build.add("LookupBytes", [codes, build.constant(table)], domain=CANDLE, outputs=[output], name=node.name)
        return True

    def _codes_of(self, node: Node, graph: Graph) -> Value | None:
        """The one tensor of codes whose elements decide those of the node's result."""
        if node.op.domain or len(node.outputs) != 1 or not node.inputs or not node.op.repeatable or node.op.asks:
            return None
        if node.op in (onnx.DequantizeLinear, onnx.QuantizeLinear):
            first = node.inputs[0]
            if first is None or quantization_of(node, graph) is None or constant(graph, first) is not None:
                return None
            return self._codes.get(first, first if node.op is onnx.DequantizeLinear else None)
        if node.op.scalar is None and node.op is not onnx.Clip:
            return None
        found = set()
        for value in node.inputs:
            held = constant(graph, value)
            if value is not None and (held is None or held.shape != ()):
                found.add(self._codes.get(value))
        return found.pop() if len(found) == 1 else None

    def _is_same(self, node: Node, codes: Value, graph: Graph) -> bool:
        """Whether codes are dequantized and quantized again with the same scale."""
        first = node.inputs[0]
        before = None if first is None else self._nodes.get(first)
        if before is None or before.op is not onnx.DequantizeLinear or before.inputs[0] is not codes:
            return False
        return quantization_of(before, graph) == quantization_of(node, graph)

    def _table(self, last: Node, codes: Value, graph: Graph) -> np.ndarray | None:
        """The table of `last` for every code; None if it takes too many nodes, or one of them cannot be computed."""
        import numpy

        needed, pending = {last}, [last]
        while pending:
            nodes = [
                self._nodes[value] for value in pending.pop().inputs if value in self._nodes and value is not codes
            ]
            pending += [node for node in nodes if node not in needed]
            needed.update(nodes)
            if len(needed) > MAX_NODES:
                return None
        ordered = [node for node in self._nodes.values() if node in needed]
        first = next(node for node in ordered if node.inputs[0] is codes)
        quantization = quantization_of(first, graph)
        assert quantization is not None
        found = {codes: numpy.arange(256, dtype=numpy.uint8).view("u1" if quantization[2] == "u8" else "i1")}
        try:
            for node in ordered:
                inputs = [self._array(value, found, graph) for value in node.inputs]
                found[node.outputs[0]] = numpy.asarray(compute_node(node, inputs, node.attributes))
        except Error:
            return None
        table = found[last.outputs[0]]
        return table if table.shape == (256,) and table.dtype.itemsize == 1 else None

    @staticmethod
    def _array(value: Value | None, found: dict[Value, np.ndarray], graph: Graph) -> np.ndarray | None:
        if value is None or value in found:
            return None if value is None else found[value]
        held = constant(graph, value)
        assert isinstance(held, StoredTensor)
        return held.numpy()


PIPELINE = (PipelinePass("integers", lambda options: FuseByteTables(), backends=("cpu",)),)
