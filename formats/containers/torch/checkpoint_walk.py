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
from ....runtime.base.units import counted
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
"""Attributes of a pickled nn.Module that hold its state; a state dict leaves out their names."""
Path = tuple[str, ...]


@dataclass(frozen=True)
class Leaf:
    """An end of the tree.

    Attributes:
        path: the keys and indices that lead there.
        value: a `Tensor`, a plain value, or None for what is dropped.
        within: length of the path at which the first object with state was entered, None outside of such.
        owner: length of the path of the module of which it is an attribute, None for what is not.
        dropped: reason for a missing value: the class of a record, or that a container holds itself.
        quantized: the scheme that the tensor was dequantized from.
    """

    path: Path
    value: Any
    within: int | None = None
    owner: int | None = None
    dropped: str | None = None
    quantized: str | None = None


@dataclass(frozen=True)
class _Place:
    path: Path
    value: Value
    within: int | None
    owner: int | None = None

    def leaf(self, value: Any, dropped: str | None = None, quantized: str | None = None) -> Leaf:
        """An end of the tree here."""
        return Leaf(self.path, value, self.within, self.owner, dropped, quantized)


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
                yield place.leaf(None, "a container that holds itself")
            else:
                open_ids.append(id(value))
                pending.append(self._inner(place, value))

    def _count(self, place: _Place, nesting: int) -> None:
        self.left -= 1
        if self.left < 0:
            why = f"its shared containers unfold to more than {counted(self.nodes, 'value')}"
            raise LimitError(
                "E-PKL-NODES", self.file, why, hint="No checkpoint does that; the file is made to exhaust memory"
            )
        if nesting > DEPTH_FOR_NAME * self.depth or len(place.path) > self.depth:
            hint = "Raise it with --limit depth=1000"
            raise LimitError("E-LIMIT-DEPTH", self.file, f"values are nested deeper than {self.depth}", hint=hint)

    def _leaf(self, place: _Place, value: Value) -> Leaf | None:
        """The leaf that a value is, None for one that holds others."""
        if isinstance(value, SCALARS):
            return place.leaf(value)
        if isinstance(value, list | tuple | set | frozenset):
            self.left -= len(value)
            if not all(isinstance(item, SCALARS) for item in value):
                return None
            return place.leaf(value if isinstance(value, list) else _ordered(value))
        if isinstance(value, Record):
            return self._record(place, value)
        if isinstance(value, Global):
            return place.leaf(value.name)
        if isinstance(value, Span):
            return place.leaf(value)
        if isinstance(value, Persistent):
            return place.leaf(None, "a storage without a tensor")
        return None

    def _record(self, place: _Place, record: Record) -> Leaf | None:
        if self.rebuilder.is_tensor(record):
            tensor, quantized = self.rebuilder.rebuild(record)
            return place.leaf(tensor, None, quantized)
        if is_array(record) or record.name == SCALAR:
            try:
                read = array if is_array(record) else scalar
                return place.leaf(read(record, self.rebuilder.file))
            except NotNumeric as error:
                return place.leaf(None, f"an array of {error}")
        if record.name == "uuid.UUID" and isinstance(record.state, dict) and type(record.state.get("int")) is int:
            return place.leaf(str(uuid.UUID(int=record.state["int"] % (1 << 128))))
        holds = (
            isinstance(record.state, dict | list | tuple | Record)
            or record.items
            or record.pairs
            or record.name in SCRIPT_VALUES
        )
        return None if holds else place.leaf(None, record.name or "an unnamed object")

    def _inner(self, place: _Place, value: Value) -> Iterator[_Place]:
        """The entries of a container or record, by name."""
        path, within, owner = place.path, place.within, place.owner
        if isinstance(value, dict):
            return (_Place(self._under(path, key), item, within, owner) for key, item in value.items())
        if isinstance(value, Record):
            if value.name in SCRIPT_VALUES:
                return (_Place(path, item, within, owner) for item in value.arguments[:1])
            within = len(path) if within is None and value.name not in NAMESPACES else within
            return self._parts(_Place(path, value, within, owner), value)
        return (_Place((*path, str(index)), item, within, owner) for index, item in enumerate(value))

    def _parts(self, place: _Place, record: Record) -> Iterator[_Place]:
        """The attributes, members and pairs of an object, a module's tensors under the names its state dict gives
        them."""
        path, within, owner = place.path, place.within, place.owner
        state = record.state
        if (
            isinstance(state, tuple)
            and len(state) == 2
            and isinstance(state[1], dict)
            and isinstance(state[0], dict | None)
        ):
            state = {**(state[0] or {}), **state[1]}
        if isinstance(state, dict):
            module = all(isinstance(state.get(key), dict) for key in MODULE_PARTS)
            passing = state.get("_non_persistent_buffers_set") if module else None
            left_out = passing if isinstance(passing, set) else ()
            for key, item in state.items():
                if key in MODULE_PARTS and isinstance(item, dict):
                    for name, inner in item.items():
                        if key != "_buffers" or name not in left_out:
                            yield _Place(self._under(path, name), inner, within, owner)
                else:
                    mine = len(path) if module and owner is None else owner
                    yield _Place(self._under(path, key), item, within, mine)
        elif isinstance(state, list | tuple | Record):
            yield _Place(path, state, within, owner)
        yield from (_Place((*path, str(index)), item, within, owner) for index, item in enumerate(record.items))
        yield from (_Place(self._under(path, key), item, within, owner) for key, item in record.pairs)

    def _under(self, path: Path, key: Any) -> Path:
        """The path of a dictionary's value."""
        name = key if isinstance(key, str) else _text(key)
        if len(name) > NAME_LENGTH:
            why = f"a key has {counted(len(name), 'character')}"
            raise LimitError("E-PKL-NAME", self.file, why, hint="Tensor names of this length are not read")
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
