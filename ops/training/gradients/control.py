"""Gradients of control flow: a branch is differentiated within a second If; iterations from the last to the first,
within a Scan that computes each of them again from the state it began with."""

from __future__ import annotations

from collections.abc import Sequence

from ....runtime.base.dataclass import dataclass
from ....runtime.ir.builder import Builder
from ....runtime.ir.graph import Graph, Node, Value
from ....runtime.ir.op import Undecomposable
from ...control.if_else import BRANCHES, if_
from ...control.loop import loop
from ...control.scan import scan
from ...rules.expression import Inferring, Term
from ..gradient_rule import Step, differentiated
from ..propagation import copied_subgraph, finish, is_moving, operands, propagated

Terms = Sequence[Term | None]


@dataclass(frozen=True)
class Entries:
    """A tensor of which each iteration sees or gives one entry.

    Attributes:
        axis, direction: as the attributes of Scan say; direction is 1 for from the last entry to the first.
    """

    term: Term | None
    axis: int = 0
    direction: int = 1


def _outer(node: Node) -> list[Value | None]:
    """Values of outer graphs that the subgraphs of a node use."""
    return operands(node)[len(node.inputs) :]


def _sums(outputs: Sequence[Value], grads: Sequence[Term | None]) -> dict[Value, Term]:
    """The gradients by output; those of a value that is several outputs are added up."""
    found: dict[Value, Term] = {}
    for value, grad in zip(outputs, grads, strict=False):
        if grad is not None:
            found[value] = found[value] + grad if value in found else grad
    return found


def _filled(part: Term | None, value: Value, build: Builder) -> Term:
    return Term(value, build).filled(0) if part is None else part


@differentiated(if_)
def _if(step: Step) -> list[Term | None]:
    """An If whose branches compute the gradients of what they take from outside."""
    node, build, outer = step.node, step.build, _outer(step.node)
    sources = [value for value in outer if value is not None and is_moving(value)]
    branches = []
    for name in BRANCHES:
        made, inner = copied_subgraph(node.attributes[name], build)
        grads = [None if grad is None else Term(grad.value, inner) for grad in step.g]
        branches.append((inner, propagated(inner, list(made.nodes), _sums(made.outputs, grads), sources)))
    moved = [index for index in range(len(sources)) if any(parts[index] is not None for _, parts in branches)]
    if not moved:
        return []
    for inner, parts in branches:
        finish(inner, [_filled(parts[index], sources[index], inner) for index in moved])
    attributes = {name: inner.graph for name, (inner, _) in zip(BRANCHES, branches, strict=True)}
    results = build.node(if_, [node.inputs[0]], attributes, outputs=len(moved)).outputs
    by_source = {sources[index]: Term(result, build) for index, result in zip(moved, results, strict=True)}
    return [None, *(None if value is None else by_source.get(value) for value in outer)]


@differentiated(loop)
def _loop(step: Step) -> list[Term | None]:
    """The iteration, the condition and the states are kept for each iteration."""
    states = max(len(step.x) - 2, 0)
    return _backwards(step, _kept(step, states + 2), step.g[:states], [Entries(grad) for grad in step.g[states:]], 2)


@differentiated(scan)
def _scan(step: Step) -> list[Term | None]:
    """The states are kept for each entry; entries are read from the last to the first."""
    states = len(step.x) - step.attributes["num_scan_inputs"]

    def entries(kind: str, values: Terms) -> list[Entries]:
        axes, directions = (
            step.attributes[f"scan_{kind}_{what}"] or [0] * len(values) for what in ("axes", "directions")
        )
        return [Entries(value, axis, 1 - way) for value, axis, way in zip(values, axes, directions, strict=True)]

    read = [*_kept(step, states), *entries("input", step.x[states:])]
    return _backwards(step, read, step.g[:states], entries("output", step.g[states:]), 0)


