"""MatMul and Add of a bias become Gemm, if both matrices are 2-D."""

from __future__ import annotations

from ...base.dataclass import dataclass
from ...ir.builder import Builder
from ...ir.graph import Graph, Node, Value
from ...ir.registry import onnx
from ...ir.shape_inference import infer
from ..pattern.dead_code import RemoveDeadCode
from ..pattern.replace_nodes import by_operator, only_uses, rewrite


@dataclass(frozen=True)
class FuseMatMulBias:
    """Merge an Add into the MatMul if nothing else reads the MatMul's result."""

    def run(self, graph: Graph) -> bool:
        """Whether any were merged."""
        infer(graph)
        single = only_uses(graph)
        rules = {"Add": lambda node, build: _merge(node, build, single)}
        return rewrite(graph, by_operator(rules)) and RemoveDeadCode().run(graph)


def _merge(node: Node, build: Builder, single: dict[Value, Graph]) -> bool:
    for product, bias in (node.inputs, node.inputs[::-1]):
        matmul = product.producer if product is not None else None
        if (
            product is None
            or bias is None
            or matmul is None
            or matmul.op is not onnx.MatMul
            or single.get(product) is not build.graph
        ):
            continue
        left, right = matmul.inputs
        if left is None or right is None or not _fits(left, right, bias):
            continue
        build.add("Gemm", [left, right, bias], outputs=node.outputs, name=matmul.name)
        return True
    return False


def _fits(left: Value, right: Value, bias: Value) -> bool:
    shapes = [value.shape for value in (left, right)]
    floats = all(
        value.dtype is not None and value.dtype.name in ("f32", "f64", "f16", "bf16") for value in (left, right, bias)
    )
    matrices = all(shape is not None and len(shape) == 2 for shape in shapes)
    columns = right.shape[1] if right.shape is not None and len(right.shape) == 2 else None
    row = bias.shape is not None and len(bias.shape) == 1 and isinstance(columns, int) and bias.shape[0] in (1, columns)
    return floats and matrices and row
