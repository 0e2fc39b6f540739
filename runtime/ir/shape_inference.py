"""Shape and type inference: each operator's rule derives facts about outputs from facts about inputs.

What is known of an integer tensor may be partial: `data` holds its elements as dims, symbolic and unknown ones
included, so that shapes that are computed (Shape, Gather, Concat, Reshape) stay known. Rules never fail because
something is unknown; they raise FormatError through `Inference.fail` when a node contradicts its operator.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from ..base.errors import FormatError
from ..base.units import counted
from ..tensor.dtype import F32, BlockType, DType
from .function import check_expansion, instance
from .graph import Dim, Function, Graph, Node, Value
from .operand_types import mismatch

if TYPE_CHECKING:
    import numpy as np

Shape = tuple[Dim, ...]

CHECK = "The model is malformed: candle-convert check lists all of it"

MALFORMED = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
"""Exceptions that a rule raises for a node with missing or wrong inputs or attributes."""
MAX_RANK = 64
"""Maximum rank of an array, as in NumPy."""
MAX_DATA = 4096
"""Maximum number of elements of an integer tensor that is tracked through shape arithmetic."""


class _Known(NamedTuple):
    """A node as inference left it, what it knew of elements of the outputs, and attributes, which are held so that
    their addresses are not those of others."""

    state: list[Any]
    partial: dict[Value, Shape]
    attributes: tuple[Any, ...]


_kept: ContextVar[dict[Node, _Known] | None] = ContextVar("_kept", default=None)


@contextlib.contextmanager
def kept_inferences() -> Iterator[None]:
    """Within, `infer` computes anew only nodes that are not as it left them: passes change a small part of a graph."""
    if _kept.get() is not None:
        yield
        return
    token = _kept.set({})
    try:
        yield
    finally:
        _kept.reset(token)


class Inference:
    """The view of one node that its operator's inference rule gets.

    Attributes:
        attributes: all attributes, defaults filled in.
    """

    def __init__(self, node: Node, facts: Facts) -> None:
        self.node = node
        self.facts = facts
        self.attributes: dict[str, Any] = {**node.op.defaults, **node.attributes}

    def __len__(self) -> int:
        return len(self.node.inputs)

    def value(self, index: int) -> Value | None:
        """Input `index`, None if it is absent."""
        return self.node.inputs[index] if index < len(self.node.inputs) else None

    def dtype(self, index: int) -> DType | None:
        """Dtype of an input's elements: f32 for quantized weights."""
        value = self.value(index)
        return None if value is None else F32 if isinstance(value.dtype, BlockType) else value.dtype

    def shape(self, index: int) -> Shape | None:
        """Shape of an input."""
        value = self.value(index)
        return None if value is None else value.shape

    def array(self, index: int) -> np.ndarray | None:
        """Elements of a small constant input, None for others."""
        value = self.value(index)
        return None if value is None else self.facts.array(value)

    def data(self, index: int) -> Shape | None:
        """Elements of a scalar or 1-D integer input as dims, None if all are unknown."""
        value = self.value(index)
        return None if value is None else self.facts.data(value)

    def set(
        self,
        index: int,
        dtype: DType | None,
        shape: Sequence[Dim] | None,
        *,
        data: Sequence[Dim] | None = None,
        container: tuple[str, ...] = (),
    ) -> None:
        """Set dtype and shape of output `index`; ignored if the node does not have it."""
        if index >= len(self.node.outputs):
            return
        value = self.node.outputs[index]
        if shape is not None and len(shape) > MAX_RANK:
            self.fail(f"output {index} has {counted(len(shape), 'dim')}, {MAX_RANK} are the most that an array has")
        value.dtype = dtype or value.dtype
        value.container = container or value.container
        if shape is not None:
            self.facts.learn(value, tuple(shape))
        if data is not None and len(data) <= MAX_DATA:
            self.facts.partial[value] = tuple(data)

    def subgraph(self, name: str) -> Graph:
        """A graph attribute, its nodes inferred by `infer_subgraph`."""
        graph = self.attributes[name]
        assert isinstance(graph, Graph)
        return graph

    def infer_subgraph(self, graph: Graph) -> None:
        """Infer a subgraph after the types of its inputs have been set."""
        self.facts.infer(graph)

    def fail(self, why: str) -> NoReturn:
        """Raise FormatError E-ONNX-NODE: the node violates the operator's definition."""
        raise FormatError("E-ONNX-NODE", None, f"{self.node.label}: {why}", hint=CHECK)


