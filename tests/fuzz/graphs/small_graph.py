"""Small graphs that are drawn, changed and printed: nodes with arrays, made into ONNX models when they run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

OPSET = 21
DOMAINS = ("", "com.microsoft")
SCRIPT = '''"""{fault}"""
import numpy as np
import onnxruntime
from candle_convert.formats.containers.onnx.reader import graph_of
from candle_convert.runtime.session import Session
from candle_convert.tests.fuzz.graphs.small_graph import Input, Node, SmallGraph

array = lambda dtype, shape, *elements: np.array(elements, dtype).reshape(shape)
graph = {graph}
model = graph.model()
for feeds in graph.feeds():
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    print("onnxruntime", *session.run(None, feeds), sep="\\n")
    print("numpy", *Session(graph_of(model), native=False, simplify=False).run(None, feeds), sep="\\n")
    print("simplified", *Session(graph_of(model), native=False, simplify=True).run(None, feeds), sep="\\n")
    print("native", *Session(graph_of(model), 1, native=True, simplify=False).run(None, feeds), sep="\\n")
    print("both", *Session(graph_of(model), 1, native=True, simplify=True).run(None, feeds), sep="\\n")
'''


@dataclass(frozen=True)
class Node:
    """One use of an operator; a `SmallGraph` among the attributes is a subgraph."""

    op: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    domain: str = ""

    @property
    def subgraphs(self) -> list[SmallGraph]:
        return [value for value in self.attributes.values() if isinstance(value, SmallGraph)]

    @property
    def read(self) -> set[str]:
        """Names that it reads, inside of its subgraphs too."""
        return {name for name in self.inputs if name}.union(*(graph.captured for graph in self.subgraphs))


@dataclass(frozen=True)
class Input:
    """An input: its dims, lengths or symbols, and an array for each run."""

    dims: tuple[int | str, ...]
    arrays: tuple[np.ndarray, ...]


@dataclass(frozen=True)
class SmallGraph:
    """A graph whose values are named; `types` has dtype and rank (None if unknown) of inputs without arrays, and of
    outputs."""

    nodes: tuple[Node, ...]
    inputs: Mapping[str, Input | None]
    constants: Mapping[str, np.ndarray]
    outputs: tuple[str, ...]
    types: Mapping[str, tuple[str, int | None]] = field(default_factory=dict)

    @property
    def captured(self) -> set[str]:
        """Names of values around it that it reads."""
        own = {*self.inputs, *self.constants, *(name for node in self.nodes for name in node.outputs)}
        return {*self.outputs, *(name for node in self.nodes for name in node.read)} - own

    @property
    def size(self) -> int:
        """Nodes, with those of subgraphs."""
        return sum(1 + sum(graph.size for graph in node.subgraphs) for node in self.nodes)

    def operators(self) -> Iterator[str]:
        """The operator of every node."""
        for node in self.nodes:
            yield node.op
            for graph in node.subgraphs:
                yield from graph.operators()

    def casts(self) -> Iterator[int]:
        """The dtype that each Cast makes."""
        for node in self.nodes:
            yield from [node.attributes["to"]] if node.op == "Cast" else []
            for graph in node.subgraphs:
                yield from graph.casts()

    def feeds(self) -> list[dict[str, np.ndarray]]:
        """The arrays of each run."""
        fed = {name: item.arrays for name, item in self.inputs.items() if item is not None}
        runs = min(map(len, fed.values()), default=1)
        return [{name: arrays[run] for name, arrays in fed.items()} for run in range(runs)]

    def needed(self) -> SmallGraph:
        """The graph without what no output needs."""
        wanted, nodes = set(self.outputs), []
        for node in reversed(self.nodes):
            if wanted & set(node.outputs):
                nodes.insert(0, node)
                wanted |= node.read
        return replace(
            self,
            nodes=tuple(nodes),
            inputs={name: item for name, item in self.inputs.items() if name in wanted},
            constants={name: array for name, array in self.constants.items() if name in wanted},
        )

    def model(self, opset: int = OPSET) -> onnx.ModelProto:
        """As an ONNX model."""
        imports = [helper.make_opsetid(domain, 1 if domain else opset) for domain in DOMAINS]
        return helper.make_model(self.proto("main"), opset_imports=imports, ir_version=10)

    def proto(self, name: str) -> onnx.GraphProto:
        inputs = [
            _described(key, *self.types[key])
            if item is None
            else _described(key, item.arrays[0].dtype, len(item.dims), item.dims)
            for key, item in self.inputs.items()
        ]
        outputs = [_described(key, *self.types[key]) for key in self.outputs]
        weights = [numpy_helper.from_array(array, key) for key, array in self.constants.items()]
        return helper.make_graph([_node(node) for node in self.nodes], name, inputs, outputs, weights)

    def __str__(self) -> str:
        ends = {*self.inputs, *self.outputs}
        parts = {
            "nodes": _tuple_source(map(_node_source, self.nodes)),
            "inputs": _dict_source({name: item and _input_source(item) for name, item in self.inputs.items()}),
            "constants": _dict_source({name: _array_source(array) for name, array in self.constants.items()}),
            "outputs": repr(self.outputs),
            "types": repr({name: kind for name, kind in self.types.items() if name in ends}),
        }
        return f"SmallGraph({', '.join(f'{name}={source}' for name, source in parts.items())})"

    def script(self, fault: str) -> str:
        """A program that runs it everywhere."""
        return SCRIPT.format(graph=self, fault=fault.replace('"""', "'''"))


