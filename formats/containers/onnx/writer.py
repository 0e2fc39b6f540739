"""ONNX writer: a graph to messages, with tensor data inside or in external files."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from ....runtime.base.errors import UnsupportedError
from ....runtime.contract.metadata import to_strings
from ....runtime.ir.graph import Function, Graph, Node, Reference, Training, Value
from ....runtime.tensor.dtype import STRING
from ....runtime.tensor.stored_tensor import StoredTensor
from . import reader as kinds
from .schema import Message
from .tensor import EXTERNAL, Sparse, Text
from .types import info_of, type_of

PRODUCER = "candle-convert"
OLDEST_IR = 8
"""IR version 8, with functions: supported by everything since 2021."""
CONSTANT_DTYPES = {
    "f32",
    "f64",
    "f16",
    "bf16",
    "i64",
    "i32",
    "i16",
    "i8",
    "u64",
    "u32",
    "u16",
    "u8",
    "bool",
    "string",
    "c64",
    "c128",
}
"""Attribute types that a Constant node of any opset has."""
IR_OF_DTYPE = {
    "f8_e4m3": 9,
    "f8_e4m3fnuz": 9,
    "f8_e5m2": 9,
    "f8_e5m2fnuz": 9,
    "i4": 10,
    "u4": 10,
    "f4": 11,
    "f8_e8m0": 12,
    "i2": 13,
    "u2": 13,
}
IR_OF_FIELD = {"metadata_props": 10, "overload": 10, "device_configurations": 11, "configuration": 11}
"""IR versions that introduced dtypes and fields. Source: the version history in onnx.proto."""

Place = Callable[[StoredTensor], tuple[str, int] | None]
"""The external file and offset of a weight's data; None for the model file itself."""


def model_of(graph: Graph, place: Place) -> Message:
    """The message of a model."""
    return _Writer(graph, place).model()


