"""Operator coverage: supported operators, and the missing ones of a model."""

from __future__ import annotations

import os
from collections import Counter
from typing import NamedTuple

from ...runtime.ir import registry
from ...runtime.ir.function import nodes_below
from ...runtime.ir.graph import Function, Graph, Node
from ...runtime.ir.op import Foreign, Op


class Missing(NamedTuple):
    """An operator of a model that cannot be run: its name, domain, the model's opset of that domain, nodes, and why."""

    op: str
    domain: str
    opset: int | None
    nodes: int
    why: str


def missing(graph: Graph) -> list[Missing]:
    """Operators of a graph and its subgraphs that cannot be run, by domain and name."""
    lacking = (
        node.op
        for node in _nodes(graph)
        if node.op.compute is None and node.op.lower is None and not isinstance(node.op, Function)
    )
    counts = Counter((operator.domain, operator.name) for operator in lacking)
    return [
        Missing(name, domain or "ai.onnx", graph.opsets.get(domain), nodes, _why(name, domain))
        for (domain, name), nodes in sorted(counts.items())
    ]


def missing_of(model: str | os.PathLike[str] | Graph) -> list[Missing]:
    """Operators of a model, a graph or a file, that cannot be run here; empty when all can. This is
    `candle_convert.ops.missing`."""
    if isinstance(model, Graph):
        return missing(model)
    from ..api import convert

    return missing(convert.open(model))


def _why(name: str, domain: str) -> str:
    if registry.operator(name, domain) is not None:
        return "it is known but not implemented"
    elsewhere = sorted(other or "ai.onnx" for other, known in registry.operators() if known == name)
    return f"no such operator in {domain or 'ai.onnx'}" + (
        f"; {', '.join(elsewhere)} has one of that name" if elsewhere else ""
    )


def used(graph: Graph) -> Counter[Op]:
    """How many nodes of a graph and its subgraphs apply each operator."""
    return Counter(node.op for node in _nodes(graph) if not isinstance(node.op, Foreign | Function))


def _nodes(graph: Graph) -> list[Node]:
    """Nodes of the graph and of the functions that it defines."""
    return [
        node
        for each in (graph, *(function.body for function in graph.functions.values()))
        for node in nodes_below(each)
    ]
