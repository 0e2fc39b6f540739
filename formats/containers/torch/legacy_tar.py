"""PyTorch's first format (until 0.1.9): a tar of `storages`, of `tensors` that view them, and of a `pickle` that refers
to the tensors.

Source: `legacy_load` in torch's `torch/serialization.py`.
"""

from __future__ import annotations

from typing import Any

from ....runtime.base.errors import FormatError
from ....runtime.base.units import counted
from ....runtime.tensor.file import Source
from ....runtime.tensor.storage import Region, Storage
from .. import tar
from ..pickle.cursor import Carrier
from ..pickle.machine import Global, Persistent, Record
from .allowed_names import Loaded, load
from .legacy_stream import COUNT, Checkpoint
from .tensor_records import MAX_DIMS, STORAGE_CLASSES, Rebuilder, StorageRef, itemsize

MEMBERS = ("pickle", "tensors", "storages")
TENSOR = "_rebuild_tensor"


def read_tar(source: Source, allowed: frozenset[str]) -> Checkpoint:
    """The checkpoint of a tar archive."""
    parts = tar.members(source)
    missing = [name for name in MEMBERS if name not in parts]
    if missing:
        why = f"is a tar archive without {missing[0]!r}"
        raise FormatError("E-PTH-TAR", source.path, why, hint="Unpack it first, if the model is inside")
    reader = _Tar(source, parts, allowed)
    reader.read_storages()
    tensors = reader.read_tensors()
    whole = reader.load("pickle", 0)
    return Checkpoint(whole.value, Rebuilder(f"{source.path}!pickle", reader.locate, tensors=tensors), whole.operations)


class _Tar:
    """The members; storages by key, with the name of their class."""

    def __init__(self, source: Source, parts: dict[str, Region], allowed: frozenset[str]) -> None:
        self.source = source
        self.parts = parts
        self.allowed = allowed
        self.storages: dict[int, tuple[Global, Region]] = {}

    def load(self, member: str, at: int) -> Loaded:
        """The pickle at a position of a member."""
        return load(Carrier(self.parts[member], f"{self.source.path}!{member}", self.source.budget), at, self.allowed)

    def malformed(self, member: str, why: str, at: int) -> FormatError:
        return FormatError("E-PTH-TAR", f"{self.source.path}!{member}", why, at=at, hint="The file is damaged")

    def _integers(self, member: str, at: int, count: int) -> list[int]:
        """Little-endian 8-byte integers."""
        if at + 8 * count > self.parts[member].nbytes:
            raise self.malformed(member, "is cut short", at)
        data = self.parts[member].read(at, at + 8 * count)
        return [int.from_bytes(data[index : index + 8], "little", signed=True) for index in range(0, 8 * count, 8)]

    def _entries(self, member: str) -> tuple[int, int]:
        """The count that a member starts with, and the position after it."""
        count = self.load(member, 0)
        if type(count.value) is not int or not 0 <= count.value <= self.parts[member].nbytes:
            raise self.malformed(member, "does not start with a count", 0)
        return count.value, count.end

    def read_storages(self) -> None:
        """Key, location and class of each storage, its length, its bytes; then views: key, root key, first element,
        length."""
        count, at = self._entries("storages")
        part = self.parts["storages"]
        for _ in range(count):
            entry = self.load("storages", at)
            key, _, kind = (
                entry.value if isinstance(entry.value, tuple) and len(entry.value) == 3 else (None, None, None)
            )
            dtype = STORAGE_CLASSES.get(kind.name) if isinstance(kind, Global) else None
            if dtype is None or not isinstance(kind, Global) or type(key) is not int:
                raise self.malformed("storages", "a storage lacks its key or class", at)
            (length,) = self._integers("storages", entry.end, 1)
            start, size = entry.end + COUNT, length * itemsize(dtype)
            if length < 0 or size > part.nbytes - start:
                raise self.malformed("storages", f"storage {key} of {counted(size, 'byte')} is cut short", at)
            self.storages[key] = (kind, Region(self.source, part.offset + start, size))
            at = start + size
        views = self.load("storages", at)
        if not isinstance(views.value, list):
            raise self.malformed("storages", "lacks its list of views", at)
        for view in views.value:
            self._add_view(view, at)

    def _add_view(self, view: Any, at: int) -> None:
        if (
            not isinstance(view, tuple | list)
            or len(view) != 4
            or not all(type(number) is int for number in view)
            or view[1] not in self.storages
        ):
            raise self.malformed("storages", "a view lacks its root", at)
        key, root, first, length = view
        kind, region = self.storages[root]
        size = itemsize(STORAGE_CLASSES[kind.name])
        if first < 0 or length < 0 or (first + length) * size > region.nbytes:
            raise self.malformed("storages", "a view goes past its storage", at)
        self.storages[key] = (kind, Region(region.source, region.offset + first * size, length * size))

    def read_tensors(self) -> dict[int, Record]:
        """Key, storage key and class of each tensor; then the number of its dimensions, lengths, strides and offset."""
        count, at = self._entries("tensors")
        tensors: dict[int, Record] = {}
        for _ in range(count):
            entry = self.load("tensors", at)
            key, storage_key = (
                entry.value[:2] if isinstance(entry.value, tuple) and len(entry.value) == 3 else (None, None)
            )
            dims = self._integers("tensors", entry.end, 1)[0] & 0xFFFFFFFF
            if type(key) is not int or dims > MAX_DIMS or storage_key not in self.storages:
                raise self.malformed("tensors", "a tensor lacks its key, shape or storage", at)
            numbers = self._integers("tensors", entry.end + 8, 2 * dims + 1)
            kind, region = self.storages[storage_key]
            length = region.nbytes // itemsize(STORAGE_CLASSES[kind.name])
            reference = Persistent(("storage", kind, storage_key, "cpu", length), at)
            arguments = (reference, numbers[-1], tuple(numbers[:dims]), tuple(numbers[dims : 2 * dims]))
            tensors[key] = Record(Global("torch._utils", TENSOR, at), arguments, {}, at)
            at = entry.end + 8 + 8 * len(numbers)
        return tensors

    def locate(self, ref: StorageRef, persistent: Persistent) -> Storage:
        """The bytes of a storage; its reference was made from it."""
        return self.storages[ref.key][1]
