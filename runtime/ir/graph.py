"""Graph: nodes, values and weights of a model; the result of every reader and the argument of every writer.

A weights-only file is a graph without nodes.
"""

from __future__ import annotations

import weakref
from collections.abc import ItemsView, Iterator, KeysView, Mapping, ValuesView
from dataclasses import field
from typing import Any, TypeVar

from ..base.dataclass import dataclass
from ..base.errors import UsageError, printable
from ..base.nearest_name import did_you_mean
from ..base.units import counted, human_count, human_size
from ..tensor.dtype import DType
from ..tensor.storage import Storage
from ..tensor.stored_tensor import StoredTensor
from .op import Op

Meta = Any
"""A metadata value: str, bytes, bool, int, float, a numpy scalar or 1-D array (which keep a GGUF type), or a list,
`StringArray` or dict of these."""


T = TypeVar("T")


@dataclass(frozen=True)
class Note:
    """A remark about a file for the user: a stable code such as ``W-TIED``, the tensor (or None), one sentence.

    Attributes:
        event: whether it reports what was done, such as a merged adapter; otherwise it warns of what may hurt.
    """

    code: str
    tensor: str | None
    message: str
    event: bool = False


Dim = int | str | None
"""A dimension: an integer, symbolic (str), or unknown (None)."""


@dataclass(eq=False)
class Value:
    """An edge of the graph.

    Attributes:
        name: unique in a graph and the subgraphs below it; "" for an output that nobody asks for.
        dtype, shape: of the tensor, or of the tensors in a container; None where they are not known.
        container: what wraps the tensor, from outside: ``("optional", "sequence")``; a map names its key type,
            ``("map:i64",)``.
        producer: the node that computes it, None for inputs and weights.
        carried: what its file says beyond this, by the format's own names; None where the file does not mention its
            type.
    """

    name: str
    dtype: DType | None = None
    shape: tuple[Dim, ...] | None = None
    container: tuple[str, ...] = ()
    producer: Node | None = field(default=None, repr=False)
    carried: dict[str, Any] | None = field(default=None, repr=False)


class ValueTable(dict[str, Value]):
    """The values of a model by name. Calling it, ``graph.values()``, returns the weights as a dictionary's method
    does: see `Graph.items`."""

    def __init__(self, values: Mapping[str, Value], graph: Graph) -> None:
        super().__init__(values)
        self._graph = weakref.ref(graph)

    def __call__(self) -> ValuesView[StoredTensor]:
        graph = self._graph()
        return {}.values() if graph is None else graph.weights.values()

    def __reduce__(self) -> tuple[type[dict[str, Value]], tuple[dict[str, Value]]]:
        return dict, (dict(self),)


@dataclass(eq=False)
class Node:
    """One application of an operator.

    Attributes:
        inputs: values of this graph or of one around it; None for an optional input that is absent.
        attributes: int, float, str, bytes, a numpy array (tensors), a `Graph` (subgraphs), a `Value` without name
            (types), or lists of these; a `StoredTensor` that is still in its file where the operator is foreign, a
            `Reference` inside functions.
        carried: what its file says beyond this, by the format's own names.
    """

    op: Op
    inputs: list[Value | None] = field(repr=False)
    outputs: list[Value] = field(repr=False)
    attributes: dict[str, Any] = field(default_factory=dict, repr=False)
    name: str = ""
    carried: dict[str, Any] | None = field(default=None, repr=False)

    @property
    def label(self) -> str:
        """The node in messages: its operator with its name, or with that of its first output."""
        name = self.name or next((value.name for value in self.outputs if value.name), "")
        return f"{self.op.name} node {name!r}" if name else f"{self.op.name} node"

    @property
    def subgraphs(self) -> list[Graph]:
        """The graphs among the attributes."""
        found: list[Graph] = []
        if not self.attributes:
            return found
        for value in self.attributes.values():
            if isinstance(value, Graph):
                found.append(value)
            elif isinstance(value, list):
                found += [item for item in value if isinstance(item, Graph)]
        return found


@dataclass(frozen=True)
class Reference:
    """An attribute inside a function whose value is the attribute `name` of the calling node."""

    name: str
    kind: int


@dataclass(eq=False)
class Training:
    """Training information of a model: graphs that share its values, and which of their outputs update which
    weights."""

    initialization: Graph | None = None
    algorithm: Graph | None = None
    initialization_binding: list[tuple[str, str]] = field(default_factory=list)
    update_binding: list[tuple[str, str]] = field(default_factory=list)