def _kept(step: Step, count: int) -> list[Entries]:
    """The first inputs of the body in all iterations: further outputs of the node."""
    node, build = step.node, step.build
    body, inner = copied_subgraph(node.attributes["body"], build)
    if any(value.container for value in body.inputs[:count]):
        raise Undecomposable("it carries sequences")
    body.outputs += [inner.add("Identity", [value]) for value in body.inputs[:count]]
    node.attributes = {**node.attributes, "body": body}
    for kind in ("axes", "directions"):
        given = node.attributes.get(f"scan_output_{kind}")
        if given:
            node.attributes[f"scan_output_{kind}"] = [*given, *[0] * count]
    history = [Value(build.name("history"), producer=node) for _ in range(count)]
    build.graph.values.update({value.name: value for value in history})
    node.outputs += history
    if isinstance(build, Inferring):
        build.infer(node)
    return [Entries(Term(value, build)) for value in history]


def _backwards(
    step: Step, read: Sequence[Entries], states: Terms, written: Sequence[Entries], skipped: int
) -> list[Term | None]:
    """The gradients of the operands of a Loop or Scan.

    Args:
        read: what the iterations backwards see for each input of the body.
        states: gradients of the last states.
        written: gradients of the outputs after the states.
        skipped: inputs of the body, and of the node, before the states; the body of a Loop has one such output.
    """
    node, build = step.node, step.build
    body, inner = copied_subgraph(node.attributes["body"], build)
    count, first = len(states), 1 if skipped else 0
    starts, outer = node.inputs[skipped : skipped + count], _outer(node)
    own, results = list(body.inputs), body.outputs[first : first + count + len(written)]
    moving = [index for index, value in enumerate(starts) if is_moving(value)]
    entering = [index for index in range(skipped + count, len(own)) if is_moving(own[index])]
    sources = [value for value in outer if value is not None and is_moving(value)]
    seen = [index for index, entries in enumerate(written) if entries.term is not None]

    carried = [_input(body, build, results[index]) for index in moving]
    sums = [_input(body, build, value) for value in sources]
    given = [_input(body, build, results[count + index]) for index in seen]
    seeds: list[Term | None] = [None] * len(results)
    for index, value in zip([*moving, *(count + index for index in seen)], [*carried, *given], strict=True):
        seeds[index] = Term(value, inner)
    wanted = [*(own[skipped + index] for index in moving), *sources, *(own[index] for index in entering)]
    parts = propagated(inner, list(body.nodes), _sums(results, seeds), wanted)
    grads = [_filled(part, value, inner) for part, value in zip(parts, wanted, strict=True)]
    body.inputs = [*carried, *sums, *own, *given]
    end = len(moving) + len(sources)
    totals = [Term(total, inner) + grad for total, grad in zip(sums, grads[len(moving) : end], strict=True)]
    finish(inner, [*grads[: len(moving)], *totals, *grads[end:]])

    read = [*read, *(written[index] for index in seen)]
    scanned = [read[index] for index in entering]
    starting = [(starts[index], states[index]) for index in moving] + [(value, None) for value in sources]
    initial = [_filled(grad, value, build) for value, grad in starting if value is not None]
    attributes = {
        "body": body,
        "num_scan_inputs": len(read),
        "scan_input_axes": [each.axis for each in read],
        "scan_input_directions": [each.direction for each in read],
        "scan_output_axes": [each.axis for each in scanned],
        "scan_output_directions": [each.direction for each in scanned],
    }
    inputs = [None if term is None else term.value for term in (*initial, *(each.term for each in read))]
    made = [Term(value, build) for value in build.node(scan, inputs, attributes, outputs=len(body.outputs)).outputs]
    found: list[Term | None] = [None] * len(node.inputs)
    places = [*(skipped + index for index in moving), *entering]
    for index, term in zip(places, [*made[: len(moving)], *made[end:]], strict=True):
        found[index] = term
    by_source = dict(zip(sources, made[len(moving) : end], strict=True))
    return [*found, *(None if value is None else by_source.get(value) for value in outer)]


def _input(body: Graph, build: Builder, like: Value) -> Value:
    """A new input of a body."""
    value = Value(build.name("grad"), like.dtype, like.shape)
    body.values[value.name] = value
    return value
