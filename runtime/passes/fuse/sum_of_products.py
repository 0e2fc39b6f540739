"""Sums of products become one product: the gradient of a weight that each step of a recurrent network reads."""

from __future__ import annotations

from ...base.dataclass import dataclass
from ...ir.builder import Builder
from ...ir.graph import Graph, Node, Value
from ...ir.registry import onnx
from ...ir.shape_inference import infer
from ..pattern.dead_code import RemoveDeadCode
from ..pattern.replace_nodes import by_operator, only_uses, rewrite
from ..pattern.stage import PipelinePass

FEWEST_TERMS, MOST_ROWS = 4, 64
"""Products that are joined, and rows of the factors of each; copies of more rows cost what one product saves."""


@dataclass(frozen=True)
class JoinSumsOfProducts:
    """Write ``A1.T @ B1 + A2.T @ B2 + ...`` as the product of all rows of A and all rows of B, if nothing else reads
    the products."""

    def run(self, graph: Graph) -> bool:
        """Whether there were any."""
        infer(graph)
        single = only_uses(graph)
        added = {value for node in graph.nodes if _is_add(node) for value in node.inputs}
        rules = {"Add": lambda node, build: node.outputs[0] not in added and _join(node, build, single)}
        return rewrite(graph, by_operator(rules)) and RemoveDeadCode().run(graph)


def _is_add(node: Node) -> bool:
    return node.op is onnx.Add


def _join(root: Node, build: Builder, single: dict[Value, Graph]) -> bool:
    shape = root.outputs[0].shape
    if shape is None:
        return False
    products, others = [], []
    pending = list(reversed(root.inputs))
    while pending:
        value = pending.pop()
        assert value is not None
        node = value.producer if single.get(value) is build.graph else None
        if node is not None and _is_add(node) and value.shape == shape:
            pending += reversed(node.inputs)
        elif node is not None and _is_small_product(node) and value.shape == shape:
            products.append(node)
        else:
            others.append(value)
    if len(products) < FEWEST_TERMS:
        return False
    factors = [build.add("Concat", [node.inputs[index] for node in products], {"axis": 0}) for index in (0, 1)]
    outputs = 1 if others else root.outputs
    total = build.add("Gemm", factors, {"transA": 1}, outputs=outputs, name=root.name)
    for index, other in enumerate(others):
        total = build.add("Add", [total, other], outputs=root.outputs if index == len(others) - 1 else 1)
    return True


def _is_small_product(node: Node) -> bool:
    """Whether a node is the product of a transposed matrix of few rows and another one."""
    if node.op is not onnx.Gemm or len(node.inputs) > 2 or any(value is None for value in node.inputs):
        return False
    given = {"transA": 0, "transB": 0, "alpha": 1.0, **node.attributes}
    rows = node.inputs[0].shape[0] if node.inputs[0] is not None and node.inputs[0].shape else None
    return (
        (given["transA"], given["transB"], given["alpha"]) == (1, 0, 1.0)
        and isinstance(rows, int)
        and rows <= MOST_ROWS
    )


PIPELINE = (PipelinePass("lower", lambda options: JoinSumsOfProducts(), backends=("cpu",)),)
