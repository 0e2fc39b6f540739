"""Graphs: what every reader returns and every writer takes. A weights-only file is a graph with no nodes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from .dtype import DType
from .errors import UsageError
from .storage import Storage
from .tensor import Tensor

if TYPE_CHECKING:
    from .op import Op

Meta = Any
"""A metadata value: str, bytes, bool, int, float, a numpy scalar or 1-D array (which keep a GGUF type), or a list or dict of these."""


@dataclass(frozen=True)
class Note:
    """Something the user should know about a file: a stable code such as ``W-TIED``, the tensor (or None), one sentence."""

    code: str
    tensor: str | None
    message: str


@dataclass(eq=False)
class Value:
    """An edge of the graph: its name, type, and shape (a str is a symbolic length, None an unknown one)."""

    name: str
    dtype: DType | None = None
    shape: tuple[int | str | None, ...] | None = None
    producer: Node | None = None
    uses: list[Node] = field(default_factory=list)


@dataclass(eq=False)
class Node:
    """One application of an operator."""

    op: Op
    inputs: list[Value | None]
    outputs: list[Value]
    attributes: dict[str, Any] = field(default_factory=dict)
    name: str = ""


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
        arch: name of the recognised architecture, None when there is none.
    """

    weights: dict[str, Tensor] = field(default_factory=dict)
    metadata: dict[str, Meta] = field(default_factory=dict)
    attachments: dict[str, Storage] = field(default_factory=dict)
    inputs: list[Value] = field(default_factory=list)
    outputs: list[Value] = field(default_factory=list)
    nodes: list[Node] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)
    format: str = ""
    files: list[str] = field(default_factory=list)
    arch: str | None = None

    @property
    def nbytes(self) -> int:
        """Bytes of all weights as they are stored."""
        return sum(tensor.nbytes for tensor in self.weights.values())

    def note(self, code: str, message: str, tensor: str | None = None) -> None:
        """Add a note."""
        self.notes.append(Note(code, tensor, message))

    def __len__(self) -> int:
        return len(self.weights)

    def __iter__(self) -> Iterator[str]:
        return iter(self.weights)

    def __contains__(self, name: object) -> bool:
        return name in self.weights

    def __getitem__(self, name: str) -> Tensor:
        if name not in self.weights:
            raise UsageError("E-TENSOR-NAME", None, f"there is no tensor {name!r}", hint="List them with candle-convert inspect")
        return self.weights[name]
