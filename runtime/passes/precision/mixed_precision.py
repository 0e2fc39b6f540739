"""Mixed precision: a graph in f16, except where the range or exactness of f32 is needed (see `f16_analysis`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import field

from ...base.dataclass import dataclass
from ...ir.builder import Builder
from ...ir.graph import Graph, Node, Value
from ...ir.op import Trait
from ...ir.registry import onnx
from ...ir.shape_inference import infer
from ...tensor.dtype import F16, F32
from ...tensor.stored_tensor import StoredTensor
from ..pattern.dead_code import RemoveDeadCode
from ..pattern.replace_nodes import constant, graphs, rewrite
from .f16_analysis import F16Selection, ValueOrigins
from .half import F16_MAX, HalfPrecision


@dataclass
class MixedPrecision:
    """Convert a graph in place.

    Attributes:
        narrow: rounds a weight of that name to f16.
        narrows: whether an input or output of the model, by its name, becomes f16 where f16 nodes read or compute it;
            the others keep their types, as all do where it is None.
        states: outputs that are fed back, by the input that takes them: both get one type.
        changed: names of the weights that were rounded.
    """

    narrow: Callable[[str, StoredTensor], StoredTensor]
    narrows: Callable[[str], bool] | None = None
    states: Mapping[str, str] = field(default_factory=dict)
    changed: list[str] = field(default_factory=list)

    def run(self, graph: Graph) -> bool:
        """Return whether anything changed."""
        infer(graph)
        origins = ValueOrigins(graph)
        _limit_masks(graph, origins)
        choice = F16Selection(graph, origins)
        half = HalfPrecision(F16, choice.selects, cast=self.narrow)
        changed = half.run(graph)
        _sum_in_f32(graph)
        self.changed = half.changed
        if self.narrows is not None:
            _narrow_signature(graph, self.states, self.narrows)
            RemoveDeadCode().run(graph)
        return changed


def _limit_masks(graph: Graph, origins: ValueOrigins) -> None:
    """Clip masks that a product reads: an infinite one would make a softmax row without finite elements NaN."""
    limited: dict[tuple[Graph, Value], Value] = {}

    def replace(node: Node, build: Builder) -> bool:
        if Trait.PRODUCT not in node.op.traits or not any(value in origins.huge for value in node.inputs):
            return False
        for index, value in enumerate(node.inputs):
            if value is not None and value in origins.huge:
                place = (build.graph, value)
                if place not in limited:
                    ends = [build.constant(end, "float32") for end in (-F16_MAX, F16_MAX)]
                    made = limited[place] = build.add("Clip", [value, *ends])
                    made.dtype, made.shape = F32, value.shape
                    origins.exact.add(made)
                    origins.held |= {end: build.graph.weights[end.name] for end in ends}
                node.inputs[index] = limited[place]
        build.keep(node)
        return True

    rewrite(graph, replace)


def _sum_in_f32(graph: Graph) -> None:
    """Make attention compute its softmax in f32."""
    for inner in graphs(graph):
        for node in inner.nodes:
            if node.op is onnx.Attention and node.inputs[0] is not None and node.inputs[0].dtype is F16:
                node.attributes.setdefault("softmax_precision", F32.onnx)


def _narrow_signature(graph: Graph, states: Mapping[str, str], narrows: Callable[[str], bool]) -> None:
    """Convert inputs that are read only as f16, and outputs that are computed in f16, to f16, where `narrows` says
    so."""
    given, results = ([value for value in values if narrows(value.name)] for values in (graph.inputs, graph.outputs))
    inputs = {value.name: cast for value in given if (cast := _only_cast(graph, value)) is not None}
    outputs = {value.name: value.producer for value in results if _is_widened(graph, value)}
    for name, result in states.items():
        if (name in inputs) != (result in outputs):
            inputs.pop(name, None)
            outputs.pop(result, None)
    for value in graph.inputs:
        if value.name in inputs:
            value.dtype, value.carried = F16, None
            _replace(graph, {inputs[value.name].outputs[0]: value})
            graph.nodes.remove(inputs[value.name])
    for index, value in enumerate(graph.outputs):
        cast = outputs.get(value.name)
        narrow = cast.inputs[0] if cast is not None else None
        if narrow is not None:
            name, value.name = value.name, graph.fresh(f"{value.name}/f32")
            narrow.name, narrow.carried = name, None
            graph.outputs[index] = narrow
    graph.values = {value.name: value for value in graph.values.values()}


def _only_cast(graph: Graph, value: Value) -> Node | None:
    """The Cast to f16 that is the only reader of an input, else None."""
    if value.dtype is not F32 or value.container or value.name in graph.weights or value in graph.outputs:
        return None
    readers = [node for inner in graphs(graph) for node in inner.nodes if value in node.inputs]
    found = readers[0] if len(readers) == 1 and readers[0] in graph.nodes else None
    rounds = found is not None and found.op is onnx.Cast and found.outputs[0].dtype is F16
    return found if rounds and found is not None and found.outputs[0] not in graph.outputs else None


def _is_widened(graph: Graph, value: Value) -> bool:
    """Whether an output is the Cast of an f16 value, and of no other output."""
    cast = value.producer
    if cast is None or cast.op is not onnx.Cast or cast not in graph.nodes or value.dtype is not F32:
        return False
    narrow = cast.inputs[0]
    return (
        narrow is not None
        and narrow.dtype is F16
        and narrow.producer in graph.nodes
        and constant(graph, narrow) is None
        and not any(
            narrow in other.producer.inputs
            for other in graph.outputs
            if other is not value and other.producer is not None
        )
    )


def _replace(graph: Graph, replaced: Mapping[Value, Value]) -> None:
    for inner in graphs(graph):
        for node in inner.nodes:
            node.inputs = [replaced.get(value, value) if value is not None else None for value in node.inputs]
        inner.outputs = [replaced.get(value, value) for value in inner.outputs]
    for value in replaced:
        graph.values.pop(value.name, None)


def paired_states(inputs: Iterable[str], outputs: Iterable[str]) -> dict[str, str]:
    """Pairs of cache inputs and outputs by the names that exporters use: ``past_key_values.0.key`` and
    ``present.0.key``."""
    given, results = list(inputs), set(outputs)
    found = {}
    for name in given:
        if name.startswith("past_"):
            rest = name.removeprefix("past_")
            spelled = (f"present_{rest}", f"present{rest.removeprefix('key_values')}")
            match = next((result for result in spelled if result in results), None)
            if match is not None:
                found[name] = match
    return found