def _described(
    name: str, dtype: Any, rank: int | None, dims: Sequence[int | str | None] | None = None
) -> onnx.ValueInfoProto:
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    return helper.make_tensor_value_info(name, kind, [None] * rank if dims is None and rank is not None else dims)


def type_of(array: np.ndarray) -> tuple[str, int]:
    """Dtype and rank."""
    return array.dtype.name, array.ndim


def of_model(model: onnx.ModelProto, inputs: Mapping[str, Input | None]) -> SmallGraph:
    """A model as a small graph, whose inputs have the arrays of `inputs`."""
    return _of_graph(model.graph, inputs)


def _of_graph(graph: onnx.GraphProto, inputs: Mapping[str, Input | None]) -> SmallGraph:
    types: dict[str, tuple[str, int | None]] = {}
    for value in (*graph.input, *graph.output):
        tensor = value.type.tensor_type
        rank = len(tensor.shape.dim) if tensor.HasField("shape") else None
        types[value.name] = helper.tensor_dtype_to_np_dtype(tensor.elem_type).name, rank
    nodes = []
    for node in graph.node:
        attributes = {item.name: helper.get_attribute_value(item) for item in node.attribute}
        attributes = {
            key: _of_graph(value, {}) if isinstance(value, onnx.GraphProto) else value
            for key, value in attributes.items()
        }
        nodes.append(Node(node.op_type, tuple(node.input), tuple(node.output), attributes, node.domain))
    return SmallGraph(
        tuple(nodes),
        {value.name: inputs.get(value.name) for value in graph.input},
        {item.name: numpy_helper.to_array(item) for item in graph.initializer},
        tuple(value.name for value in graph.output),
        types,
    )


def _node(node: Node) -> onnx.NodeProto:
    attributes = {
        key: value.proto(key) if isinstance(value, SmallGraph) else value for key, value in node.attributes.items()
    }
    return helper.make_node(node.op, node.inputs, node.outputs, domain=node.domain, **attributes)


def _tuple_source(items: Iterable[str]) -> str:
    return f"({''.join(f'{item}, ' for item in items)})"


def _dict_source(items: Mapping[str, str | None]) -> str:
    return f"{{{', '.join(f'{name!r}: {item}' for name, item in items.items())}}}"


def _node_source(node: Node) -> str:
    attributes = {
        key: str(value) if isinstance(value, SmallGraph) else repr(value) for key, value in node.attributes.items()
    }
    domain = f", {node.domain!r}" if node.domain else ""
    return f"Node({node.op!r}, {node.inputs!r}, {node.outputs!r}, {_dict_source(attributes)}{domain})"


def _input_source(item: Input) -> str:
    return f"Input({item.dims!r}, {_tuple_source(map(_array_source, item.arrays))})"


def _array_source(array: np.ndarray) -> str:
    elements = "".join(f", {item!r}" for item in array.reshape(-1).tolist())
    return f"array({array.dtype.name!r}, {array.shape!r}{elements})"
