"""Propagation: gradients of values are passed backwards through the nodes that compute them, by the operators' rules,
which may copy subgraphs to compute parts of them again."""

from __future__ import annotations

from collections.abc import Sequence

from ...runtime.base.errors import UnsupportedError
from ...runtime.ir.builder import Builder
from ...runtime.ir.clone import captures, copied_graph
from ...runtime.ir.graph import Graph, Node, Value
from ...runtime.ir.op import Undecomposable
from ..rules.expression import Inferring, Term, drop_unused
from ..rules.without_gradient import REASONS


def without_grad(node: Node, build: Builder, gradients: Sequence[Value | None]) -> list[Value | None]:
    """The rule of operators whose outputs do not change with small changes of their inputs."""
    return []


def captured(graph: Graph) -> list[Value]:
    """All values that nodes of a subgraph and of those below it use."""
    found: list[Value] = []
    pending = [graph]
    while pending:
        inner = pending.pop()
        found += [value for node in inner.nodes for value in node.inputs if value is not None] + inner.outputs
        pending += [below for node in inner.nodes for below in node.subgraphs]
    return found


def operands(node: Node) -> list[Value | None]:
    """The inputs of a node, then what its subgraphs use of the graphs around them, each once."""
    own = {value for graph in node.subgraphs for value in _inside(graph)}
    outer = dict.fromkeys(value for graph in node.subgraphs for value in captured(graph) if value not in own)
    return [*node.inputs, *outer]


def _inside(graph: Graph) -> list[Value]:
    """The values that a subgraph and those below it bring about themselves."""
    found = [*graph.inputs, *(graph.values[name] for name in graph.weights)]
    for node in graph.nodes:
        found += [*node.outputs, *(value for inner in node.subgraphs for value in _inside(inner))]
    return found


def is_moving(value: Value | None) -> bool:
    """Whether a value can have a gradient."""
    return value is not None and not value.container and (value.dtype is None or value.dtype.has_gradient)


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


def propagated(
    build: Builder, nodes: Sequence[Node], grads: dict[Value, Term], sources: Sequence[Value]
) -> list[Term | None]:
    """The derivatives by each of `sources`, from those by values that `nodes` compute; None where nothing depends on
    one.

    Raises UnsupportedError if an operator on the way has neither a rule nor a decomposition.
    """
    active = set(sources)
    for node in nodes:
        if node.op.gradients[:1] != [without_grad] and any(value in active for value in operands(node)):
            active.update(node.outputs)
    missing = {
        f"{node.op.name}{f' ({why})' if (why := REASONS.get(node.op.name)) else ''}"
        for node in nodes
        if not node.op.gradients and node.op.lower is None and any(value in active for value in node.outputs)
    }
    if missing:
        raise _unknown(*sorted(missing))
    found = {value: grad for value, grad in grads.items() if value in active}
    stops = set(sources)
    for node in reversed(nodes):
        given = [found.get(value) if value not in stops else None for value in node.outputs]
        if any(grad is not None for grad in given):
            wanted = [value if value in active else None for value in operands(node)]
            for value, part in zip(wanted, _by_operands(build, node, given, wanted), strict=False):
                if value is not None and part is not None:
                    found[value] = found[value] + part if value in found else part
    return [found.get(source) for source in sources]


def _by_operands(
    build: Builder, node: Node, grads: Sequence[Term | None], wanted: Sequence[Value | None]
) -> Sequence[Term | None]:
    """The derivatives by the operands of a node that are `wanted`: those of its decomposition where the operator has no
    rule."""
    try:
        if node.op.gradients:
            parts = node.op.gradients[0](node, build, [None if grad is None else grad.value for grad in grads])
            return [None if part is None else Term(part, build) for part in parts]
        assert node.op.lower is not None
        outputs = [
            Value("" if grad is None else build.name("output"), value.dtype, value.shape)
            for value, grad in zip(node.outputs, grads, strict=True)
        ]
        first = len(build.nodes)
        node.op.lower(Node(node.op, node.inputs, outputs, node.attributes, node.name), build)
    except Undecomposable as error:
        raise _unknown(f"{node.op.name} ({error})") from error
    given = {value: grad for value, grad in zip(outputs, grads, strict=True) if grad is not None}
    return through(build, build.nodes[first:], given, wanted)


def through(
    build: Builder, nodes: Sequence[Node], grads: dict[Value, Term], wanted: Sequence[Value | None]
) -> list[Term | None]:
    """The derivatives by each of `wanted`; one that is named twice has all of its gradient at the first position."""
    once = list(dict.fromkeys(value for value in wanted if value is not None))
    found = dict(zip(once, propagated(build, nodes, grads, once), strict=True))
    return [None if value is None else found.pop(value, None) for value in wanted]


def _unknown(*names: str) -> UnsupportedError:
    what = f"no derivative of {', '.join(names)} is known"
    return UnsupportedError("E-OP-GRADIENT", None, what, hint="Compute it in the model itself")
