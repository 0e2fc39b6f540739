"""PyTorch zip archives: `data.pkl` in a folder of any name, one member per storage; TorchScript code is never read.

Source: `_save` and `_load` of torch's `torch/serialization.py`; torch's `caffe2/serialize/inline_container.h` for the
members.
"""

from __future__ import annotations

from typing import Any

from ....runtime.base.errors import FormatError, UnsupportedError
from ....runtime.base.units import counted
from ....runtime.base.untrusted.json import parse
from ....runtime.tensor.file import Source
from ....runtime.tensor.storage import Storage
from ..pickle.cursor import DAMAGED, Carrier
from ..pickle.machine import Persistent
from ..zip import Archive, Member
from .allowed_names import load
from .legacy_stream import APPENDED, Checkpoint
from .tensor_records import Rebuilder, StorageRef, part_of

PICKLE = "data.pkl"
CONSTANTS = "constants.pkl"
METADATA = "metadata.json"
BYTE_ORDER = "byteorder"
METADATA_LIMIT = 64 * 2**20
BYTE_ORDER_LIMIT = 64
SHOWN = 5


def read_archive(source: Source, allowed: frozenset[str]) -> Checkpoint:
    """The checkpoint of an archive."""
    archive = Archive(source, deflated=False)
    member = pickle_member(archive)
    root = member.name.removesuffix(PICKLE)
    script = root + CONSTANTS in archive.members
    if member.crc:
        archive.check_crc(member)
    carrier = Carrier(archive.storage(member), f"{source.path}!{member.name}", source.budget)
    loaded = load(carrier, 0, allowed, script=script)
    if loaded.end != member.nbytes:
        why = f"{counted(member.nbytes - loaded.end, 'byte', verb='follows')} the end of the pickle"
        raise FormatError("E-PKL-TRAILING", carrier.file, why, at=loaded.end, hint=APPENDED)
    members = _Members(archive, root)
    rebuilder = Rebuilder(carrier.file, members.locate, big_endian=_big_endian(archive, root))
    return Checkpoint(loaded.value, rebuilder, loaded.operations, script, _metadata(archive, root))


def pickle_member(archive: Archive) -> Member:
    """The member ``NAME/data.pkl``."""
    path, names = archive.source.path, archive.members
    found = [name for name in names if name == PICKLE or (name.endswith(f"/{PICKLE}") and name.count("/") == 1)]
    if len(found) == 1:
        return names[found[0]]
    shown = ", ".join(repr(name) for name in list(names)[:SHOWN])
    if found:
        why = f"is a zip archive with {counted(len(found), 'member')} {PICKLE}"
        raise FormatError("E-PTH-ARCHIVE", path, why, hint="It is damaged, or two models in one")
    if any(name.endswith("/model.json") for name in names):
        why = "is a TorchScript archive of torch 1.0 to 1.3"
        raise UnsupportedError("E-PTH-SCRIPT", path, why, hint="Load and save it with torch 1.4 to 2.x")
    raise FormatError(
        "E-PTH-ARCHIVE", path, f"is a zip archive without {PICKLE}, so no torch file; it holds {shown or 'nothing'}",
        hint="Unpack it first, if the model is inside"
    )  # fmt: skip


class _Members:
    """The storages of an archive."""

    def __init__(self, archive: Archive, root: str) -> None:
        self.archive = archive
        self.root = root

    def locate(self, ref: StorageRef, persistent: Persistent) -> Storage:
        """The member ``data/KEY``, as many bytes as the reference says."""
        name, need = f"{self.root}data/{ref.key}", ref.count * ref.itemsize
        member = self.archive.members.get(name)
        if member is None or member.nbytes < need:
            file, found = (
                f"{self.archive.source.path}!{self.root}{PICKLE}",
                "none" if member is None else f"{member.nbytes:,}",
            )
            why = f"the storage {name!r} is missing or short"
            raise FormatError(
                "E-PTH-STORAGE",
                file,
                why,
                at=persistent.at,
                hint=DAMAGED,
                expected=f"{counted(need, 'byte')}",
                found=found,
            )
        return part_of(self.archive.storage(member), ref.first * ref.itemsize, ref.length * ref.itemsize)


def _read(archive: Archive, member: Member, limit: int) -> bytes:
    """The bytes of a small member; its checksum may be 0, since torch can omit checksums."""
    if member.crc or member.nbytes > limit:
        return archive.read(member, limit)
    return bytes(archive.storage(member).read(0, member.nbytes))


def _big_endian(archive: Archive, root: str) -> bool:
    """Whether the storages are big-endian; archives from before torch 2.1 do not say so and are little-endian."""
    member = archive.members.get(root + BYTE_ORDER)
    if member is None:
        return False
    order = _read(archive, member, BYTE_ORDER_LIMIT)
    if order not in (b"little", b"big"):
        path, why = archive.source.path, "has an unknown byte order"
        raise FormatError(
            "E-PTH-BYTEORDER", path, why, at=member.offset, hint=DAMAGED, expected="little or big", found=order
        )
    return order == b"big"


def _metadata(archive: Archive, root: str) -> dict[str, str]:
    """The metadata that our writer stored next to the weights; torch skips it. A member of that name that is not ours
    is left alone."""
    member = archive.members.get(root + METADATA)
    if member is None:
        return {}
    value: Any = parse(_read(archive, member, METADATA_LIMIT), archive.source, member.offset, "E-PTH-METADATA")
    strings = isinstance(value, dict) and all(isinstance(text, str) for text in value.values())
    return value if strings else {}
