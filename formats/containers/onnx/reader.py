"""ONNX reader: decoded messages to a graph with the file's operators; `runtime.ir.opset_upgrade` upgrades it to the
newest opset."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ....runtime.base.errors import FormatError, UnsupportedError
from ....runtime.contract.metadata import from_strings
from ....runtime.ir.graph import Dim, Function, Graph, Node, Reference, Training, Value
from ....runtime.ir.op import Foreign, Op
from ....runtime.ir.opset_upgrade import upgrade
from ....runtime.tensor.file import Source
from ....runtime.tensor.stored_tensor import StoredTensor
from .protobuf import Memory, decode
from .schema import Message
from .tensor import Files, Text, sparse_of, tensor_of
from .types import fill, value_of

if TYPE_CHECKING:
    import onnx

NEWEST_IR = 14
FIRST_IR_WITH_OPSETS = 3
NEWEST = {"": 28, "ai.onnx.ml": 5, "ai.onnx.preview": 1, "ai.onnx.preview.training": 1, "com.microsoft": 1}
"""The newest supported opsets; other domains are passed through in any version."""
FLOAT, INT, STRING, TENSOR, GRAPH, FLOATS, INTS, STRINGS, TENSORS, GRAPHS, SPARSE, SPARSES, TYPE, TYPES = range(1, 15)
CONSTANT_KINDS = {
    "value": TENSOR,
    "sparse_value": SPARSE,
    "value_float": FLOAT,
    "value_floats": FLOATS,
    "value_int": INT,
    "value_ints": INTS,
    "value_string": STRING,
    "value_strings": STRINGS,
}
"""The attributes of Constant (a node has one), with their types."""
FIELDS = {
    FLOAT: "f",
    INT: "i",
    STRING: "s",
    TENSOR: "t",
    GRAPH: "g",
    FLOATS: "floats",
    INTS: "ints",
    STRINGS: "strings",
    TENSORS: "tensors",
    GRAPHS: "graphs",
    SPARSE: "sparse_tensor",
    SPARSES: "sparse_tensors",
    TYPE: "tp",
    TYPES: "type_protos",
}
"""The AttributeProto field of each attribute type."""
MODEL_KEYS = (
    "ir_version",
    "producer_name",
    "producer_version",
    "domain",
    "model_version",
    "doc_string",
    "configuration",
)
GRAPH_KEYS = ("doc_string", "metadata_props", "quantization_annotation")
NODE_KEYS = ("doc_string", "metadata_props", "device_configurations")
FUNCTION_KEYS = ("doc_string", "metadata_props")
TENSOR_KEYS = ("doc_string", "metadata_props")


def graph_of(model: onnx.ModelProto) -> Graph:
    """The graph of a parsed model, upgraded to the newest opset."""
    graph = read_graph(Memory(model.SerializeToString()))
    upgrade(graph)
    return graph


def read_graph(source: Source) -> Graph:
    """The graph of a model file as stored: operators by name, the file's opsets.

    Raises:
        FormatError, UnsupportedError, UnsafeFileError, LimitError: with the byte offset of the message at fault.
    """
    return _Reader(source).model(decode(source))


class _Reader:
    def __init__(self, source: Source) -> None:
        self.source = source
        self.files = Files(source)
        self.operators: dict[tuple[str, str], Op] = {}
        self.functions: dict[tuple[str, str, str], Function] = {}
        self.in_function = False

    def malformed(self, code: str, message: Message, why: str, **sides: Any) -> FormatError:
        return FormatError(code, self.source.path, why, at=message.at, **sides)

    def model(self, message: Message) -> Graph:
        version = message.get("ir_version", 0)
        if not 1 <= version <= NEWEST_IR:
            if version > NEWEST_IR:
                why = f"the model is of IR version {version}, the newest known is {NEWEST_IR}"
                hint = "Save it with an older version of onnx"
                raise UnsupportedError("E-ONNX-IR", self.source.path, why, at=0, hint=hint)
            raise self.malformed("E-ONNX-IR", message, "the model lacks a valid IR version", found=version)
        graph = Graph(format="onnx", files=[self.source.path] if self.source.path else [], newest=False)
        graph.opsets = self.opsets(message, "the model", old=version < FIRST_IR_WITH_OPSETS)
        graph.carried = {key: message[key] for key in MODEL_KEYS if key in message}
        graph.carried["unknown"] = message.unknown
        from_strings(dict(self.pairs(message, "metadata_props")), graph)
        if "graph" not in message:
            raise self.malformed("E-ONNX-GRAPH", message, "the model lacks a graph")
        self.shells(message.get("functions", []))
        graph.functions = self.functions
        self.reserve(graph, message)
        for function, body in zip(self.functions.values(), message.get("functions", []), strict=True):
            self.body(function, body)
        self.fill(graph, message["graph"])
        graph.training = [self.training(item, graph) for item in message.get("training_info", [])]
        graph.external_files = self.files.paths
        return graph

    def opsets(self, message: Message, what: str, *, old: bool = False) -> dict[str, int]:
        """The opset of each domain."""
        found: dict[str, int] = {}
        for item in message.get("opset_import", []):
            domain, version = _domain(item), item.get("version", 0)
            if found.get(domain, version) != version or version < 1:
                raise self.malformed(
                    "E-ONNX-OPSET", item, f"{what} imports opset {version} of {domain or 'ai.onnx'!r}, which it cannot"
                )
            if version > NEWEST.get(domain, version):
                why = f"{what} is of opset {version} of {domain or 'ai.onnx'!r}, the newest known is {NEWEST[domain]}"
                raise UnsupportedError(
                    "E-ONNX-OPSET", self.source.path, why, at=item.at, hint="Export it for an older opset"
                )
            found[domain] = version
        if not found and not old:
            raise self.malformed("E-ONNX-OPSET", message, f"{what} does not state its opset")
        return found or {"": 1}

    def pairs(self, message: Message, field: str) -> list[tuple[str, str]]:
        return [(entry.get("key", ""), entry.get("value", "")) for entry in message.get(field, [])]

    def reserve(self, graph: Graph, message: Message) -> None:
        """Reserve all names in the file, so that new values get others."""
        pending = [
            message["graph"],
            *(part for item in message.get("training_info", []) for part in item.values() if isinstance(part, Message)),
        ]
        while pending:
            part = pending.pop()
            for field in ("input", "initializer"):
                for item in part.get(field, []):
                    graph.reserve(item.name())
            for node in part.get("node", []):
                for name in node.get("output", []):
                    graph.reserve(name)
                pending += _graphs(node)

    def shells(self, messages: list[Message]) -> None:
        """Declare functions without bodies, so that bodies can call any of them."""
        for message in messages:
            name, domain, overload = message.name(), _domain(message), message.get("overload", "")
            key = (domain, name, overload)
            if not name or key in self.functions:
                raise self.malformed("E-ONNX-FUNCTION", message, f"the function {name!r} has no name or appears twice")
            given = {item.name(): self.attribute(item, Graph()) for item in message.get("attribute_proto", [])}
            body = Graph(opsets=self.opsets(message, f"the function {name!r}"), newest=False)
            required = tuple(message.get("attribute", []))
            self.functions[key] = Function(name, domain, body=body, given=given, required=required, overload=overload)

    def body(self, function: Function, message: Message) -> None:
        """Fill the body of a function."""
        graph = function.body
        graph.carried = {key: message[key] for key in FUNCTION_KEYS if key in message}
        graph.carried["unknown"] = message.unknown
        known = {info.name(): info for info in message.get("value_info", [])}
        for name in message.get("input", []):
            graph.inputs.append(self.define(graph, name, known, message))
        self.in_function = True
        self.nodes(graph, message, known)
        self.in_function = False
        graph.outputs = [self.use(graph, name, message) for name in message.get("output", [])]

    def training(self, message: Message, around: Graph) -> Training:
        """The graphs of a TrainingInfoProto."""
        parts = []
        for field in ("initialization", "algorithm"):
            part = None
            if field in message:
                part = Graph(parent=around, opsets=around.opsets, newest=False)
                self.fill(part, message[field])
            parts.append(part)
        initialization, update = (self.pairs(message, f"{field}_binding") for field in ("initialization", "update"))
        return Training(parts[0], parts[1], initialization, update)

    def fill(self, graph: Graph, message: Message) -> None:
        """The contents of a GraphProto. Graphs nest only as deep as `decode` allows."""
        graph.name = message.name()
        graph.carried = {**(graph.carried or {}), "graph": {key: message[key] for key in GRAPH_KEYS if key in message}}
        graph.carried["graph"]["unknown"] = message.unknown
        known = {info.name(): info for field in ("value_info", "output") for info in message.get(field, [])}
        for info in message.get("input", []):
            graph.inputs.append(self.define(graph, info.name(), {info.name(): info}, info))
        for item in message.get("initializer", []):
            self.weight(graph, item.name(), tensor_of(item, self.files), item, known)
        for item in message.get("sparse_initializer", []):
            name, tensor = sparse_of(item, self.files)
            self.weight(graph, name, tensor, item, known)
        self.nodes(graph, message, known)
        for info in message.get("output", []):
            value = self.use(graph, info.name(), info)
            described = value_of(info)
            value.carried = described.carried if value.carried is None else value.carried
            if value.dtype is None and value.shape is None:
                value.dtype, value.shape, value.container = described.dtype, described.shape, described.container
            graph.outputs.append(value)

    def define(self, graph: Graph, name: str, known: dict[str, Message], at: Message) -> Value:
        """A new value of a graph."""
        if name in graph.values or not name:
            raise self.malformed(
                "E-ONNX-SSA", at, f"the value {name!r} is defined twice" if name else "an input or weight has no name"
            )
        value = value_of(known[name]) if name in known else Value(name)
        graph.values[name] = value
        return value

    def weight(
        self, graph: Graph, name: str, tensor: StoredTensor, message: Message, known: dict[str, Message]
    ) -> None:
        """A weight, which may also be an input: then it is the input's default, and symbolic dimensions stay."""
        if name in graph.weights:
            raise self.malformed("E-ONNX-SSA", message, f"the value {name!r} is defined twice")
        shape: tuple[Dim, ...] = tensor.shape
        if name in graph.values:
            value = graph.values[name]
            if value.shape is not None and len(value.shape) == len(shape):
                declared = zip(value.shape, shape, strict=True)
                shape = tuple(length if isinstance(dim, int) else dim for dim, length in declared)
        else:
            value = self.define(graph, name, known, message)
        value.dtype, value.shape, value.container = tensor.dtype, shape, ()
        graph.weights[name] = tensor
        carried = {key: message[key] for key in TENSOR_KEYS if key in message}
        if carried:
            assert graph.carried is not None
            graph.carried.setdefault("weights", {})[name] = carried

    def use(self, graph: Graph, name: str, at: Message) -> Value:
        """A value that a node or output refers to."""
        value = graph.find(name)
        if value is None:
            raise self.malformed("E-ONNX-INPUT", at, f"the value {name!r} is used, and nothing defines it")
        return value

    def nodes(self, graph: Graph, message: Message, known: dict[str, Message]) -> None:
        """All nodes in topological order."""
        for item in ordered(message.get("node", []), self):
            self.node(graph, item, known)

    def node(self, graph: Graph, message: Message, known: dict[str, Message]) -> None:
        name, domain, overload = message.get("op_type", ""), _domain(message), message.get("overload", "")
        if not name:
            raise self.malformed("E-ONNX-NODE", message, f"the node {message.name()!r} does not name its operator")
        if domain not in graph.opsets:
            imported = ", ".join(sorted(key or "ai.onnx" for key in graph.opsets))
            why = f"a node {name} is of the domain {domain or 'ai.onnx'!r}, of which no opset is imported"
            raise self.malformed("E-ONNX-DOMAIN", message, why, expected=imported)
        inputs = [self.use(graph, used, message) if used else None for used in message.get("input", [])]
        attributes: dict[str, Any] = {}
        for item in message.get("attribute", []):
            if item.name() in attributes or not item.name():
                raise self.malformed(
                    "E-ONNX-ATTRIBUTE", item, f"a node {name} has an attribute {item.name()!r} twice or without a name"
                )
            attributes[item.name()] = self.attribute(item, graph)
        outputs = [
            self.define(graph, made, known, message) if made else Value("") for made in message.get("output", [])
        ]
        carried = {key: message[key] for key in NODE_KEYS if key in message}
        if message.unknown:
            carried["unknown"] = message.unknown
        if not domain and name == "Constant" and len(outputs) == 1 and len(attributes) == 1 and outputs[0].name:
            tensor = self.constant(message, *attributes.popitem())
            if tensor is not None:
                outputs[0].dtype, outputs[0].shape, outputs[0].container = tensor.dtype, tensor.shape, ()
                graph.weights[outputs[0].name] = tensor
                graph.constants[outputs[0].name] = {"name": message.name(), **carried}
                return
            attributes = {item.name(): self.attribute(item, graph) for item in message.get("attribute", [])}
        empty = {
            item.name(): item["type"]
            for item in message.get("attribute", [])
            if "type" in item and attributes[item.name()] == []
        }
        if empty:
            carried["empty"] = empty
        made = Node(self.operator(name, domain, overload), inputs, outputs, attributes, message.name(), carried or None)
        for value in outputs:
            value.producer = made
        graph.nodes.append(made)

    def constant(self, message: Message, name: str, value: Any) -> StoredTensor | None:
        """The tensor of a Constant node's attribute; None if it is known only at the function's call."""
        import numpy

        if name not in CONSTANT_KINDS or isinstance(value, Reference):
            return None
        item = message["attribute"][0]
        kind = kind_of(item)
        if kind != CONSTANT_KINDS[name]:
            why = f"the attribute {name!r} of the Constant node {message.name()!r} has a value of another type"
            raise self.malformed(
                "E-ONNX-ATTRIBUTE", item, why, expected=FIELDS[CONSTANT_KINDS[name]], found=FIELDS.get(kind, kind)
            )
        if isinstance(value, StoredTensor):
            return value
        if name.startswith("value_string"):
            texts = numpy.empty(len(value) if isinstance(value, list) else (), object)
            texts[...] = value
            return Text(texts)
        return StoredTensor.of(numpy.array(value, numpy.float32 if name.startswith("value_float") else numpy.int64))

    def operator(self, name: str, domain: str, overload: str) -> Op:
        """The function with that name, or an operator by name only."""
        if (domain, name, overload) in self.functions:
            return self.functions[domain, name, overload]
        return self.operators.setdefault((domain, name), Foreign(name, domain))

    def attribute(self, message: Message, graph: Graph) -> Any:
        """The value of an attribute; tensors stay in the file."""
        present = [kind for kind, field in FIELDS.items() if field in message]
        kind = kind_of(message)
        if message.get("ref_attr_name"):
            if not self.in_function:
                name = message["ref_attr_name"]
                why = f"the attribute {message.name()!r} refers to {name!r} of a function, and is not in one"
                raise self.malformed("E-ONNX-ATTRIBUTE", message, why)
            return Reference(message["ref_attr_name"], kind)
        if kind not in FIELDS or any(other != kind for other in present):
            why = f"the attribute {message.name()!r} is of type {kind} and has a value of another type, or none"
            raise self.malformed("E-ONNX-ATTRIBUTE", message, why)
        value = message.get(FIELDS[kind], [] if kind in range(FLOATS, GRAPHS + 1) or kind in (SPARSES, TYPES) else None)
        if value is None:
            return {FLOAT: 0.0, INT: 0, STRING: ""}.get(kind) if kind in (FLOAT, INT, STRING) else self.absent(message)
        many = isinstance(value, list)
        converted = [self.item(kind, item, graph) for item in (value if many else [value])]
        return converted if many else converted[0]

    def absent(self, message: Message) -> Any:
        raise self.malformed("E-ONNX-ATTRIBUTE", message, f"the attribute {message.name()!r} has no value")

    def item(self, kind: int, value: Any, graph: Graph) -> Any:
        if kind in (STRING, STRINGS):
            return _text(value)
        if kind in (TENSOR, TENSORS):
            return tensor_of(value, self.files)
        if kind in (SPARSE, SPARSES):
            return sparse_of(value, self.files)[1]
        if kind in (GRAPH, GRAPHS):
            inner = Graph(parent=graph, opsets=graph.opsets, newest=False)
            self.fill(inner, value)
            return inner
        if kind in (TYPE, TYPES):
            described = Value("", carried={"type": value})
            fill(described, value)
            return described
        return value


