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
from ...runtime.ir.op import Op, Undecomposable, upgrade
from ...runtime.ir.registry import load, registering
from ...runtime.ir.shape_inference import CHECK, Inference
from ..rules.expression import Inferring, Term, drop_unused
from .gradient_rule import differentiated, without_gradient, without_slope


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
        raise FormatError(
            "E-ONNX-NODE", None, "Gradient node: its inputs are not those that xs and zs name", hint=CHECK
        )
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
            needed.update(value for inner in node.subgraphs for value in _captured(inner))
    return found[::-1]


def _captured(graph: Graph) -> list[Value]:
    """All values that nodes of a subgraph and of those below it use."""
    found: list[Value] = []
    pending = [graph]
    while pending:
        inner = pending.pop()
        found += [value for node in inner.nodes for value in node.inputs if value is not None] + inner.outputs
        pending += [below for node in inner.nodes for below in node.subgraphs]
    return found


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
    load(registering(differentiated, without_gradient))
    return _propagated(build, nodes, {target: Term(target, build).filled(1)}, sources)


def _propagated(
    build: Builder, nodes: Sequence[Node], slopes: dict[Value, Term], sources: Sequence[Value]
) -> list[Term | None]:
    """The derivatives by each of `sources`, from those by values that `nodes` compute."""
    active = set(sources)
    for node in nodes:
        if node.op.gradients[:1] == [without_slope]:
            continue
        if any(value in active for value in node.inputs) or any(
            value in active for inner in node.subgraphs for value in _captured(inner)
        ):
            active.update(node.outputs)
    missing = {
        node.op.name
        for node in nodes
        if not node.op.gradients and node.op.lower is None and any(value in active for value in node.outputs)
    }
    if missing:
        raise _unknown(*sorted(missing))
    found = {value: slope for value, slope in slopes.items() if value in active}
    stops = set(sources)
    for node in reversed(nodes):
        given = [found.get(value) if value not in stops else None for value in node.outputs]
        if any(slope is not None for slope in given):
            wanted = [value if value in active else None for value in node.inputs]
            for value, part in zip(wanted, _by_inputs(build, node, given, wanted), strict=False):
                if value is not None and part is not None:
                    found[value] = found[value] + part if value in found else part
    return [found.get(source) for source in sources]


def _by_inputs(
    build: Builder, node: Node, slopes: Sequence[Term | None], wanted: Sequence[Value | None]
) -> Sequence[Term | None]:
    """The derivatives by the inputs of a node that are `wanted`: those of its decomposition where the operator has no
    rule."""
    if node.op.gradients:
        parts = node.op.gradients[0](node, build, [None if slope is None else slope.value for slope in slopes])
        return [None if part is None else Term(part, build) for part in parts]
    assert node.op.lower is not None
    outputs = [
        Value("" if slope is None else build.name("output"), value.dtype, value.shape)
        for value, slope in zip(node.outputs, slopes, strict=True)
    ]
    first = len(build.nodes)
    try:
        node.op.lower(Node(node.op, node.inputs, outputs, node.attributes, node.name), build)
    except Undecomposable as error:
        raise _unknown(node.op.name) from error
    once = list(dict.fromkeys(value for value in wanted if value is not None))
    given = {value: slope for value, slope in zip(outputs, slopes, strict=True) if slope is not None}
    found = dict(zip(once, _propagated(build, build.nodes[first:], given, once), strict=True))
    return [None if value is None else found.pop(value, None) for value in wanted]


def _unknown(*names: str) -> UnsupportedError:
    what = f"no derivative of {', '.join(names)} is known"
    return UnsupportedError("E-OP-GRADIENT", None, what, hint="Compute it in the model itself")
