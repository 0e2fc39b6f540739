"""Mixed precision: a whole graph in f16, but for what needs the range or the exactness of f32 (see `precision`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import field

from ..build import Builder
from ..dtype import F16, F32
from ..graph import Graph, Node, Value
from ..infer import infer
from ..record import dataclass
from ..tensor import Tensor
from .dead import DropDead
from .half import F16_MOST, Half
from .precision import PRODUCTS, Choice, Origins
from .rewrite import constant, graphs, rewrite


@dataclass
class MixedPrecision:
    """Rewrite in place.

    Attributes:
        narrow: rounds a weight of that name to f16.
        signature: whether inputs and outputs of the model become f16 where f16 nodes read or compute them; else they
            keep their types.
        states: outputs that are fed back, by the input that takes them: both get one type.
        changed: names of the weights that were rounded.
    """

    narrow: Callable[[str, Tensor], Tensor]
    signature: bool = False
    states: Mapping[str, str] = field(default_factory=dict)
    changed: list[str] = field(default_factory=list)

    def run(self, graph: Graph) -> bool:
        """Whether anything changed."""
        infer(graph)
        origins = Origins(graph)
        _limit_masks(graph, origins)
        choice = Choice(graph, origins)
        half = Half(F16, choice.selects, cast=self.narrow)
        changed = half.run(graph)
        _sum_in_f32(graph)
        self.changed = half.changed
        if self.signature:
            _narrow_signature(graph, self.states)
            DropDead().run(graph)
        return changed


def _limit_masks(graph: Graph, origins: Origins) -> None:
    """Clip masks that a product reads: an infinite one would make a row of a softmax without any finite element NaN."""
    limited: dict[tuple[Graph, Value], Value] = {}

    def replace(node: Node, build: Builder) -> bool:
        if node.op.domain or node.op.name not in PRODUCTS or not any(value in origins.huge for value in node.inputs):
            return False
        for index, value in enumerate(node.inputs):
            if value is not None and value in origins.huge:
                place = (build.graph, value)
                if place not in limited:
                    ends = [build.constant(end, "float32") for end in (-F16_MOST, F16_MOST)]
                    made = limited[place] = build.add("Clip", [value, *ends])
                    made.dtype, made.shape = F32, value.shape
                    origins.exact.add(made)
                    origins.held |= {end: build.graph.weights[end.name] for end in ends}
                node.inputs[index] = limited[place]
        build.keep(node)
        return True

    rewrite(graph, replace)


def _sum_in_f32(graph: Graph) -> None:
    """Let attention compute its softmax in f32."""
    for inner in graphs(graph):
        for node in inner.nodes:
            if (
                node.op.name == "Attention"
                and not node.op.domain
                and node.inputs[0] is not None
                and node.inputs[0].dtype is F16
            ):
                node.attributes.setdefault("softmax_precision", F32.onnx)


def _narrow_signature(graph: Graph, states: Mapping[str, str]) -> None:
    """Give inputs that are only read as f16, and outputs that are computed as f16, that type."""
    inputs = {value.name: cast for value in graph.inputs if (cast := _only_cast(graph, value)) is not None}
    outputs = {value.name: value.producer for value in graph.outputs if _is_widened(graph, value)}
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
    """The node that rounds an input to f16, where nothing else reads it."""
    if value.dtype is not F32 or value.container or value.name in graph.weights or value in graph.outputs:
        return None
    readers = [node for inner in graphs(graph) for node in inner.nodes if value in node.inputs]
    found = readers[0] if len(readers) == 1 and readers[0] in graph.nodes else None
    rounds = found is not None and found.op.name == "Cast" and not found.op.domain and found.outputs[0].dtype is F16
    return found if rounds and found is not None and found.outputs[0] not in graph.outputs else None


def _is_widened(graph: Graph, value: Value) -> bool:
    """Whether an output is what a node of the graph computed in f16, and no other output is."""
    cast = value.producer
    if cast is None or cast.op.name != "Cast" or cast not in graph.nodes or value.dtype is not F32:
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


def paired(inputs: Iterable[str], outputs: Iterable[str]) -> dict[str, str]:
    """States by the names that exporters give them: ``past_key_values.0.key`` is fed ``present.0.key``."""
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