class _Writer:
    def __init__(self, graph: Graph, place: Place) -> None:
        self.graph = graph
        self.place = place
        self.ir = OLDEST_IR

    def model(self) -> Message:
        graph = self.graph
        carried = dict(graph.carried or {})
        model = Message("Model", **{key: carried[key] for key in kinds.MODEL_KEYS if key in carried})
        model.setdefault("producer_name", PRODUCER)
        model.unknown = carried.get("unknown", b"")
        model["graph"] = self.graph_message(graph)
        model["opset_import"] = _opsets(graph.opsets)
        model["metadata_props"] = _entries(to_strings(graph).items())
        model["functions"] = [self.function(function) for function in graph.functions.values()]
        model["training_info"] = [self.training(item) for item in graph.training]
        model["ir_version"] = max(
            self.ir, ir_of_opsets(graph.opsets), *(version for key, version in IR_OF_FIELD.items() if key in carried), 0
        )
        return model

    def extras(self, carried: dict[str, Any] | None, keys: Iterable[str], message: Message) -> Message:
        """Add passed-through fields to a message."""
        for key in keys:
            if carried and key in carried:
                message[key] = carried[key]
                self.ir = max(self.ir, IR_OF_FIELD.get(key, 0))
        message.unknown = (carried or {}).get("unknown", b"")
        return message

    def graph_message(self, graph: Graph) -> Message:
        """Graphs nest only as deep as the reader allows."""
        message = Message("Graph", name=graph.name or "graph", input=[self.info(value) for value in graph.inputs])
        made, dense, sparse = [], [], []
        for name, tensor in graph.weights.items():
            self.ir = max(self.ir, IR_OF_DTYPE.get(tensor.dtype.name, 0))
            if name in graph.constants and tensor.dtype.name in CONSTANT_DTYPES and self.place(tensor) is None:
                made.append(self.constant(name, tensor, graph.constants[name]))
            elif isinstance(tensor, Sparse):
                sparse.append(self.sparse(tensor, name))
            else:
                extra = (graph.carried or {}).get("weights", {}).get(name)
                dense.append(self.extras(extra, kinds.TENSOR_KEYS, self.tensor(tensor, name, self.place(tensor))))
        message["node"] = made + [self.node(node) for node in graph.nodes]
        message["initializer"], message["sparse_initializer"] = dense, sparse
        message["output"] = [self.info(value) for value in graph.outputs]
        ends = {*graph.inputs, *graph.outputs}
        computed = [value for node in graph.nodes for value in node.outputs]
        weights = [graph.values[name] for name in graph.weights if name in graph.values]
        said = [
            value for value in (*weights, *computed) if value.carried is not None and value.name and value not in ends
        ]
        message["value_info"] = [self.info(value) for value in said]
        carried = (graph.carried or {}).get("graph", {})
        return self.extras(carried, kinds.GRAPH_KEYS, message)

    def info(self, value: Value) -> Message:
        """A value and its type."""
        if value.dtype is not None:
            self.ir = max(self.ir, IR_OF_DTYPE.get(value.dtype.name, 0))
        info = info_of(value)
        if "metadata_props" in info:
            self.ir = max(self.ir, IR_OF_FIELD["metadata_props"])
        return info

    def constant(self, name: str, tensor: StoredTensor, carried: dict[str, Any]) -> Message:
        """A weight as the Constant node it was read from."""
        key = "sparse_value" if isinstance(tensor, Sparse) else "value"
        attribute = self.attribute(key, tensor, {})
        message = Message("Node", input=[], output=[name], op_type="Constant", attribute=[attribute])
        if carried.get("name"):
            message["name"] = carried["name"]
        return self.extras(carried, kinds.NODE_KEYS, message)

    def node(self, node: Node) -> Message:
        message = Message(
            "Node",
            input=["" if value is None else value.name for value in node.inputs],
            output=[value.name for value in node.outputs],
        )
        message["op_type"] = node.op.name
        if node.name:
            message["name"] = node.name
        if node.op.domain:
            message["domain"] = node.op.domain
        if isinstance(node.op, Function) and node.op.overload:
            message["overload"] = node.op.overload
            self.ir = max(self.ir, IR_OF_FIELD["overload"])
        types = _attribute_types(node)
        types |= (node.carried or {}).get("empty", {})
        message["attribute"] = [
            self.attribute(name, value, types) for name, value in node.attributes.items() if value is not None
        ]
        return self.extras(node.carried, kinds.NODE_KEYS, message)

    def attribute(self, name: str, value: Any, types: dict[str, int]) -> Message:
        """An attribute; `types` gives the type of empty lists and of integers meant as floats."""
        message = Message("Attribute", name=name)
        if isinstance(value, Reference):
            message["ref_attr_name"], message["type"] = value.name, value.kind
            return message
        many = isinstance(value, list | tuple)
        kind = types.get(name) or _kind(value[0] if many and len(value) else 0 if many else value, many=many)
        message["type"] = kind
        items = [self.item(kind, item) for item in (value if many else [value])]
        message[kinds.FIELDS[kind]] = items if many else items[0]
        return message

    def item(self, kind: int, value: Any) -> Any:
        import numpy

        if isinstance(value, Graph):
            return self.graph_message(value)
        if isinstance(value, Value):
            return (value.carried or {}).get("type") or type_of(value) or Message("Type")
        if isinstance(value, Sparse):
            return self.sparse(value, "")
        if isinstance(value, numpy.ndarray):
            value = Text(value) if value.dtype.kind in "OUT" else StoredTensor.of(value)
        if isinstance(value, StoredTensor):
            self.ir = max(self.ir, IR_OF_DTYPE.get(value.dtype.name, 0))
            return self.tensor(value, "", None)
        if kind in (kinds.FLOAT, kinds.FLOATS):
            return float(value)
        if kind in (kinds.STRING, kinds.STRINGS):
            return value if isinstance(value, bytes) else str(value).encode("utf-8", "surrogateescape")
        return int(value)

    def tensor(self, tensor: StoredTensor, name: str, place: tuple[str, int] | None) -> Message:
        if tensor.dtype.onnx is None:
            raise UnsupportedError(
                "E-OUT-DTYPE", None, f"onnx has no data type for {name or 'an attribute'} ({tensor.dtype.name})"
            )
        message = Message("Tensor", dims=list(tensor.shape), data_type=tensor.dtype.onnx)
        if name:
            message["name"] = name
        if place is not None:
            location = {"location": place[0], "offset": str(place[1]), "length": str(tensor.nbytes)}
            message["external_data"], message["data_location"] = _entries(location.items()), EXTERNAL
        elif tensor.dtype == STRING:
            message["string_data"] = [
                str(text).encode("utf-8", "surrogateescape") for text in tensor.numpy().reshape(-1)
            ]
        elif tensor.nbytes:
            message["raw_data"] = tensor
        return message

    def sparse(self, tensor: Sparse, name: str) -> Message:
        return Message(
            "Sparse",
            values=self.tensor(tensor.values, name, None),
            indices=self.tensor(tensor.indices, "", None),
            dims=list(tensor.shape),
        )

    def function(self, function: Function) -> Message:
        body = function.body
        message = Message("Function", name=function.name, domain=function.domain)
        if function.overload:
            message["overload"] = function.overload
            self.ir = max(self.ir, IR_OF_FIELD["overload"])
        message["input"], message["output"] = (
            [value.name for value in body.inputs],
            [value.name for value in body.outputs],
        )
        message["attribute"] = list(function.required)
        message["attribute_proto"] = [self.attribute(name, value, {}) for name, value in function.given.items()]
        message["node"] = [
            self.constant(name, tensor, body.constants.get(name, {})) for name, tensor in body.weights.items()
        ]
        message["node"] += [self.node(node) for node in body.nodes]
        message["opset_import"] = _opsets(body.opsets)
        computed = (*body.inputs, *(value for node in body.nodes for value in node.outputs))
        message["value_info"] = [self.info(value) for value in computed if value.carried is not None and value.name]
        return self.extras(body.carried, kinds.FUNCTION_KEYS, message)

    def training(self, training: Training) -> Message:
        message = Message("Training")
        for key, part in (("initialization", training.initialization), ("algorithm", training.algorithm)):
            if part is not None:
                message[key] = self.graph_message(part)
        message["initialization_binding"] = _entries(training.initialization_binding)
        message["update_binding"] = _entries(training.update_binding)
        return message


