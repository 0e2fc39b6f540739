"""Copies of subgraphs for gradient rules, which compute parts of a node's bodies again."""

from __future__ import annotations

from collections.abc import Sequence

from ...runtime.ir.builder import Builder
from ...runtime.ir.clone import captures, copied_graph
from ...runtime.ir.graph import Graph, Value
from ..rules.expression import Inferring, Term, drop_unused


def is_moving(value: Value | None) -> bool:
    """Whether a value can have a slope."""
    return value is not None and not value.container and (value.dtype is None or value.dtype.is_float)


def copied_subgraph(graph: Graph, build: Builder) -> tuple[Graph, Inferring]:
    """A copy of a subgraph with names of its own, and a builder that adds to it."""
    made = copied_graph(graph, {value: value for value in captures(graph)}, build.graph, typed=True)
    _rename(made, build)
    inner = Inferring(Builder(made, stem=build.stem))
    if isinstance(build, Inferring):
        inner.facts.partial.update(build.facts.partial)
    return made, inner


def _rename(graph: Graph, build: Builder) -> None:
    own = dict.fromkeys([*graph.values.values(), *graph.inputs])
    held = {graph.values[name]: tensor for name, tensor in graph.weights.items()}
    for value in own:
        value.name = build.name(value.name)
    graph.values = {value.name: value for value in own}
    graph.weights = {value.name: tensor for value, tensor in held.items()}
    for node in graph.nodes:
        for inner in node.subgraphs:
            _rename(inner, build)


def spliced(graph: Graph, build: Builder, inputs: Sequence[Term]) -> list[Term]:
    """The outputs of a subgraph whose nodes are added to those of the builder."""
    made, _ = copied_subgraph(graph, build)
    build.graph.weights.update(made.weights)
    build.graph.values.update({name: made.values[name] for name in made.weights})
    for value, term in zip(made.inputs, inputs, strict=True):
        build.add("Identity", [term.value], outputs=[value])
    for node in made.nodes:
        for inner in node.subgraphs:
            inner.parent = build.graph
        build.keep(node)
    return [Term(value, build) for value in made.outputs]


def finish(inner: Inferring, outputs: Sequence[Term]) -> None:
    """Make terms the outputs of a subgraph, each a value of its own, and drop what does not lead to them."""
    graph = inner.graph
    graph.outputs = [inner.add("Identity", [term.value]) for term in outputs]
    drop_unused(inner, 0, 0, graph.outputs)
