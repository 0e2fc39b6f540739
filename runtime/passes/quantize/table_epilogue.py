"""Table epilogue: a lookup of what QLinearConv computes becomes part of the convolution."""

from __future__ import annotations

from ...base.dataclass import dataclass
from ...ir.builder import Builder
from ...ir.domain import CANDLE
from ...ir.graph import Graph, Node, Value
from ...ir.registry import onnx
from ..pattern.dead_code import RemoveDeadCode
from ..pattern.replace_nodes import only_uses, rewrite
from ..pattern.stage import PipelinePass

INPUTS = 9
"""Inputs of QLinearConv, the optional bias among them."""


@dataclass(frozen=True)
class FuseTableEpilogue:
    """Replace in place."""

    def run(self, graph: Graph) -> bool:
        """Return whether anything was replaced."""
        single = only_uses(graph)
        changed = rewrite(graph, lambda node, build: _replace(node, build, single))
        return changed and (RemoveDeadCode().run(graph) or True)


def _replace(node: Node, build: Builder, single: dict[Value, Graph]) -> bool:
    if (node.op.domain, node.op.name) != (CANDLE, "LookupBytes"):
        return False
    codes, table = node.inputs
    before = None if codes is None else codes.producer
    if codes is None or before is None or single.get(codes) is not build.graph:
        return False
    if before.op is not onnx.QLinearConv:
        return False
    inputs = [*before.inputs, *[None] * (INPUTS - len(before.inputs)), table]
    build.add("QLinearConvLookup", inputs, before.attributes, domain=CANDLE, outputs=node.outputs, name=before.name)
    return True


PIPELINE = (PipelinePass("integers", lambda options: FuseTableEpilogue(), backends=("cpu",)),)