def _entries(pairs: Iterable[tuple[str, str]]) -> list[Message]:
    return [Message("Entry", key=key, value=value) for key, value in pairs]


def _opsets(opsets: dict[str, int]) -> list[Message]:
    return [Message("Opset", domain=domain, version=version) for domain, version in opsets.items()]


def ir_of_opsets(opsets: dict[str, int]) -> int:
    """The IR version released with the newest standard opset in use, since runtimes check them together."""
    import onnx.helper

    known = onnx.helper.OP_SET_ID_VERSION_MAP
    return max((known.get((domain or "ai.onnx", version), 0) for domain, version in opsets.items()), default=0)


def _kind(value: Any, *, many: bool) -> int:
    """The attribute type of a Python value."""
    import numpy

    table: tuple[tuple[Any, int], ...] = (
        (Graph, kinds.GRAPH),
        (Value, kinds.TYPE),
        (Sparse, kinds.SPARSE),
        ((StoredTensor, numpy.ndarray), kinds.TENSOR),
        ((str, bytes), kinds.STRING),
        ((float, numpy.floating), kinds.FLOAT),
        (object, kinds.INT),
    )
    found = next(kind for types, kind in table if isinstance(value, types))
    return PLURAL[found] if many else found


PLURAL = {
    kinds.FLOAT: kinds.FLOATS,
    kinds.INT: kinds.INTS,
    kinds.STRING: kinds.STRINGS,
    kinds.TENSOR: kinds.TENSORS,
    kinds.GRAPH: kinds.GRAPHS,
    kinds.SPARSE: kinds.SPARSES,
    kinds.TYPE: kinds.TYPES,
}


def _attribute_types(node: Node) -> dict[str, int]:
    """The attribute types in an operator's newest definition; empty for operators outside the standard."""
    from .opset_lowering import history

    schemas = history(node.op.name, node.op.domain)
    attributes = [item for schema in schemas for item in schema.attributes.items()]
    found = {name: item.type.value for name, item in attributes}  # type: ignore[attr-defined]
    return {
        name: kind for name, kind in found.items() if name in node.attributes and _suits(node.attributes[name], kind)
    }


def _suits(value: Any, kind: int) -> bool:
    """Whether the definition's type decides how a value is written: numbers and empty lists."""
    return (isinstance(value, int | float) and kind in (kinds.INT, kinds.FLOAT)) or (
        isinstance(value, list)
        and (not value or (kind in (kinds.INTS, kinds.FLOATS) and isinstance(value[0], int | float)))
    )
