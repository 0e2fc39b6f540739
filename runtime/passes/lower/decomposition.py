"""Decomposition: operators without a kernel of their own become the operators that their `Op.lower` names."""

from __future__ import annotations

from ...base.dataclass import dataclass
from ...base.errors import Error
from ...ir.builder import Builder
from ...ir.graph import Graph, Node
from ...ir.op import Op, Undecomposable
from ...ir.shape_inference import MALFORMED, infer
from ...plan.kernel_api import planner_of
from ..pattern.replace_nodes import graphs, rewrite
from ..pattern.stage import PipelinePass


@dataclass(frozen=True)
class LowerOperators:
    """Decompose in place; a node that its operator does not express stays."""

    def run(self, graph: Graph) -> bool:
        """Return whether any were replaced."""
        if not any(_is_lowered(node.op) for inner in graphs(graph) for node in inner.nodes):
            return False
        infer(graph)
        return rewrite(graph, lambda node, build: _is_lowered(node.op) and decomposed(node, build))


def _is_lowered(operator: Op) -> bool:
    return operator.lower is not None and planner_of(operator) is None


def decomposed(node: Node, build: Builder) -> bool:
    """Build the decomposition of a node; returns whether its operator has one."""
    if node.op.lower is None:
        return False
    graph, made = build.graph, list[Node]()
    weights = set(graph.weights)
    try:
        node.op.lower(node, Builder(graph, made, build.stem))
    except (Undecomposable, Error, *MALFORMED):
        for name in [value.name for other in made for value in other.outputs if value not in node.outputs]:
            graph.values.pop(name, None)
        for name in [name for name in graph.weights if name not in weights]:
            del graph.weights[name], graph.values[name]
        return False
    build.nodes += made
    if made and not made[-1].name:
        made[-1].name = node.name
    return bool(made)


PIPELINE = (PipelinePass("unfuse", lambda options: LowerOperators(), backends=("cpu",)),)