@dataclass(eq=False)
class Graph:
    """Weights by name, nodes, and what travels with them.

    Attributes:
        format: name of the format it was read from, "" when it was built in memory.
        weights: tensors in the file's order.
        metadata: the file's own key-value pairs.
        attachments: files that belong to the model (config.json, tokenizer.json ...) by name.
        notes: what the reader found noteworthy.
        files: the paths that were read.
        arch: name of the architecture, ours where it is known, else the file's own; None where nothing states one.
        nodes: in an order in which every value is computed before it is used.
        values: the values by name, weights included, those of subgraphs left out.
        opsets: opset by domain that the file was written for; newest: whether nodes have been taken from there to the
            newest one.
        constants: weights that were nodes of their own (ONNX's Constant), with what is carried of those nodes.
        functions: operators that the model defines itself, by domain, name and overload.
        training: see `Training`.
        external_files: paths of further opened files that hold nothing but the bytes of tensors.
        carried: what the file says beyond this, by the format's own names.
        parts: the graphs of a model that has a file for each, by the files' names without suffix. The model has no
            nodes then, and the weights of all, called ``PART/NAME``.
        mmproj: the encoders and the projector of a multimodal model whose other weights these are, as llama.cpp has
            them in a file of their own; None for other models.
    """

    weights: dict[str, StoredTensor] = field(default_factory=dict)
    metadata: dict[str, Meta] = field(default_factory=dict)
    attachments: dict[str, Storage] = field(default_factory=dict)
    inputs: list[Value] = field(default_factory=list)
    outputs: list[Value] = field(default_factory=list)
    nodes: list[Node] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)
    format: str = ""
    files: list[str] = field(default_factory=list)
    arch: str | None = None
    name: str = ""
    values: dict[str, Value] = field(default_factory=dict)
    opsets: dict[str, int] = field(default_factory=dict)
    newest: bool = True
    parent: Graph | None = None
    constants: dict[str, dict[str, Any]] = field(default_factory=dict)
    functions: dict[tuple[str, str, str], Function] = field(default_factory=dict)
    training: list[Training] = field(default_factory=list)
    external_files: list[str] = field(default_factory=list)
    carried: dict[str, Any] | None = None
    parts: dict[str, Graph] = field(default_factory=dict)
    mmproj: Graph | None = None
    _fresh: dict[str, int] = field(default_factory=dict, repr=False)

    def fresh(self, stem: str) -> str:
        """A new unique name, deterministic: `stem` with a number."""
        root = self
        while root.parent is not None:
            root = root.parent
        while True:
            count = root._fresh[stem] = root._fresh.get(stem, -1) + 1
            name = f"{stem}.{count}" if count else stem
            if name not in root.values and name not in root.weights and (not count or name not in root._fresh):
                root._fresh.setdefault(name, 0)
                return name

    def find(self, name: str) -> Value | None:
        """The value of a name in this graph or the nearest enclosing one."""
        around: Graph | None = self
        while around is not None:
            if name in around.values:
                return around.values[name]
            around = around.parent
        return None

    def reserve(self, name: str) -> None:
        """Reserve a name that a subgraph uses."""
        root = self
        while root.parent is not None:
            root = root.parent
        root._fresh.setdefault(name, 0)

    @property
    def nbytes(self) -> int:
        """Bytes of all weights in their stored form."""
        return sum(tensor.nbytes for tensor in self.weights.values())

    def note(self, code: str, message: str, tensor: str | None = None) -> None:
        """Add a warning."""
        self.notes.append(Note(code, tensor, message))

    def event(self, code: str, message: str, tensor: str | None = None) -> None:
        """Record an event of the conversion that needs no action."""
        self.notes.append(Note(code, tensor, message, event=True))

    @property
    def parameters(self) -> int:
        """Number of elements of all weights; weights that share bytes count once."""
        sizes: dict[object, int] = {}
        for name, tensor in self.weights.items():
            sizes.setdefault(tensor.storage.key if tensor.storage.key is not None else name, tensor.count)
        return sum(sizes.values())

    def __repr__(self) -> str:
        kind = " ".join(printable(word) for word in (self.format, self.arch or self.name) if word)
        nodes = f", {counted(len(self.nodes), 'node')}" if self.nodes else ""
        size = (
            f"{counted(len(self.weights), 'tensor')}, {human_count(self.parameters)} parameters, "
            f"{human_size(self.nbytes)}"
        )
        return f"<{type(self).__name__}{f' {kind[:80]}' if kind else ''}: {size}{nodes}>"

    def keys(self) -> KeysView[str]:
        """Names of the weights, in the file's order."""
        return self.weights.keys()

    def items(self) -> ItemsView[str, StoredTensor]:
        """Names and weights, in the file's order."""
        return self.weights.items()

    def get(self, name: str, default: T | None = None) -> StoredTensor | T | None:
        """The weight of a name, or `default`."""
        return self.weights.get(name, default)

    def __len__(self) -> int:
        return len(self.weights)

    def __iter__(self) -> Iterator[str]:
        return iter(self.weights)

    def __contains__(self, name: object) -> bool:
        return name in self.weights

    def __getitem__(self, name: str) -> StoredTensor:
        if name not in self.weights:
            hint = did_you_mean(name, self.weights, "candle-convert inspect lists them")
            raise UsageError("E-TENSOR-NAME", None, f"no tensor named {name!r}", hint=hint)
        return self.weights[name]


@dataclass(frozen=True, eq=False, repr=False)
class Function(Op):
    """A function: an operator that a model defines by a graph.

    Attributes:
        body: the graph; its inputs and outputs are the operator's, by position; its attributes may be `Reference`s.
        given: attributes with defaults; required: attributes without.
        overload: distinguishes functions of one name.
    """

    body: Graph = field(default_factory=Graph)
    given: dict[str, Any] = field(default_factory=dict)
    required: tuple[str, ...] = ()
    overload: str = ""
