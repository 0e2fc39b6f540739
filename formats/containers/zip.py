"""Zip archives: members read in place and only when both of an archive's directories agree on them; archives laid out for writing.

Source: PKWARE's APPNOTE 6.3 (records 4.3.7 to 4.3.16, zip64 extra field 4.5.3). Every byte of the file must belong to exactly one
record, so that nothing can hide between members or behind the end.
"""

from __future__ import annotations

import itertools
import re
import stat
import struct
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from ...runtime.errors import FormatError, LimitError, UnsafeFileError, UnsupportedError
from ...runtime.source import Source
from ...runtime.storage import Region, Stream

LOCAL = struct.Struct("<4s5H3I2H")
CENTRAL = struct.Struct("<4s6H3I5H2I")
END = struct.Struct("<4s4H2IH")
END64 = struct.Struct("<4sQ2H2I4Q")
LOCATOR = struct.Struct("<4sIQI")
LOCAL_MAGIC, CENTRAL_MAGIC, END_MAGIC, END64_MAGIC, LOCATOR_MAGIC = b"PK\3\4", b"PK\1\2", b"PK\5\6", b"PK\6\6", b"PK\6\7"
STORED, DEFLATED = 0, 8
ENCRYPTED, DESCRIPTOR, UTF8 = 0x2041, 0x8, 0x800
DESCRIPTOR_SIZES = (12, 16, 20, 24)
MAX_MEMBERS = 100_000
FREE_RATIO = 1 << 20
"""Inflated bytes up to which any compression ratio is accepted."""


@dataclass(frozen=True)
class Member:
    """A member of an archive.

    Attributes:
        offset: where its bytes begin; compressed: how many there are; nbytes: how many they are when inflated.
        method: 0 stored, 8 deflated. crc: CRC-32 of the inflated bytes. at: where its local header begins.
    """

    name: str
    offset: int
    compressed: int
    nbytes: int
    method: int
    crc: int
    comment: bytes
    at: int


def looks_like(source: Source) -> bool:
    """Whether the file begins like an archive, an empty one included."""
    return source.head(4) in (LOCAL_MAGIC, END_MAGIC)


