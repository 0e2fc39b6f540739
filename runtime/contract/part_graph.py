"""Graphs of parts, in the names of the whole model, alone or among the nodes of another graph."""

from __future__ import annotations

from collections.abc import Mapping

from ..base.errors import FormatError
from ..ir.graph import Graph, Value
from ..ir.registry import onnx
from ..tensor.stored_tensor import StoredTensor
from .architecture import MISSHAPEN, MODEL, Architecture, Config, GraphBuilder
from .part_rows import own_prefix, part_config, part_weights


def part_builder(name: str, place: str, build: GraphBuilder) -> GraphBuilder:
    """The builder of a graph of a part, whose weights have the names of the whole; `place`: of its hyper-parameters,
    for messages."""

    def graph(graph: Graph, config: Config, weights: Mapping[str, StoredTensor], *, fixed: bool) -> None:
        _build(build, graph, config, weights, name, place, fixed)

    return graph


def add_part(
    graph: Graph,
    config: Config,
    weights: Mapping[str, StoredTensor],
    name: str,
    *,
    task: str | None = None,
    which: str = MODEL,
    fixed: bool = False,
) -> dict[str, Value]:
    """Add a graph of a part to a graph of the whole: its inputs and nodes. Returns its outputs by name, which the whole
    may declare as outputs of its own, or compute with.

    Args:
        config, weights: of the whole, as its builders get them.
        name: of the part.
        task: of the part's architecture; the first one by default.
        which: the graph of that task, or a variant.
        fixed: as of `GraphBuilder`.

    Raises FormatError for weights that do not fit each other.
    """
    part = config.values["parts"][name]
    own = part.architecture
    assert isinstance(own, Architecture)
    builders = {**own.task(task).graphs, **own.task(task).variants}
    outputs, graph.outputs = graph.outputs, []
    _build(builders[which], graph, config, weights, name, part.place, fixed)
    found, graph.outputs = graph.outputs, outputs
    return {value.name: _undeclared(graph, value) for value in found}


def _undeclared(graph: Graph, output: Value) -> Value:
    """The value that an Identity node declares as an output, without the node; other outputs as they are."""
    node = output.producer
    if node is None or node.op is not onnx.Identity or node.inputs[0] is None:
        return output
    graph.nodes.remove(node)
    graph.values.pop(output.name, None)
    return node.inputs[0]


def _build(
    build: GraphBuilder,
    graph: Graph,
    config: Config,
    weights: Mapping[str, StoredTensor],
    name: str,
    place: str,
    fixed: bool,
) -> None:
    prefix = own_prefix(name)
    kept, graph.weights = graph.weights, {}
    hidden = {key: graph.values.pop(key) for key in kept if key in graph.values} if prefix else {}
    try:
        build(graph, part_config(config, name), part_weights(weights, name), fixed=fixed)
    except MISSHAPEN as error:
        why, hint = f"the weights of {place} do not fit each other", "Is the configuration this model's?"
        raise FormatError("E-ARCH-SHAPE", config.values.get("path"), why, hint=hint) from error
    inputs = {value.name for value in graph.inputs}
    for key in list(graph.weights) if prefix else ():
        if key not in inputs:
            value, tensor = graph.values.pop(key), graph.weights.pop(key)
            value.name = prefix + key
            graph.values[value.name], graph.weights[value.name] = value, tensor
    graph.values |= hidden
    graph.weights = {**kept, **graph.weights}
