"""MatMul of transposed f16 values with constant matrices, written in forms that ONNX Runtime 1.32 runs.

Its CPU provider fuses Transpose and MatMul where the first axis moves after the other batch axes, and crashes if both
operands are f16 and one is a constant matrix.
"""

from __future__ import annotations

from ...base.dataclass import dataclass
from ...ir.builder import Builder
from ...ir.graph import Graph, Node, Value
from ...ir.shape_inference import infer
from ...tensor.dtype import F16
from ..pattern.dead_code import RemoveDeadCode
from ..pattern.replace_nodes import by_operator, constant, rewrite
from ..simplify.transpose import order_of


@dataclass(frozen=True)
class UnfuseHalfProducts:
    """Change the products in place."""

    def run(self, graph: Graph) -> bool:
        """Multiply before transposing where the rows stay rows, else give the matrix batch axes of length 1; return
        whether anything changed. Results are the same."""
        infer(graph)
        changed = rewrite(graph, by_operator({"MatMul": _product}))
        if changed:
            RemoveDeadCode().run(graph)
            infer(graph)
        return changed


def _product(node: Node, build: Builder) -> bool:
    for at, other in ((0, 1), (1, 0)):
        value, matrix = node.inputs[at], node.inputs[other]
        if value is None or matrix is None or value.dtype is not F16 or not _is_matrix(build.graph, matrix):
            continue
        made = value.producer
        order = order_of(made)
        if made is None or order is None or not _fused(order):
            continue
        if at == 0 and order[-1] == len(order) - 1:
            product = build.add("MatMul", [made.inputs[0], matrix])
            build.add("Transpose", [product], {"perm": list(order)}, outputs=node.outputs, name=node.name)
        else:
            inputs: list[Value | None] = [value, value]
            inputs[other] = build.add("Unsqueeze", [matrix, build.constant(list(range(len(order) - 2)))])
            build.add("MatMul", inputs, outputs=node.outputs, name=node.name)
        return True
    return False


def _fused(order: tuple[int, ...]) -> bool:
    """Whether the first axis becomes the last but one, or to the last one, and the others keep their
    order."""
    last = len(order) - 1
    return last > 1 and order in ((*range(1, last), 0, last), (*range(1, last + 1), 0))


def _is_matrix(graph: Graph, value: Value) -> bool:
    """Whether a value is a constant matrix, or the transpose of one."""
    made = value.producer
    source = made.inputs[0] if order_of(made) is not None and made is not None else value
    held = constant(graph, source)
    return held is not None and held.dtype is F16 and len(held.shape) == 2
