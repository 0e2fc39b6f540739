"""Lowering of onnxruntime's QLinear operators to DequantizeLinear, the float operator and QuantizeLinear."""

from __future__ import annotations

from ...base.dataclass import dataclass
from ...ir.builder import Builder
from ...ir.graph import Graph, Node
from ..pattern.replace_nodes import rewrite
from ..pattern.stage import PipelinePass

CONTRIB = "com.microsoft"
REAL = {
    "QLinearAveragePool": ("AveragePool", 0, 1),
    "QLinearGlobalAveragePool": ("GlobalAveragePool", 0, 1),
    "QLinearSoftmax": ("Softmax", 0, 1),
    "QLinearWhere": ("Where", 1, 2),
}
"""The float operator, the number of plain inputs, and the number of inputs with scale and zero point; those of the
result are last."""
OWN = frozenset({"channels_last", "opset"})
"""Attributes that only the quantized operators have."""
SOFTMAX_OF_ONE_AXIS = 13


@dataclass(frozen=True)
class LowerQLinearOperators:
    """Replace quantized operators in place where the float ones are faster."""

    def run(self, graph: Graph) -> bool:
        """Whether any were replaced."""
        return rewrite(graph, _replace)


def _replace(node: Node, build: Builder) -> bool:
    if node.op.domain != CONTRIB or node.op.name not in REAL:
        return False
    name, plain, pairs = REAL[node.op.name]
    given, end = node.attributes, plain + 3 * pairs
    if given.get("channels_last", 0) or given.get("opset", SOFTMAX_OF_ONE_AXIS) < SOFTMAX_OF_ONE_AXIS:
        return False
    if len(node.inputs) != end + 2 or None in node.inputs[end:]:
        return False
    real = [build.add("DequantizeLinear", node.inputs[at : at + 3]) for at in range(plain, end, 3)]
    kept = {key: value for key, value in given.items() if key not in OWN}
    made = build.add(name, [*node.inputs[:plain], *real], kept)
    build.add("QuantizeLinear", [made, *node.inputs[end:]], outputs=node.outputs, name=node.name)
    return True


PIPELINE = (PipelinePass("lower", lambda options: LowerQLinearOperators(), backends=("cpu",)),)
