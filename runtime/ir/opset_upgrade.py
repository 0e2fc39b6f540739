"""Opset upgrade: rewrites nodes of older opsets as nodes of the newest operator definitions."""

from __future__ import annotations

from collections import deque
from typing import Any

from ..base.errors import Error, FormatError, LimitError
from ..base.limits import current
from ..tensor.stored_tensor import StoredTensor
from . import registry
from .builder import Builder
from .function import check_expansion, instance, nodes_below, sizes
from .graph import Function, Graph, Node, Reference
from .node_check import invalid_reason
from .op import Foreign
from .shape_inference import CHECK, MALFORMED


def upgrade(graph: Graph) -> bool:
    """Upgrade a graph in place, with its subgraphs, functions and training graphs; returns whether anything changed.

    Raises:
        FormatError: a node violates the definition of its opset.
        LimitError: attribute tensors exceed the memory limit.
    """
    if graph.newest:
        return False
    try:
        _Upgrade(graph).run()
    except Error as error:
        error.file = error.file or next(iter(graph.files), None)
        raise
    graph.newest = True
    return True


class _Upgrade:
    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.outdated: set[Function] = set()
        self.left = current().memory

    def run(self) -> None:
        order = sizes(self.graph.functions.values())
        for function in order:
            body = function.body
            if any(self.blocked(node, body.opsets) for node in nodes_below(body)):
                self.outdated.add(function)
            else:
                self.tree(body)
        if self.outdated:
            check_expansion(self.graph)
        self.tree(self.graph)
        for training in self.graph.training:
            for part in (training.initialization, training.algorithm):
                if part is not None:
                    self.tree(part)
        if self.outdated:
            self.graph.functions = {
                key: function for key, function in self.graph.functions.items() if function not in self.outdated
            }
            names = ", ".join(sorted(function.name for function in self.outdated))
            self.graph.event(
                "W-ONNX-INLINED", f"functions of older opsets were expanded where they are called: {names}"
            )

    def blocked(self, node: Node, opsets: dict[str, int]) -> bool:
        """Whether a node of a function can only be upgraded at the call, because its attributes are known only
        there."""
        if isinstance(node.op, Function):
            return node.op in self.outdated
        known = registry.operator(node.op.name, node.op.domain)
        depends = any(isinstance(value, Reference) for value in node.attributes.values())
        return (
            known is not None and depends and any(opsets.get(node.op.domain, 1) < rule.below for rule in known.upgrades)
        )

    def tree(self, root: Graph) -> None:
        """A graph and its subgraphs, these first, because a rule may look into them."""
        pending = [root]
        for graph in pending:
            pending += _older(graph)
        while pending:
            graph = pending.pop()
            if graph.newest and graph is not root:
                continue
            before, graph.nodes = graph.nodes, []
            for node in before:
                self.add(graph, node, graph.opsets)
            for node in graph.nodes:
                why = invalid_reason(node)
                if why is not None:
                    raise FormatError("E-ONNX-NODE", None, f"{node.label}: {why}", hint=CHECK)
            graph.newest = True
            pending += _older(graph)

    def add(self, graph: Graph, node: Node, opsets: dict[str, int]) -> None:
        pending = deque([(node, opsets)])
        while pending:
            node, opsets = pending.popleft()
            if isinstance(node.op, Function) and node.op in self.outdated:
                made = instance(node, graph)
                pending.extendleft((part, node.op.body.opsets) for part in reversed(made))
                continue
            if isinstance(node.op, Foreign):
                node.op = registry.operator(node.op.name, node.op.domain) or node.op
            if not isinstance(node.op, Foreign):
                node.attributes = {name: self.held(value) for name, value in node.attributes.items()}
            self.rules(graph, node, opsets.get(node.op.domain, 1))

    def rules(self, graph: Graph, node: Node, opset: int) -> None:
        """Apply the rules from the node's opset on, and add the resulting nodes."""
        build = Builder(
            graph, stem=node.name or next((value.name for value in node.outputs if value.name), node.op.name)
        )
        for rule in sorted(node.op.upgrades, key=lambda rule: rule.below):
            if opset < rule.below:
                before = len(graph.nodes)
                try:
                    rule.rule(node, build)
                except MALFORMED as error:
                    why = (
                        f"{node.label} is not made as the definition of opset {opset} says "
                        f"({type(error).__name__}: {error})"
                    )
                    raise FormatError("E-ONNX-NODE", None, why, hint=CHECK) from error
                if len(graph.nodes) > before:
                    return
        build.keep(node)

    def held(self, value: Any) -> Any:
        """An attribute value with its tensors read into memory."""
        if isinstance(value, list) and value and isinstance(value[0], StoredTensor):
            return [self.held(item) for item in value]
        if not isinstance(value, StoredTensor):
            return value
        self.left -= value.nbytes
        if self.left < 0:
            why = "attributes' tensors need more than may be held"
            raise LimitError("E-LIMIT-MEMORY", None, why, hint="Raise it with --limit memory=8GB")
        return value.numpy()


def _older(graph: Graph) -> list[Graph]:
    """The subgraphs of a graph's nodes that are not upgraded."""
    return [inner for node in graph.nodes for inner in node.subgraphs if not inner.newest]