def kind_of(message: Message) -> int:
    """The type of an attribute, inferred for old files without one; 0 for an attribute without value."""
    given: int = message.get("type", 0)
    return given or next((kind for kind, field in FIELDS.items() if field in message), 0)


def ordered(nodes: list[Message], reader: _Reader) -> list[Message]:
    """Nodes in topological order, the file's own if it is one."""
    producer = {name: index for index, node in enumerate(nodes) for name in node.get("output", []) if name}
    needs = [{producer[name] for name in _used(node) if name in producer} for node in nodes]
    if all(need < index for index, wanted in enumerate(needs) for need in wanted):
        return nodes
    users: dict[int, list[int]] = {}
    for index, wanted in enumerate(needs):
        for need in wanted:
            users.setdefault(need, []).append(index)
    ready = [index for index, wanted in enumerate(needs) if not wanted]
    order = []
    while ready:
        index = heapq.heappop(ready)
        order.append(nodes[index])
        for user in users.get(index, []):
            needs[user].discard(index)
            if not needs[user]:
                heapq.heappush(ready, user)
    if len(order) < len(nodes):
        stuck = next(node for node, wanted in zip(nodes, needs, strict=True) if wanted)
        raise reader.malformed(
            "E-ONNX-CYCLE", stuck, f"the node {stuck.name()!r} ({stuck.get('op_type', '')}) depends on its own output"
        )
    return order


