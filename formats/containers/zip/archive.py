"""Zip reader: members in place, only if the directory and the members' own headers agree.

Every byte of the file has to belong to exactly one record, so that nothing can hide before, between or after the
members.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass

from ....runtime.base.errors import LimitError
from ....runtime.base.units import counted
from ....runtime.tensor.file import Source
from ....runtime.tensor.storage import Region, Stream
from .directory import Listed, entries, find
from .inflate import CHUNK, Inflater, compare
from .records import (
    DESCRIPTOR_MAGIC,
    END_MAGIC,
    LOCAL,
    LOCAL_MAGIC,
    MAX_MEMBERS,
    STORED,
    STREAMED,
    Member,
    malformed,
    widened,
)

MAX_DIRECTORY = 32 * 2**20
FREE_RATIO = 1 << 20
"""Inflated bytes up to which any compression ratio is accepted."""


def looks_like(source: Source) -> bool:
    """Whether a file begins like a zip archive, including an empty one."""
    return source.head(4) in (LOCAL_MAGIC, END_MAGIC)


@dataclass(frozen=True, slots=True)
class _Placed:
    member: Member
    streamed: bool


class Archive:
    """The members of a zip file by name, in directory order; folders are checked and omitted.

    Args:
        source: the file; its directory is charged to the file's budget. Nothing but headers is read.
        deflated: whether `storage` gives compressed members; `read` always does.

    Raises:
        FormatError, UnsupportedError, UnsafeFileError, LimitError: codes ``E-ZIP-...``.
    """

    def __init__(self, source: Source, *, deflated: bool = True) -> None:
        self.source = source
        self.deflated = deflated
        start, count, size = find(source)
        if count > MAX_MEMBERS or size > MAX_DIRECTORY:
            why = f"{counted(count, 'member')} in a directory of {counted(size, 'byte')} are too many"
            most = f"at most {MAX_MEMBERS:,} in {MAX_DIRECTORY:,}"
            raise LimitError(
                "E-ZIP-MEMBERS", source.path, why, at=start, expected=most, hint="Save the tensors in several files"
            )
        source.budget.entry(count, "archive members", at=start)
        source.budget.charge(size, "the archive's directory", at=start)
        placed: dict[str, _Placed] = {}
        for listed in entries(source, start, count, size):
            if listed.name in placed:
                raise malformed(source, "E-ZIP-TWICE", f"two members are called {listed.name!r}", at=listed.at)
            placed[listed.name] = _Placed(_located(source, listed, start), bool(listed.flags & STREAMED))
        _check_cover(source, list(placed.values()), start)
        self.members = {name: each.member for name, each in placed.items() if not name.endswith("/")}

    def storage(self, member: Member) -> Region | Stream:
        """The member's bytes; a compressed one is inflated when it is read, its size and checksum being compared at its
        end."""
        if member.method == STORED:
            return Region(self.source, member.offset, member.nbytes)
        if not self.deflated:
            why = f"member {member.name!r} is compressed, which tensors of this format never are"
            raise malformed(
                self.source, "E-ZIP-DEFLATED", why, at=member.at, hint="Pack the archive again without compression"
            )
        self._check_ratio(member)
        return Stream(member.nbytes, lambda: Inflater(self.source, member).read)

    def read(self, member: Member, limit: int | None = None) -> bytes:
        """All bytes of a member, charged to the file's budget, the checksum compared; LimitError above `limit`
        bytes."""
        if limit is not None and member.nbytes > limit:
            why = f"member {member.name!r} has {counted(member.nbytes, 'byte')}"
            raise LimitError(
                "E-ZIP-SIZE",
                self.source.path,
                why,
                at=member.at,
                expected=f"at most {limit:,}",
                hint="No honest file needs more",
            )
        self.source.budget.charge(member.nbytes, f"member {member.name!r}", at=member.at)
        if member.method != STORED:
            self._check_ratio(member)
            return Inflater(self.source, member).read(member.nbytes)
        data = self.source.read(member.offset, member.nbytes)
        compare(self.source, member, zlib.crc32(data))
        return data

    def check_crc(self, member: Member) -> None:
        """Read a member completely; FormatError if its checksum differs."""
        if member.method != STORED:
            self._check_ratio(member)
            inflater, left = Inflater(self.source, member), member.nbytes
            while inflater.read(min(CHUNK, left)):
                left -= min(CHUNK, left)
            return
        crc = 0
        for start in range(0, member.nbytes, CHUNK):
            crc = zlib.crc32(self.source.read(member.offset + start, min(CHUNK, member.nbytes - start)), crc)
        compare(self.source, member, crc)

    def _check_ratio(self, member: Member) -> None:
        most = max(FREE_RATIO, member.compressed * self.source.budget.limits.zip_ratio)
        if member.nbytes > most:
            why = f"{counted(member.compressed, 'byte')} of member {member.name!r} would inflate to {member.nbytes:,}"
            hint = "If you trust the file, raise it with --limit zip-ratio=1100"
            raise LimitError(
                "E-ZIP-RATIO", self.source.path, why, at=member.at, expected=f"at most {most:,}", hint=hint
            )


def _located(source: Source, listed: Listed, directory: int) -> Member:
    """The member of an entry of the directory at `directory`, checked against its local header."""
    at, length = listed.at, LOCAL.size + len(listed.raw_name)
    if at + length > directory:
        raise malformed(
            source, "E-ZIP-RANGE", f"the header of member {listed.name!r} would overlap the directory", at=at
        )
    head = source.read(at, length)
    magic, _, flags, method, _, _, crc, compressed, nbytes, name_length, extra_length = LOCAL.unpack_from(head)
    offset = at + LOCAL.size + name_length + extra_length
    if magic != LOCAL_MAGIC or offset + listed.compressed > directory:
        raise malformed(
            source,
            "E-ZIP-RANGE",
            f"member {listed.name!r} is not where the directory says, or does not fit there",
            at=at,
        )
    sizes = widened((nbytes, compressed), source.read(offset - extra_length, extra_length))
    if sizes is None:
        raise malformed(
            source, "E-ZIP-EXTRA", f"the zip64 sizes in the header of member {listed.name!r} are missing", at=at
        )
    sides = (
        ("name", listed.raw_name, head[LOCAL.size :] if name_length == len(listed.raw_name) else None),
        ("flags", listed.flags, flags),
        ("compression method", listed.method, method),
        ("CRC-32", listed.crc, crc),
        ("size", listed.nbytes, sizes[0]),
        ("compressed size", listed.compressed, sizes[1]),
    )
    for what, expected, found in sides:
        later = listed.flags & STREAMED and found == 0 and what in ("CRC-32", "size", "compressed size")
        if expected != found and not later:
            why = f"the header of member {listed.name!r} has another {what} than the directory"
            raise malformed(source, "E-ZIP-LOCAL", why, at=at, expected=expected, found=found)
    return Member(listed.name, offset, listed.compressed, listed.nbytes, listed.method, listed.crc, listed.comment, at)


def _check_cover(source: Source, placed: list[_Placed], directory: int) -> None:
    """Reject overlapping members, and bytes outside of all records."""
    placed.sort(key=lambda each: each.member.at)
    begins = [*(each.member.at for each in placed), directory]
    if begins[0]:
        raise malformed(source, "E-ZIP-GAP", f"{counted(begins[0], 'byte', verb='precedes')} the first member", at=0)
    for each, following in zip(placed, begins[1:], strict=True):
        end = _end(source, each, following)
        if end > following:
            raise malformed(
                source,
                "E-ZIP-OVERLAP",
                f"member {each.member.name!r} overlaps what follows",
                at=following,
                expected=f"{end:,}",
            )
        if end < following:
            raise malformed(
                source,
                "E-ZIP-GAP",
                f"{counted(following - end, 'byte')} after member {each.member.name!r} belong to nothing",
                at=end,
            )


def _end(source: Source, placed: _Placed, following: int) -> int:
    """Offset after a member, including the data descriptor of a streamed one."""
    member = placed.member
    end = member.offset + member.compressed
    if not placed.streamed or not 12 <= following - end <= 24:
        return end
    found = source.read(end, following - end)
    for magic in (DESCRIPTOR_MAGIC, b""):
        for form in ("<3I", "<I2Q"):
            try:
                record = magic + struct.pack(form, member.crc, member.compressed, member.nbytes)
            except struct.error:  # a size that takes eight bytes
                continue
            if found == record:
                return following
    return end
