"""Node replacement: rules applied to each node of a graph and its subgraphs; constants and value uses."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping

from ...ir.builder import Builder
from ...ir.graph import Graph, Node, Value
from ...ir.registry import onnx
from ...tensor.stored_tensor import StoredTensor

Replace = Callable[[Node, Builder], bool]
"""Builds what stands in for a node and says so, or builds nothing and says False. The node's outputs are given to what
is built."""


def rewrite(graph: Graph, replace: Replace) -> bool:
    """Offer every node of a graph and its subgraphs to `replace`, in order; return whether any was replaced."""
    changed = False
    for inner in graphs(graph):
        before, inner.nodes = inner.nodes, []
        for node in before:
            build = Builder(inner, stem=node.name or node.op.name)
            if replace(node, build):
                changed = True
            else:
                build.keep(node)
    if changed:
        drop_unused_weights(graph)
    return changed


def by_operator(rules: Mapping[str, Replace], selected: Callable[[Node], bool] = lambda node: True) -> Replace:
    """A rule that dispatches on the ai.onnx operator name, for selected nodes."""

    def replace(node: Node, build: Builder) -> bool:
        rule = None if node.op.domain else rules.get(node.op.name)
        return rule is not None and selected(node) and rule(node, build)

    return replace


def output_axis(node: Node) -> int:
    """The axis of output channels of a node's weight, or of rows of a table; -1 for other nodes."""
    if node.op is onnx.Gemm and node.attributes.get("transB", 0):
        return 0
    return next(iter(node.op.weights.values()), -1)


def graphs(graph: Graph) -> Iterator[Graph]:
    """A graph and all its subgraphs."""
    pending = [graph]
    while pending:
        inner = pending.pop()
        yield inner
        pending += [below for node in inner.nodes if node.attributes for below in node.subgraphs]


def constant(graph: Graph, value: Value | None) -> StoredTensor | None:
    """The weight that a value of `graph` or an enclosing graph holds; None for computed or fed values."""
    around: Graph | None = graph
    while around is not None and value is not None:
        if around.values.get(value.name) is value:
            held = around.weights.get(value.name)
            return None if held is None or value in around.inputs else held
        around = around.parent
    return None


def constant_matrix(graph: Graph, value: Value | None, dtypes: tuple[str, ...]) -> StoredTensor | None:
    """A non-empty 2-D constant of one of these dtypes."""
    tensor = constant(graph, value)
    return (
        None
        if tensor is None or len(tensor.shape) != 2 or tensor.dtype.name not in dtypes or 0 in tensor.shape
        else tensor
    )


def only_uses(graph: Graph) -> dict[Value, Graph]:
    """Values with exactly one use, and the graph of their producer."""
    every = list(graphs(graph))
    uses = Counter(value for inner in every for node in inner.nodes for value in node.inputs)
    uses.update(value for inner in every for value in inner.outputs)
    return {value: inner for inner in every for node in inner.nodes for value in node.outputs if uses[value] == 1}


def substitute(graph: Graph, replaced: Mapping[Value, Value]) -> bool:
    """Replace uses of values, in subgraphs too; return whether there were any."""
    final = {}
    for value in replaced:
        end = replaced[value]
        while end in replaced:
            end = replaced[end]
        final[value] = end
    changed = False
    for inner in graphs(graph):
        for node in inner.nodes:
            for index, read in enumerate(node.inputs):
                if read in final:
                    node.inputs[index] = final[read]
                    changed = True
        inner.outputs = [final.get(value, value) if inner.parent is not None else value for value in inner.outputs]
    return changed


def drop_unused_weights(graph: Graph) -> None:
    """Remove weights that no node and no output uses."""
    for inner in graphs(graph):
        used: set[Value | None] = set(inner.inputs)
        for below in graphs(inner):
            used.update(value for node in below.nodes for value in node.inputs)
            used.update(below.outputs)
        for name in [name for name in inner.weights if inner.values.get(name) not in used]:
            del inner.weights[name]
            inner.values.pop(name, None)
