"""MatMul of transposed f16 values with constant matrices, written in forms that ONNX Runtime 1.32 runs.

Its CPU provider fuses Transpose and MatMul where the first axis moves after the other batch axes, and crashes if both
operands are f16 and one is a constant matrix. Before that, it moves and composes the Transposes of a graph.
"""

from __future__ import annotations

from collections.abc import Collection

from ...base.dataclass import dataclass
from ...ir.builder import Builder
from ...ir.graph import Graph, Node, Value
from ...ir.op import Trait
from ...ir.shape_inference import infer
from ...tensor.dtype import F16
from ..pattern.dead_code import RemoveDeadCode
from ..pattern.replace_nodes import by_operator, constant, graphs, rewrite
from ..simplify.transpose import order_of


@dataclass(frozen=True)
class UnfuseHalfProducts:
    """Change the products in place."""

    def run(self, graph: Graph) -> bool:
        """Multiply before transposing where the rows stay rows, else give the matrix batch axes of length 1; return
        whether anything changed. Results are the same."""
        infer(graph)
        moved = _with_moved_axes(graph)
        if not moved:
            return False
        changed = rewrite(graph, by_operator({"MatMul": lambda node, build: _product(node, build, moved)}))
        if changed:
            RemoveDeadCode().run(graph)
            infer(graph)
        return changed


def _with_moved_axes(graph: Graph) -> set[Value]:
    """Values that ONNX Runtime may compute by a Transpose which moves the first axis: what elementwise operators,
    reductions and copies make of the results of one."""
    moved: set[Value] = set()
    for inner in graphs(graph):
        for node in inner.nodes:
            order = order_of(node)
            if (order and order[0]) or (_transposes_pass(node) and not moved.isdisjoint(filter(None, node.inputs))):
                moved.update(node.outputs)
    return moved


def _transposes_pass(node: Node) -> bool:
    """Whether a Transpose of the operator's inputs may become one of its outputs."""
    traits = node.op.traits
    return node.op.scalar is not None or Trait.MOVES in traits or Trait.REDUCTION in traits


def _product(node: Node, build: Builder, moved: Collection[Value]) -> bool:
    for at, other in ((0, 1), (1, 0)):
        value, matrix = node.inputs[at], node.inputs[other]
        if value is None or matrix is None or value.dtype is not F16 or value not in moved:
            continue
        made = value.producer
        order = order_of(made)
        rank = len(value.shape if value.shape is not None else order or ())
        if rank < 3 or not _is_matrix(build.graph, matrix):
            continue
        first = at == 0 and made is not None and made.inputs[0] not in moved
        if made is not None and order is not None and first and _fused(order) and order[-1] == len(order) - 1:
            product = build.add("MatMul", [made.inputs[0], matrix])
            build.add("Transpose", [product], {"perm": list(order)}, outputs=node.outputs, name=node.name)
        else:
            inputs: list[Value | None] = [value, value]
            inputs[other] = build.add("Unsqueeze", [matrix, build.constant(list(range(rank - 2)))])
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
