"""Gradient: reverse-mode differentiation of a graph value.

A Gradient node names values of the graph it stands in, so it is written out where the graph is read: what comes before
it is differentiated, and the derivatives are computed by nodes of ordinary operators, which a further Gradient node may
differentiate again.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...runtime.base.errors import FormatError, UnsupportedError
from ...runtime.ir.builder import Builder
from ...runtime.ir.graph import Graph, Node, Value
from ...runtime.ir.op import Op, upgrade
from ...runtime.ir.registry import load, registering
from ...runtime.ir.shape_inference import CHECK, Inference
from ..rules.expression import Inferring, Term, drop_unused
from ..rules.shape_rules import shape_error
from .gradient_rule import differentiated, differentiated_as, without_gradient
from .propagation import captured, propagated


def as_differentiated(node: Inference) -> None:
    """Each derivative is as the value by which was derived."""
    for index in range(len(node.node.outputs)):
        node.set(index, node.dtype(index), node.shape(index))


gradient_of = Op(
    "Gradient", "ai.onnx.preview.training", 1, types="integer+ieee+complex+bool+string** -> *", infer=as_differentiated
)


@upgrade(gradient_of, below=2)
def written_out(node: Node, builder: Builder) -> None:
    """Build the derivatives of `y` by `xs` in place of the node, at the values that its inputs give."""
    xs, zs, y = node.attributes.get("xs", []), node.attributes.get("zs", []), node.attributes.get("y", "")
    if len(node.inputs) != len(xs) + len(zs) or None in node.inputs or len(node.outputs) > len(xs):
        raise shape_error("Gradient node", "its inputs are not those that xs and zs name", "E-ONNX-NODE")
    named = [_named(builder.graph, name) for name in (*xs, *zs)]
    target = _named(builder.graph, y)
    build = Inferring(builder)
    first, weights = len(build.nodes), len(build.graph.weights)
    nodes = between(build.graph.nodes, named, target)
    if not nodes and target not in named:
        raise FormatError("E-ONNX-NODE", None, f"Gradient node: {y!r} is not computed before it", hint=CHECK)
    for part in nodes:
        build.infer(part)
    sources = named[: len(xs)]
    if any(value is not name for name, value in zip(named, node.inputs, strict=True)):
        given = {name: Value(build.name(name.name), name.dtype, name.shape) for name in named}
        for name, value in zip(named, node.inputs, strict=True):
            build.add("Identity", [value], outputs=[given[name]])
        nodes, stands = copied(nodes, given, build)
        target, sources = stands.get(target, target), [given[value] for value in sources]
    for source, found, output in zip(sources, derivatives(build, nodes, target, sources), node.outputs, strict=False):
        if output.name:
            build.add("Identity", [(found or Term(source, build).filled(0)).value], outputs=[output])
    drop_unused(build, first, weights, node.outputs)


def _named(graph: Graph, name: str) -> Value:
    around: Graph | None = graph
    while around is not None:
        if name in around.values:
            return around.values[name]
        around = around.parent
    raise FormatError(
        "E-ONNX-NODE", None, f"Gradient node: it names {name!r}, which is not computed before it", hint=CHECK
    )


def between(nodes: Sequence[Node], sources: Sequence[Value], target: Value) -> list[Node]:
    """The nodes that compute `target` from `sources`, in the order of `nodes`."""
    needed, stops = {target}, set(sources)
    found = []
    for node in reversed(nodes):
        if any(value in needed and value not in stops for value in node.outputs):
            found.append(node)
            needed.update(value for value in node.inputs if value is not None)
            needed.update(value for inner in node.subgraphs for value in captured(inner))
    return found[::-1]


def copied(nodes: Sequence[Node], given: dict[Value, Value], build: Builder) -> tuple[list[Node], dict[Value, Value]]:
    """The nodes once more, with other values in place of the keys of `given`; what stands for each value."""
    stands: dict[Value, Value] = dict(given)
    copies = []
    for node in nodes:
        if node.subgraphs:
            raise UnsupportedError(
                "E-OP-GRADIENT", None, f"a Gradient at other values of a graph with {node.op.name}", hint="Feed it"
            )
        inputs = [None if value is None else stands.get(value, value) for value in node.inputs]
        outputs = [
            Value(build.name(value.name) if value.name else "", value.dtype, value.shape) for value in node.outputs
        ]
        copies.append(build.node(node.op, inputs, node.attributes, outputs=outputs))
        stands.update((value, copy) for value, copy in zip(node.outputs, outputs, strict=True) if value not in given)
    return copies, stands


def derivatives(build: Builder, nodes: Sequence[Node], target: Value, sources: Sequence[Value]) -> list[Term | None]:
    """The derivatives of the sum of `target` by each of `sources`; None where it does not depend on one."""
    load(registering(differentiated, differentiated_as, without_gradient))
    return propagated(build, nodes, {target: Term(target, build).filled(1)}, sources)
