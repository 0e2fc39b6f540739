"""PyTorch's legacy stream (0.1.10 to 1.5): a sequence of pickles, followed by the storages.

Source: `_legacy_save` and `_legacy_load` of torch's `torch/serialization.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any

from ....runtime.base.dataclass import dataclass
from ....runtime.base.errors import FormatError
from ....runtime.base.units import counted
from ....runtime.tensor.file import Source
from ....runtime.tensor.storage import Region, Storage
from ..pickle.cursor import DAMAGED, Carrier
from ..pickle.machine import Persistent, Record, Value
from .allowed_names import load
from .tensor_records import Rebuilder, StorageRef, itemsize, part_of, storage_ref

MAGIC = 0x1950A86A20F9469CFC6C
PROTOCOL = 1001
COUNT = 8
APPENDED = "Something was appended to the file, or it is damaged; candle-convert scan looks at all of it"


@dataclass(frozen=True)
class Checkpoint:
    """The contents of a torch file.

    Attributes:
        value: the pickle's, with inert records in it; rebuilder: what makes tensors of them.
        operations: opcodes that it took.
        script: whether it is a TorchScript archive, whose root is the module itself.
        metadata: what our writer put next to the pickle.
    """

    value: Value
    rebuilder: Rebuilder
    operations: int
    script: bool = False
    metadata: Mapping[str, str] = field(default_factory=dict)


def carrier_of(source: Source) -> Carrier:
    """A whole file as the carrier of a pickle."""
    return Carrier(Region(source, 0, source.size), source.path, source.budget)


def read_stream(source: Source, start: int, allowed: frozenset[str]) -> Checkpoint:
    """The checkpoint of a stream whose magic number ends at `start`."""
    carrier = carrier_of(source)
    version = load(carrier, start, allowed)
    if version.value != PROTOCOL:
        found = version.value if isinstance(version.value, int) else type(version.value).__name__
        why = "is of an unknown version of torch's stream format"
        raise FormatError("E-PTH-VERSION", source.path, why, at=start, hint=DAMAGED, expected=PROTOCOL, found=found)
    system = load(carrier, version.end, allowed)
    whole = load(carrier, system.end, allowed)
    keys = load(carrier, whole.end, allowed)
    if (
        not isinstance(keys.value, list)
        or not all(isinstance(key, str | int) for key in keys.value)
        or len(set(keys.value)) < len(keys.value)
    ):
        raise FormatError(
            "E-PTH-KEYS", source.path, "the storage keys are not a list of distinct keys", at=whole.end, hint=DAMAGED
        )
    storages = _Storages(source, keys.value, _storage_sizes(whole.value, source), keys.end)
    return Checkpoint(whole.value, Rebuilder(source.path, storages.locate), whole.operations)


def _storage_sizes(value: Value, source: Source) -> dict[Any, int]:
    """Bytes of an element of each storage; the first mention of a key counts, as in torch."""
    sizes: dict[Any, int] = {}
    seen: set[int] = set()
    pending = [value]
    while pending:
        item = pending.pop()
        if isinstance(item, Persistent):
            if isinstance(item.id, tuple) and item.id and item.id[0] == "storage":
                ref = storage_ref(item, source.path)
                sizes[ref.key] = itemsize(ref.dtype)
            continue
        if id(item) in seen:
            continue
        inner = children(item)
        if inner:
            seen.add(id(item))
            pending.extend(reversed(inner))
    return sizes


def children(value: Value) -> list[Value]:
    """The direct entries of a container or record, without keys."""
    if isinstance(value, dict):
        return list(value.values())
    if isinstance(value, list | tuple):
        return list(value)
    if isinstance(value, Record):
        return [
            *value.arguments,
            *value.keywords.values(),
            value.state,
            *value.items,
            *(item for _, item in value.pairs),
        ]
    return []


class _Storages:
    """The storages at the end of a stream: for each key a count of elements in 8 bytes, then the elements,
    little-endian on every machine."""

    def __init__(self, source: Source, keys: list[Any], sizes: dict[Any, int], at: int) -> None:
        self.source = source
        self.regions: dict[Any, Region] = {}
        for key in keys:
            if key not in sizes:
                raise FormatError(
                    "E-PTH-KEYS", source.path, f"no tensor says what storage {key!r} holds", at=at, hint=DAMAGED
                )
            count = int.from_bytes(source.read(at, COUNT), "little", signed=True)
            left = source.size - at - COUNT
            if count < 0 or count * sizes[key] > left:
                raise FormatError(
                    "E-PTH-STORAGE",
                    source.path,
                    f"storage {key!r} is cut short",
                    at=at,
                    expected=f"{count * sizes[key]:,} bytes",
                    found=f"{left:,}",
                    hint="The file is truncated; download it again",
                )
            self.regions[key] = Region(source, at + COUNT, count * sizes[key])
            at += COUNT + count * sizes[key]
        if at != source.size:
            why = f"{counted(source.size - at, 'byte', verb='follows')} the last storage"
            raise FormatError("E-PTH-TRAILING", source.path, why, at=at, hint=APPENDED)

    def locate(self, ref: StorageRef, persistent: Persistent) -> Storage:
        """The bytes of a storage, or of the view of it that is meant."""
        region = self.regions.get(ref.key)
        need = (ref.first + ref.length) * ref.itemsize
        if region is None or region.nbytes < need:
            found = "none" if region is None else f"{region.nbytes:,}"
            why = f"storage {ref.key!r} is missing or short"
            raise FormatError(
                "E-PTH-STORAGE",
                self.source.path,
                why,
                at=persistent.at,
                hint=DAMAGED,
                expected=f"{counted(need, 'byte')}",
                found=found,
            )
        return part_of(region, ref.first * ref.itemsize, ref.length * ref.itemsize)