class Archive:
    """The members of a zip file, by name, in the order of the central directory."""

    def __init__(self, source: Source, *, deflated: bool = True) -> None:
        """Read and check all headers. Without `deflated`, compressed members are refused when they are read."""
        self.source = source
        self.deflated = deflated
        start, count, size = self._end()
        if count > MAX_MEMBERS:
            raise LimitError("E-ZIP-MEMBERS", source.path, f"{count:,} members, at most {MAX_MEMBERS:,} are read")
        source.budget.charge(size, "the archive's directory", at=start)
        self.members: dict[str, Member] = {}
        spans = []
        for member, flags in self._central(source.read(start, size), start, count):
            if member.name in self.members:
                raise FormatError("E-ZIP-TWICE", source.path, f"two members are called {member.name!r}", at=member.at)
            located = self._local(member, flags)
            self.members[member.name] = located
            spans.append((located.at, located.offset + located.compressed, flags))
        self._check_spans(spans, start)

    def storage(self, member: Member) -> Region | Stream:
        """The member's bytes, inflated when they are read."""
        if member.method == STORED:
            return Region(self.source, member.offset, member.nbytes)
        if not self.deflated:
            why = f"member {member.name!r} is compressed, which this format does not do"
            raise FormatError("E-ZIP-DEFLATED", self.source.path, why, at=member.at)
        return Stream(member.nbytes, lambda: _inflater(self.source, member))

    def read(self, member: Member, limit: int | None = None) -> bytes:
        """All bytes of a member, at most `limit`, its checksum compared."""
        if limit is not None and member.nbytes > limit:
            raise LimitError("E-ZIP-SIZE", self.source.path, f"member {member.name!r} has {member.nbytes:,} bytes, at most {limit:,} are read")
        self.source.budget.charge(member.nbytes, f"member {member.name!r}", at=member.at)
        data = self.storage(member).read(0, member.nbytes)
        self._compare(member, zlib.crc32(data))
        return data

    def check_crc(self, member: Member) -> None:
        """Read a member through and compare its checksum."""
        storage, crc = self.storage(member), 0
        for start in range(0, member.nbytes, 1 << 20):
            crc = zlib.crc32(storage.read(start, min(member.nbytes, start + (1 << 20))), crc)
        self._compare(member, crc)

    def _compare(self, member: Member, crc: int) -> None:
        if crc != member.crc:
            why = f"member {member.name!r} is damaged: its CRC-32 differs"
            raise FormatError("E-ZIP-CRC", self.source.path, why, at=member.offset, expected=f"{member.crc:08x}", found=f"{crc:08x}")

    def _end(self) -> tuple[int, int, int]:
        """Where the central directory begins, how many members it has and how many bytes."""
        source = self.source
        size = min(source.size, END.size + 0xFFFF)
        tail = source.read(source.size - size, size)
        ends = [match.start() for match in re.finditer(re.escape(END_MAGIC), tail) if _closes(tail, match.start())]
        if not ends:
            raise FormatError(
                "E-ZIP-END", source.path, "the archive has no end record", at=source.size, hint="The download is cut short, or something was appended"
            )
        if len(ends) > 1:
            raise FormatError("E-ZIP-ENDS", source.path, f"the archive has {len(ends)} end records", at=source.size - size + ends[0])
        at = source.size - size + ends[0]
        _, disk, first_disk, here, count, length, start, _ = END.unpack_from(tail, ends[0])
        if disk or first_disk or here != count:
            raise UnsupportedError("E-ZIP-DISKS", source.path, "the archive is one part of several", at=at)
        end64 = self._end64(at)
        if end64 is not None:
            for wide, narrow, mark in zip(end64[1:], (count, length, start), (0xFFFF, 0xFFFFFFFF, 0xFFFFFFFF), strict=True):
                if narrow not in (mark, wide):
                    raise FormatError("E-ZIP-ZIP64", source.path, "the two end records disagree", at=at, expected=wide, found=narrow)
            at, count, length, start = end64
        if start + length != at or count * CENTRAL.size > length:
            why = f"a directory of {count:,} members in {length:,} bytes at {start:,} does not end where the end record begins"
            raise FormatError("E-ZIP-DIRECTORY", source.path, why, at=at, hint="Bytes were put before or into the archive")
        return start, count, length

    def _end64(self, at: int) -> tuple[int, int, int, int] | None:
        """The zip64 end record before `at`: its place, members, directory length and directory start; None without one."""
        source = self.source
        if at < LOCATOR.size or source.read(at - LOCATOR.size, 4) != LOCATOR_MAGIC:
            return None
        _, _, place, _ = LOCATOR.unpack(source.read(at - LOCATOR.size, LOCATOR.size))
        if place + END64.size != at - LOCATOR.size:
            raise FormatError("E-ZIP-ZIP64", source.path, "the zip64 end record is not where its locator says", at=at - LOCATOR.size)
        magic, length, _, _, disk, first_disk, here, count, size, start = END64.unpack(source.read(place, END64.size))
        if magic != END64_MAGIC or length != END64.size - 12 or disk or first_disk or here != count:
            raise FormatError("E-ZIP-ZIP64", source.path, "the zip64 end record is malformed", at=place)
        return place, count, size, start

    def _central(self, data: bytes, start: int, count: int) -> Iterator[tuple[Member, int]]:
        """The members as the central directory tells them, with their flags; `offset` is not known yet."""
        source, position = self.source, 0
        source.budget.entry(count, "archive members", at=start)
        for _ in range(count):
            if len(data) - position < CENTRAL.size or data[position : position + 4] != CENTRAL_MAGIC:
                raise FormatError("E-ZIP-DIRECTORY", source.path, "a directory entry is malformed", at=start + position)
            fields = CENTRAL.unpack_from(data, position)
            (_, made_by, _, flags, method, _, _, crc, compressed, nbytes, name_length, extra_length, comment_length, disk, _, external, at) = fields
            ends = [position + CENTRAL.size]
            for length in (name_length, extra_length, comment_length):
                ends.append(ends[-1] + length)
            if ends[-1] > len(data):
                raise FormatError("E-ZIP-DIRECTORY", source.path, "a directory entry is cut short", at=start + position)
            name, extra, comment = (data[first:last] for first, last in itertools.pairwise(ends))
            wide = _zip64(extra, (nbytes, compressed, at))
            if wide is None or disk:
                raise FormatError("E-ZIP-ZIP64", source.path, "a member's zip64 sizes are malformed", at=start + position)
            nbytes, compressed, at = wide
            member = Member(self._name(name, flags, start + position), 0, compressed, nbytes, method, crc, comment, at)
            self._refuse(member, flags, made_by >> 8 == 3 and stat.S_ISLNK(external >> 16))
            yield member, flags
            position = ends[-1]
        if position != len(data):
            raise FormatError("E-ZIP-DIRECTORY", source.path, "bytes follow the last directory entry", at=start + position)

    def _name(self, name: bytes, flags: int, at: int) -> str:
        try:
            text = name.decode("utf-8" if flags & UTF8 or not name.isascii() else "ascii")
        except UnicodeDecodeError as error:
            raise FormatError("E-ZIP-NAME", self.source.path, f"the member name {name!r} is not UTF-8", at=at) from error
        parts = text.split("/")
        if not text or text.startswith("/") or "\\" in text or "\0" in text or ".." in parts or ":" in parts[0]:
            raise UnsafeFileError("E-ZIP-PATH", self.source.path, f"the member name {text!r} leads out of the archive", at=at)
        return text

    def _refuse(self, member: Member, flags: int, link: bool) -> None:
        path, limit = self.source.path, self.source.budget.limits.zip_ratio
        if link:
            raise UnsafeFileError("E-ZIP-LINK", path, f"member {member.name!r} is a symbolic link", at=member.at)
        if flags & ENCRYPTED:
            raise UnsupportedError("E-ZIP-ENCRYPTED", path, f"member {member.name!r} is encrypted", at=member.at)
        if member.method not in (STORED, DEFLATED):
            raise UnsupportedError("E-ZIP-METHOD", path, f"member {member.name!r} is compressed by method {member.method}", at=member.at)
        if member.method == STORED and member.nbytes != member.compressed:
            why = f"member {member.name!r} is stored and has two sizes"
            raise FormatError("E-ZIP-SIZE", path, why, at=member.at, expected=member.nbytes, found=member.compressed)
        if member.nbytes > max(FREE_RATIO, limit * member.compressed):
            why = f"member {member.name!r} says that {member.compressed:,} bytes inflate to {member.nbytes:,}"
            raise LimitError("E-ZIP-RATIO", path, why, at=member.at, hint="If you trust the file, raise it with --limit zip_ratio=1000")

    def _local(self, member: Member, flags: int) -> Member:
        """The member with its offset, after its local header agreed."""
        source = self.source
        head = source.read(member.at, min(LOCAL.size, max(0, source.size - member.at)))
        if len(head) < LOCAL.size or head[:4] != LOCAL_MAGIC:
            raise FormatError("E-ZIP-LOCAL", source.path, f"member {member.name!r} has no local header where the directory says", at=member.at)
        _, _, local_flags, method, _, _, crc, compressed, nbytes, name_length, extra_length = LOCAL.unpack(head)
        rest = source.read(member.at + LOCAL.size, name_length + extra_length)
        wide = _zip64(rest[name_length:], (nbytes, compressed))
        later = bool(flags & DESCRIPTOR)
        sizes = [(crc, member.crc), *(zip(wide, (member.nbytes, member.compressed), strict=True) if wide is not None else [(0, 1)])]
        agree = all(local == central or (later and local == 0) for local, central in sizes)
        if not agree or local_flags != flags or method != member.method or rest[:name_length].decode("utf-8", "replace") != member.name:
            why = f"member {member.name!r} is told differently by its local header and by the directory"
            raise FormatError("E-ZIP-LOCAL", source.path, why, at=member.at)
        offset = member.at + LOCAL.size + name_length + extra_length
        return Member(member.name, offset, member.compressed, member.nbytes, method, member.crc, member.comment, member.at)

    def _check_spans(self, spans: list[tuple[int, int, int]], end: int) -> None:
        """Members must follow each other from the file's start to the directory; only a data descriptor may stand between."""
        position, later = 0, False
        for start, stop, flags in [*sorted(spans), (end, end, 0)]:
            if start < position or stop > end:
                raise FormatError("E-ZIP-OVERLAP", self.source.path, "members of the archive overlap", at=start)
            if start - position not in ((0, *DESCRIPTOR_SIZES) if later else (0,)):
                raise FormatError("E-ZIP-GAP", self.source.path, f"{start - position:,} bytes belong to no member", at=position)
            position, later = stop, bool(flags & DESCRIPTOR)


