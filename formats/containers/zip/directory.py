"""Zip central directory: located from the end records, read without reading members."""

from __future__ import annotations

import itertools
import stat
import struct
from collections.abc import Iterator
from dataclasses import dataclass

from ....runtime.base.errors import UnsafeFileError, UnsupportedError
from ....runtime.base.units import counted
from ....runtime.tensor.file import Source
from .records import (
    CENTRAL,
    CENTRAL_MAGIC,
    DEFLATED,
    ENCRYPTED,
    END,
    END64,
    END64_MAGIC,
    END_MAGIC,
    LOCATOR,
    LOCATOR_MAGIC,
    SATURATED,
    SATURATED16,
    STORED,
    UNICODE_PATH,
    UTF8,
    blocks,
    malformed,
    why_unsafe,
    widened,
)


@dataclass(frozen=True, slots=True)
class Listed:
    """An entry of the central directory; `at` is the expected offset of the local header."""

    raw_name: bytes
    name: str
    flags: int
    method: int
    crc: int
    compressed: int
    nbytes: int
    at: int
    comment: bytes


def find(source: Source) -> tuple[int, int, int]:
    """Offset, number of entries and length of the directory, which must end where the end records begin."""
    at = _end_record(source)
    _, disk, first_disk, here, count, size, start, _ = END.unpack(source.read(at, END.size))
    end = at
    locator = _record(source, at - LOCATOR.size, LOCATOR, LOCATOR_MAGIC)
    if locator is not None:
        end, (here, count, size, start) = _zip64(source, at - LOCATOR.size, locator, (here, count, size, start))
    elif SATURATED in (size, start) or SATURATED16 in (here, count):
        raise malformed(source, "E-ZIP-END64", "the zip64 end record is missing", at=at)
    if disk not in (0, SATURATED16) or first_disk not in (0, SATURATED16) or here != count:
        raise UnsupportedError(
            "E-ZIP-DISKS", source.path, "the archive is one part of several", at=at, hint="Join the parts first"
        )
    if start + size != end or count * CENTRAL.size > size:
        why = (
            f"the directory of "
            f"{counted(count, 'member')} in {counted(size, 'byte')} does not end where the end record begins"
        )
        raise malformed(source, "E-ZIP-DIRECTORY", why, at=at, expected=f"{end:,}", found=f"{start + size:,}")
    return start, count, size


def _end_record(source: Source) -> int:
    start = max(0, source.size - END.size - SATURATED16)
    tail = source.read(start, source.size - start)
    index = tail.rfind(END_MAGIC)
    if index < 0 or len(tail) - index < END.size:
        hint = "The file is truncated; download it again"
        raise malformed(source, "E-ZIP-END", "the archive's end record is missing", at=source.size, hint=hint)
    if not _reaches_end(tail, index):
        raise malformed(
            source, "E-ZIP-TRAILING", "other bytes follow the end record, or its comment is cut short", at=start + index
        )
    earlier = tail.find(END_MAGIC)
    while earlier < index:
        if _reaches_end(tail, earlier):
            raise malformed(source, "E-ZIP-END-TWICE", "the archive has two end records", at=start + earlier)
        earlier = tail.find(END_MAGIC, earlier + 1)
    return start + index


def _reaches_end(tail: bytes, index: int) -> bool:
    return index + END.size + int.from_bytes(tail[index + END.size - 2 : index + END.size], "little") == len(tail)


def _record(source: Source, at: int, form: struct.Struct, magic: bytes) -> tuple[int, ...] | None:
    """The fields of the record at `at`, or None if it is another record."""
    if at < 0:
        return None
    found, *numbers = form.unpack(source.read(at, form.size))
    return tuple(numbers) if found == magic else None


def _zip64(source: Source, at: int, locator: tuple[int, ...], small: tuple[int, ...]) -> tuple[int, list[int]]:
    """Offset of the zip64 end record, and its counts and sizes; it must precede its locator at `at`."""
    position = at - END64.size
    record = _record(source, position, END64, END64_MAGIC)
    disk, where, disks = locator
    if record is None or where != position or disk or disks > 1:
        raise malformed(
            source,
            "E-ZIP-END64",
            "the zip64 end record is not where its locator says",
            at=at,
            expected=position,
            found=where,
        )
    length, _, _, disk, first_disk, *large = record
    if length != END64.size - 12 or disk or first_disk:
        raise malformed(source, "E-ZIP-END64", "the zip64 end record is not of the plain kind", at=position)
    for number, value, limit in zip(small, large, (SATURATED16, SATURATED16, SATURATED, SATURATED), strict=True):
        if number not in (value, limit):
            raise malformed(
                source,
                "E-ZIP-END64",
                "the two end records differ",
                at=position,
                expected=f"{number:,}",
                found=f"{value:,}",
            )
    return position, large