def _used(node: Message) -> Iterator[str]:
    """Names that a node and its subgraphs refer to and that the subgraphs do not define: a value in a subgraph may have
    the name of one around it that is computed later."""
    yield from node.get("input", [])
    pending: list[tuple[Message, frozenset[str]]] = [(graph, frozenset()) for graph in _graphs(node)]
    while pending:
        graph, around = pending.pop()
        defined = around.union(_defined(graph))
        used = [info.name() for info in graph.get("output", [])]
        for inner in graph.get("node", []):
            used += inner.get("input", [])
            pending += [(each, defined) for each in _graphs(inner)]
        yield from (name for name in used if name not in defined)


def _defined(graph: Message) -> Iterator[str]:
    """Names of the values of a subgraph."""
    for info in (*graph.get("input", []), *graph.get("initializer", [])):
        yield info.name()
    for sparse in graph.get("sparse_initializer", []):
        if "values" in sparse:
            yield sparse["values"].name()
    for node in graph.get("node", []):
        yield from node.get("output", [])


def _graphs(node: Message) -> list[Message]:
    """The subgraphs in a node's attributes."""
    return [
        graph
        for item in node.get("attribute", [])
        for graph in (*((item["g"],) if "g" in item else ()), *item.get("graphs", []))
    ]


def _domain(message: Message) -> str:
    domain = str(message.get("domain", ""))
    return "" if domain == "ai.onnx" else domain


def _text(value: bytes) -> str | bytes:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value