class Facts:
    """Facts about the values of a graph beyond dtype and shape.

    Attributes:
        partial: elements of small integer tensors.
        stale: values whose declared shape contradicts the inferred one, with the declared shape.
        typed: whether to check the input types of nodes; mistyped: the nodes that fail, with the reason.
    """

    def __init__(self, weights: dict[str, Any] | None = None, *, typed: bool = False) -> None:
        self.partial: dict[Value, Shape] = {}
        self.weights = weights or {}
        self.graphs: list[Graph] = []
        self.stale: list[tuple[Value, Shape]] = []
        self.typed = typed
        self._reused: dict[Node, _Known] | None = None
        self.mistyped: dict[Node, str] = {}

    def learn(self, value: Value, shape: Shape) -> None:
        """Set an inferred shape; a contradicting shape declared in the file is recorded as stale."""
        if value.shape is None or value.shape == shape:
            value.shape = shape
            return
        try:
            value.shape = merged(value.shape, shape, f"value {value.name!r}")
        except FormatError:
            assert value.shape is not None
            self.stale.append((value, value.shape))
            value.shape = shape

    def array(self, value: Value) -> np.ndarray | None:
        """The elements of a small constant."""
        for graph in reversed(self.graphs):
            tensor = graph.weights.get(value.name)
            if tensor is not None and graph.values.get(value.name) is value:
                return tensor.numpy() if tensor.count <= MAX_DATA and tensor.qtype is None else None
        known = self.partial.get(value)
        if (
            known is not None
            and value.dtype is not None
            and value.shape is not None
            and all(isinstance(dim, int) for dim in known)
        ):
            import numpy

            return (
                numpy.array(known, numpy.int64)
                .astype(value.dtype.as_numpy())
                .reshape([dim for dim in value.shape if isinstance(dim, int)])
            )
        return None

    def data(self, value: Value) -> Shape | None:
        """Elements of a scalar or 1-D integer value."""
        if value in self.partial:
            return self.partial[value]
        array = self.array(value)
        if array is None or array.ndim > 1 or array.dtype.kind not in "iu":
            return None
        return tuple(int(item) for item in array.reshape(-1))

    def infer(self, graph: Graph) -> None:
        """Infer every node of a graph in order."""
        if not self.graphs:
            check_expansion(graph)
            self._reused = None if self.typed else _kept.get()
        self.graphs.append(graph)
        for node in graph.nodes:
            self.infer_node(node)
        self.graphs.pop()

    def infer_node(self, node: Node) -> None:
        """Infer the outputs of one node."""
        if isinstance(node.op, Function):
            self.infer_call(node)
        elif node.op.infer is not None and not self._is_known(node):
            self._apply_rule(node)
            if self._reused is not None and len(self.graphs) == 1 and not node.subgraphs:
                partial = {value: self.partial[value] for value in node.outputs if value in self.partial}
                self._reused[node] = _Known(self._state(node), partial, tuple(node.attributes.values()))

    def _is_known(self, node: Node) -> bool:
        """Whether a node is as `infer` left it; what was known of elements is known again."""
        known = None if self._reused is None or len(self.graphs) > 1 else self._reused.get(node)
        if known is None or known.state != self._state(node):
            return False
        self.partial.update(known.partial)
        return True

    def _state(self, node: Node) -> list[Any]:
        """All that a node's inference reads and sets. Attributes are compared as objects."""
        graph, partial = self.graphs[0], self.partial
        weights, values = graph.weights, graph.values
        facts: list[Any] = [node.op]
        for value in node.inputs:
            if value is None:
                facts.append(None)
                continue
            known: Any = partial.get(value)
            tensor = weights.get(value.name)
            if tensor is not None and tensor.count <= MAX_DATA and values.get(value.name) is value:
                known = tensor
            facts += [value, value.dtype, value.shape, value.container, known]
        facts += [*node.attributes, *map(id, node.attributes.values())]
        for value in node.outputs:
            facts += [value, value.dtype, value.shape, value.container]
        return facts

    def _apply_rule(self, node: Node) -> None:
        assert node.op.infer is not None
        if self.typed and (why := mismatch(node)) is not None:
            self.mistyped[node] = why
        try:
            node.op.infer(Inference(node, self))
        except MALFORMED as error:
            why = f"{node.label} is not made as its operator's definition says ({type(error).__name__}: {error})"
            raise FormatError("E-ONNX-NODE", None, why, hint=CHECK) from error

    def infer_call(self, node: Node) -> None:
        """Infer the outputs of a function call from its body with the inputs of the call."""
        inner = Graph(parent=self.graphs[-1])
        nodes = instance(node, inner)
        self.graphs.append(inner)
        for made in nodes:
            self.infer_node(made)
        self.graphs.pop()
        for value in node.outputs:
            value.producer = node


def infer(graph: Graph) -> Facts:
    """Infer dtypes and shapes of all values of a graph from its inputs and weights; returns the facts about their
    elements."""
    facts = Facts()
    facts.infer(graph)
    return facts


def check_types(graph: Graph) -> None:
    """FormatError if a node of a graph has inputs of types that its operator does not allow.

    Contradicting shapes are not checked: inputs of a run may differ from the declared ones. Nodes made by passes may
    have types outside of the standard.
    """
    facts = Facts(typed=True)
    with contextlib.suppress(FormatError):
        facts.infer(graph)
    for node, why in facts.mistyped.items():
        raise FormatError("E-ONNX-TYPE", None, f"{node.label}: {why}", hint=CHECK)


def merged(one: Shape | None, other: Shape | None, what: str) -> Shape | None:
    """Merge two descriptions of one shape; FormatError if they contradict each other."""
    if one is None or other is None:
        return other if one is None else one
    if len(one) != len(other):
        raise FormatError(
            "E-ONNX-SHAPE", None, f"{what} has two ranks", expected=len(one), found=len(other), hint=CHECK
        )
    return tuple(_dim(first, second, what) for first, second in zip(one, other, strict=True))


def _dim(one: Dim, other: Dim, what: str) -> Dim:
    if isinstance(one, int) and isinstance(other, int) and one != other:
        raise FormatError("E-ONNX-SHAPE", None, f"{what} has two lengths", expected=one, found=other, hint=CHECK)
    if isinstance(one, int):
        return one
    return other if other is not None else one
