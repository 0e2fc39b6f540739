"""ONNX graphs: from protobuf messages to nodes of the newest opset."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...runtime import registry
from ...runtime.build import Builder
from ...runtime.dtype import BY_ONNX, STRING
from ...runtime.graph import Graph, Node, Value
from ...runtime.op import Foreign
from ...runtime.storage import Held
from ...runtime.tensor import Tensor, pack

if TYPE_CHECKING:
    import numpy as np
    import onnx


class Text(Tensor):
    """A tensor of texts, held in memory."""

    __slots__ = ("texts",)

    def __init__(self, texts: np.ndarray) -> None:
        super().__init__(STRING, texts.shape, Held(b""))
        self.texts = texts

    def numpy(self) -> np.ndarray:
        return self.texts


def graph_of(model: onnx.ModelProto) -> Graph:
    """The graph of a parsed model, its nodes taken to the newest opset."""
    opsets = {("" if item.domain == "ai.onnx" else item.domain): item.version for item in model.opset_import}
    graph = Graph(format="onnx", opsets=opsets)
    _fill(graph, model.graph, {}, opsets)
    return graph


def _fill(graph: Graph, proto: onnx.GraphProto, outer: dict[str, Value], opsets: dict[str, int]) -> None:
    scope = dict(outer)
    graph.name = proto.name

    def described(item: onnx.ValueInfoProto) -> Value:
        value = _value(item)
        scope[item.name] = graph.values[item.name] = value
        graph.reserve(item.name)
        return value

    graph.inputs = [described(item) for item in proto.input]
    for item in proto.initializer:
        tensor = _tensor(item)
        value = scope[item.name] if item.name in graph.values else Value(item.name)
        value.dtype, value.shape = tensor.dtype, tensor.shape
        graph.weights[item.name] = tensor
        scope[item.name] = graph.values[item.name] = value
        graph.reserve(item.name)
    known = {item.name: item for item in (*proto.value_info, *proto.output)}
    for item in proto.node:
        domain = "" if item.domain == "ai.onnx" else item.domain
        outputs = []
        for name in item.output:
            value = _value(known[name]) if name in known else Value(name)
            outputs.append(value)
        inputs = [scope[name] if name else None for name in item.input]
        attributes = {attribute.name: _attribute(attribute, graph, scope, opsets) for attribute in item.attribute}
        node = Node(registry.operator(item.op_type, domain) or Foreign(item.op_type, domain), inputs, outputs, attributes, item.name)
        _add(graph, node, opsets.get(domain, 1))
        for value in outputs:
            if value.name:
                scope[value.name] = graph.values[value.name] = value
                graph.reserve(value.name)
    graph.outputs = [scope[item.name] for item in proto.output]


def _add(graph: Graph, node: Node, opset: int) -> None:
    build = Builder(graph, stem=node.name or (node.outputs[0].name if node.outputs else ""))
    for upgrade in sorted(node.op.upgrades, key=lambda rule: rule.below):
        if opset < upgrade.below:
            before = len(graph.nodes)
            upgrade.rule(node, build)
            if len(graph.nodes) > before:
                return
    build.keep(node)


def _value(item: onnx.ValueInfoProto) -> Value:
    kind, proto, container = item.type.WhichOneof("value"), item.type, []
    while kind in ("sequence_type", "optional_type"):
        container.append(kind.removesuffix("_type"))
        proto = getattr(proto, kind).elem_type
        kind = proto.WhichOneof("value")
    if kind != "tensor_type":
        return Value(item.name, container=tuple(container))
    tensor = proto.tensor_type
    shape = None
    if tensor.HasField("shape"):
        shape = tuple(
            dim.dim_value if dim.WhichOneof("value") == "dim_value" and dim.dim_value >= 0 else (dim.dim_param or None) for dim in tensor.shape.dim
        )
    return Value(item.name, BY_ONNX.get(tensor.elem_type), shape, tuple(container))


def _tensor(proto: onnx.TensorProto) -> Tensor:
    import numpy
    import onnx.numpy_helper

    array = onnx.numpy_helper.to_array(proto)
    if proto.data_type == STRING.onnx:
        return Text(numpy.array([item.decode() for item in proto.string_data], object).reshape(tuple(proto.dims)))
    dtype = BY_ONNX[proto.data_type]
    return Tensor(dtype, array.shape, Held(pack(numpy.ascontiguousarray(array), dtype)))


def _attribute(attribute: onnx.AttributeProto, graph: Graph, scope: dict[str, Value], opsets: dict[str, int]) -> Any:
    import onnx

    def subgraph(proto: onnx.GraphProto) -> Graph:
        inner = Graph(parent=graph, opsets=opsets)
        _fill(inner, proto, scope, opsets)
        return inner

    kinds = onnx.AttributeProto
    read: dict[int, Any] = {
        kinds.FLOAT: lambda: attribute.f, kinds.INT: lambda: attribute.i, kinds.STRING: lambda: attribute.s.decode(),
        kinds.TENSOR: lambda: _tensor(attribute.t).numpy(), kinds.GRAPH: lambda: subgraph(attribute.g),
        kinds.FLOATS: lambda: list(attribute.floats), kinds.INTS: lambda: list(attribute.ints),
        kinds.STRINGS: lambda: [item.decode() for item in attribute.strings],
        kinds.TENSORS: lambda: [_tensor(item).numpy() for item in attribute.tensors],
        kinds.GRAPHS: lambda: [subgraph(item) for item in attribute.graphs],
        kinds.TYPE_PROTO: lambda: attribute.tp,
    }
    return read[attribute.type]()
