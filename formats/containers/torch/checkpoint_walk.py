"""Checkpoint walk: the leaves of a pickle under dotted names: tensors, plain values, and unreadable records.

Containers that hold themselves are cut there. Sharing makes a small pickle as large as one likes, so the nodes walked
are counted.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

from ....runtime.base.dataclass import dataclass
from ....runtime.base.errors import LimitError
from ..pickle.builders import NAMESPACES
from ..pickle.cursor import Span
from ..pickle.machine import Global, Persistent, Record, Value
from ..pickle.numpy_records import SCALAR, NotNumeric, array, is_array, scalar
from .legacy_stream import Checkpoint
from .tensor_records import SCRIPT_VALUES

NODES = 20_000
NODES_FOR_OPCODE = 4
DEPTH_FOR_NAME = 4
"""Containers that may lie in each other for each part of a name; states of records add none."""
NAME_LENGTH = 4096
SCALARS = (str, bytes, bool, int, float, complex, type(None))
MODULE_PARTS = ("_parameters", "_buffers", "_modules")
"""Where a pickled nn.Module keeps what its state dict names without them."""
Path = tuple[str, ...]


@dataclass(frozen=True)
class Leaf:
    """An end of the tree.

    Attributes:
        path: the keys and indices that lead there.
        value: a `Tensor`, a plain value, or None for what is dropped.
        within: length of the path at which the first object with state was entered, None outside of such.
        dropped: reason for a missing value: the class of a record, or that a container holds itself.
        quantized: the scheme that the tensor was dequantized from.
    """

    path: Path
    value: Any
    within: int | None = None
    dropped: str | None = None
    quantized: str | None = None


@dataclass(frozen=True)
class _Place:
    path: Path
    value: Value
    within: int | None


class Walk:
    """One pass over a checkpoint's value."""

    def __init__(self, checkpoint: Checkpoint, file: str, depth: int) -> None:
        self.rebuilder = checkpoint.rebuilder
        self.file = file
        self.depth = depth
        self.left = NODES + NODES_FOR_OPCODE * checkpoint.operations
        self.nodes = self.left
        self.root = checkpoint.value

    def leaves(self) -> Iterator[Leaf]:
        """Every leaf, in the file's order."""
        open_ids: list[int] = [0]
        pending: list[Iterator[_Place]] = [iter([_Place((), self.root, None)])]
        while pending:
            place = next(pending[-1], None)
            if place is None:
                pending.pop()
                open_ids.pop()
                continue
            self._count(place, len(pending))
            value = self.rebuilder.resolve(place.value)
            leaf = self._leaf(place, value)
            if leaf is not None:
                yield leaf
            elif id(value) in open_ids:
                yield Leaf(place.path, None, place.within, "a container that holds itself")
            else:
                open_ids.append(id(value))
                pending.append(self._inner(place, value))

    def _count(self, place: _Place, nesting: int) -> None:
        self.left -= 1
        if self.left < 0:
            why = f"its shared containers unfold to more than {self.nodes:,} values"
            raise LimitError(
                "E-PKL-NODES", self.file, why, hint="No checkpoint does that; the file is made to exhaust memory"
            )
        if nesting > DEPTH_FOR_NAME * self.depth or len(place.path) > self.depth:
            hint = "Raise it with --limit depth=1000"
            raise LimitError("E-LIMIT-DEPTH", self.file, f"values are nested deeper than {self.depth}", hint=hint)

    def _leaf(self, place: _Place, value: Value) -> Leaf | None:
        """The leaf that a value is, None for one that holds others."""
        path, within = place.path, place.within
        if isinstance(value, SCALARS):
            return Leaf(path, value, within)
        if isinstance(value, list | tuple | set | frozenset):
            self.left -= len(value)
            if not all(isinstance(item, SCALARS) for item in value):
                return None
            return Leaf(path, value if isinstance(value, list) else _ordered(value), within)
        if isinstance(value, Record):
            return self._record(place, value)
        if isinstance(value, Global):
            return Leaf(path, value.name, within)
        if isinstance(value, Span):
            return Leaf(path, value, within)
        if isinstance(value, Persistent):
            return Leaf(path, None, within, "a storage without a tensor")
        return None

    def _record(self, place: _Place, record: Record) -> Leaf | None:
        path, within = place.path, place.within
        if self.rebuilder.is_tensor(record):
            tensor, quantized = self.rebuilder.rebuild(record)
            return Leaf(path, tensor, within, None, quantized)
        if is_array(record) or record.name == SCALAR:
            try:
                return Leaf(
                    path,
                    array(record, self.rebuilder.file) if is_array(record) else scalar(record, self.rebuilder.file),
                    within,
                )
            except NotNumeric as error:
                return Leaf(path, None, within, f"an array of {error}")
        if record.name == "uuid.UUID" and isinstance(record.state, dict) and type(record.state.get("int")) is int:
            return Leaf(path, str(uuid.UUID(int=record.state["int"] % (1 << 128))), within)
        holds = (
            isinstance(record.state, dict | list | tuple | Record)
            or record.items
            or record.pairs
            or record.name in SCRIPT_VALUES
        )
        return None if holds else Leaf(path, None, within, record.name or "an unnamed object")

    def _inner(self, place: _Place, value: Value) -> Iterator[_Place]:
        """What a container or record holds, under names."""
        path, within = place.path, place.within
        if isinstance(value, dict):
            return (_Place(self._under(path, key), item, within) for key, item in value.items())
        if isinstance(value, Record):
            if value.name in SCRIPT_VALUES:
                return (_Place(path, item, within) for item in value.arguments[:1])
            return self._parts(path, value, len(path) if within is None and value.name not in NAMESPACES else within)
        return (_Place((*path, str(index)), item, within) for index, item in enumerate(value))

    def _parts(self, path: Path, record: Record, within: int | None) -> Iterator[_Place]:
        """The attributes, members and pairs of an object, a module's tensors under the names its state dict gives
        them."""
        state = record.state
        if (
            isinstance(state, tuple)
            and len(state) == 2
            and isinstance(state[1], dict)
            and isinstance(state[0], dict | None)
        ):
            state = {**(state[0] or {}), **state[1]}
        if isinstance(state, dict):
            for key, item in state.items():
                if key in MODULE_PARTS and isinstance(item, dict):
                    yield from (_Place(self._under(path, name), inner, within) for name, inner in item.items())
                else:
                    yield _Place(self._under(path, key), item, within)
        elif isinstance(state, list | tuple | Record):
            yield _Place(path, state, within)
        yield from (_Place((*path, str(index)), item, within) for index, item in enumerate(record.items))
        yield from (_Place(self._under(path, key), item, within) for key, item in record.pairs)

    def _under(self, path: Path, key: Any) -> Path:
        """The path of a dictionary's value."""
        name = key if isinstance(key, str) else _text(key)
        if len(name) > NAME_LENGTH:
            raise LimitError(
                "E-PKL-NAME",
                self.file,
                f"a key has {len(name):,} characters",
                hint="Tensor names of this length are not read",
            )
        return (*path, name)


def _ordered(value: tuple[Any, ...] | set[Any] | frozenset[Any]) -> list[Any]:
    """A list of the members, those of sets in an order that every run gives."""
    return list(value) if isinstance(value, tuple) else sorted(value, key=lambda item: (type(item).__name__, str(item)))


def _text(key: Any) -> str:
    if isinstance(key, bytes):
        return key.decode("latin-1")
    if isinstance(key, Global):
        return key.name
    if isinstance(key, bool | int | float | complex | None):
        return str(key)
    if isinstance(key, tuple) and all(isinstance(part, str | int) for part in key):
        return ",".join(map(str, key))
    return f"({type(key).__name__.lower()})"