def _closes(tail: bytes, at: int) -> bool:
    """Whether an end record at `at`, with its comment, ends the file."""
    return at + END.size <= len(tail) and at + END.size + int.from_bytes(tail[at + 20 : at + 22], "little") == len(tail)


def _zip64(extra: bytes, narrow: tuple[int, ...]) -> tuple[int, ...] | None:
    """Sizes and offset, those that are 0xFFFFFFFF taken from the zip64 extra field; None when that is malformed."""
    position, wide = 0, b""
    while position + 4 <= len(extra):
        kind, length = struct.unpack_from("<2H", extra, position)
        if kind == 1:
            wide = extra[position + 4 : position + 4 + length]
        position += 4 + length
    values, taken = [], 0
    for value in narrow:
        if value == 0xFFFFFFFF:
            if taken + 8 > len(wide):
                return None
            value = int.from_bytes(wide[taken : taken + 8], "little")
            taken += 8
        values.append(value)
    return tuple(values)


def _inflater(source: Source, member: Member) -> Callable[[int], bytes]:
    """A function that gives the next bytes of a deflated member, and never more than the directory promised."""
    machine = zlib.decompressobj(-15)
    position, given = member.offset, 0

    def following(nbytes: int) -> bytes:
        nonlocal position, given
        parts, missing = [], min(nbytes, member.nbytes - given)
        while missing:
            data = machine.unconsumed_tail
            if not data and not machine.eof:
                size = min(1 << 16, member.offset + member.compressed - position)
                data = source.read(position, size)
                position += size
            try:
                part = machine.decompress(data, missing) if data else b""
            except zlib.error as error:
                raise FormatError("E-ZIP-DEFLATE", source.path, f"member {member.name!r} is damaged: {error}", at=position) from error
            if not part and (machine.eof or not data):
                why = f"member {member.name!r} ends early"
                raise FormatError("E-ZIP-DEFLATE", source.path, why, at=position, expected=f"{member.nbytes:,} bytes", found=f"{given:,}")
            parts.append(part)
            missing -= len(part)
            given += len(part)
        return b"".join(parts)

    return following
