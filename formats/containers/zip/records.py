"""Zip records, and the rules for members that reader and writer share."""

from __future__ import annotations

import struct
from dataclasses import dataclass

from ....runtime.base.errors import FormatError
from ....runtime.tensor.file import Source

LOCAL = struct.Struct("<4s5H3I2H")
CENTRAL = struct.Struct("<4s6H3I5H2I")
END = struct.Struct("<4s4H2IH")
END64 = struct.Struct("<4sQ2H2I4Q")
LOCATOR = struct.Struct("<4sIQI")
LOCAL_MAGIC, CENTRAL_MAGIC, END_MAGIC, END64_MAGIC, LOCATOR_MAGIC = (
    b"PK\3\4",
    b"PK\1\2",
    b"PK\5\6",
    b"PK\6\6",
    b"PK\6\7",
)
DESCRIPTOR_MAGIC = b"PK\7\x08"
STORED, DEFLATED = 0, 8
ENCRYPTED, STREAMED, UTF8 = 0x2041, 0x8, 0x800
ZIP64, UNICODE_PATH = 0x0001, 0x7075
SATURATED, SATURATED16 = 0xFFFFFFFF, 0xFFFF
"""Value of a field whose number is in a zip64 record."""
MAX_MEMBERS = 100_000


@dataclass(frozen=True, slots=True)
class Member:
    """A member of an archive.

    Attributes:
        name: with ``/`` between folders.
        offset: where its bytes begin; compressed: how many they are; nbytes: how many they are when inflated.
        method: `STORED` or `DEFLATED`.
        crc: CRC-32 of the inflated bytes.
        comment: what the directory says besides the name.
        at: where the local header begins.
    """

    name: str
    offset: int
    compressed: int
    nbytes: int
    method: int
    crc: int
    comment: bytes
    at: int


def malformed(
    source: Source,
    code: str,
    why: str,
    *,
    at: int,
    expected: object = None,
    found: object = None,
    hint: str = "Fetch or pack the archive again",
) -> FormatError:
    """The error for a malformed archive at byte `at`."""
    return FormatError(code, source.path, why, at=at, expected=expected, found=found, hint=hint)


def why_unsafe(name: str) -> str | None:
    """The reason why a member's name could escape the extraction folder, or None."""
    faults = (
        (not name, "is empty"),
        ("\0" in name, "has a NUL byte"),
        ("\\" in name, "has a backslash"),
        (name.startswith("/"), "is an absolute path"),
        (".." in name.split("/"), "leads out of its folder"),
    )
    return next((why for fault, why in faults if fault), None)


def blocks(extra: bytes) -> dict[int, bytes] | None:
    """Blocks of an extra field by number, or None if malformed. Up to three bytes of padding may follow the blocks."""
    found: dict[int, bytes] = {}
    position = 0
    while len(extra) - position >= 4:
        number, length = struct.unpack_from("<HH", extra, position)
        position += 4
        if length > len(extra) - position or (number == ZIP64 and number in found):
            return None
        found[number] = extra[position : position + length]
        position += length
    return found


def widened(values: tuple[int, ...], extra: bytes) -> tuple[int, ...] | None:
    """32-bit fields, saturated ones replaced from the zip64 block in order; None if it is missing or malformed."""
    if SATURATED not in values:
        return values
    block = (blocks(extra) or {}).get(ZIP64, b"")
    large = [number for (number,) in struct.iter_unpack("<Q", block[: len(block) // 8 * 8])]
    if values.count(SATURATED) > len(large):
        return None
    wide = iter(large)
    return tuple(next(wide) if value == SATURATED else value for value in values)