def entries(source: Source, start: int, count: int, size: int) -> Iterator[Listed]:
    """The directory's entries in order, each validated separately."""
    data, position = source.read(start, size), 0
    for _ in range(count):
        if not data.startswith(CENTRAL_MAGIC, position) or size - position < CENTRAL.size:
            raise malformed(source, "E-ZIP-DIRECTORY", "an entry of the directory is missing", at=start + position)
        fields = CENTRAL.unpack_from(data, position)
        at, position = start + position, position + CENTRAL.size
        ends = list(itertools.accumulate(fields[10:13], initial=position))
        position = ends[-1]
        if position > size:
            raise malformed(source, "E-ZIP-DIRECTORY", "an entry of the directory is cut short", at=at)
        name, extra, comment = (data[first:last] for first, last in itertools.pairwise(ends))
        yield _listed(source, at, fields, name, extra, comment)
    if position != size:
        raise malformed(
            source,
            "E-ZIP-DIRECTORY",
            f"{counted(size - position, 'byte', verb='follows')} the directory's entries",
            at=start + position,
        )


def _listed(source: Source, at: int, fields: tuple[int, ...], raw_name: bytes, extra: bytes, comment: bytes) -> Listed:
    _, _, _, flags, method, _, _, crc, compressed, nbytes, _, _, _, disk, _, attributes, local = fields
    name = _name(source, at, raw_name, flags)
    wide = widened((nbytes, compressed, local), extra)
    if wide is None or disk not in (0, SATURATED16):
        raise malformed(source, "E-ZIP-EXTRA", f"the zip64 sizes of member {name!r} are missing", at=at)
    nbytes, compressed, local = wide
    _check_attributes(source, at, name, raw_name, extra, attributes)
    if flags & ENCRYPTED:
        raise UnsupportedError(
            "E-ZIP-ENCRYPTED", source.path, f"member {name!r} is encrypted", at=at, hint="Decrypt the archive first"
        )
    if method not in (STORED, DEFLATED):
        why = f"member {name!r} is compressed by method {method}"
        raise UnsupportedError(
            "E-ZIP-METHOD",
            source.path,
            why,
            at=at,
            expected="0 (stored) or 8 (deflated)",
            hint="Pack the archive again",
        )
    if (method == STORED and compressed != nbytes) or (name.endswith("/") and nbytes):
        raise malformed(
            source,
            "E-ZIP-SIZE",
            f"member {name!r} cannot have both its sizes",
            at=at,
            expected=nbytes,
            found=compressed,
        )
    return Listed(raw_name, name, flags, method, crc, compressed, nbytes, local, comment)


def _name(source: Source, at: int, raw: bytes, flags: int) -> str:
    try:
        name = raw.decode("utf-8" if flags & UTF8 else "cp437")
    except UnicodeDecodeError as error:
        raise malformed(source, "E-ZIP-NAME", f"the member name {raw!r} is not UTF-8", at=at) from error
    why = why_unsafe(name)
    if why is not None:
        hint = "Pack the archive again with plain relative names"
        raise UnsafeFileError("E-ZIP-PATH", source.path, f"the member name {name!r} {why}", at=at, hint=hint)
    return name


def _check_attributes(source: Source, at: int, name: str, raw_name: bytes, extra: bytes, attributes: int) -> None:
    kind = stat.S_IFMT(attributes >> 16)
    if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
        why = f"member {name!r} is a link or a device"
        raise UnsafeFileError("E-ZIP-LINK", source.path, why, at=at, hint="Pack the archive without links")
    found = blocks(extra)
    if found is None:
        raise malformed(source, "E-ZIP-EXTRA", f"the extra field of member {name!r} is malformed", at=at)
    if found.get(UNICODE_PATH, b"")[5:] not in (b"", raw_name):
        raise UnsafeFileError(
            "E-ZIP-NAME", source.path, f"member {name!r} has a second name", at=at, hint="Pack the archive again"
        )
