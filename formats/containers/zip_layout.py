"""Zip archives laid out for writing: stored members, the same bytes every time, sizes above 4 GiB through zip64."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

from ...runtime.format import Checksum, FileLayout, Piece
from ...runtime.tensor import Tensor
from .zip import CENTRAL, CENTRAL_MAGIC, END, END64, END64_MAGIC, END_MAGIC, LOCAL, LOCAL_MAGIC, LOCATOR, LOCATOR_MAGIC, UTF8

DATE = 1 << 5 | 1
"""1980-01-01, the first day that the format knows."""
NARROW, NARROW_COUNT = 0xFFFFFFFF, 0xFFFF
PADDING = 0x4246
"""The extra field that torch pads with ("FB"); readers skip it."""
CRC_LOCAL, CRC_CENTRAL = 14, 16


@dataclass(frozen=True)
class Entry:
    """A member to be written: `head`, then `data`."""

    name: str
    head: bytes
    data: Tensor | bytes | None = None
    comment: bytes = b""

    @property
    def nbytes(self) -> int:
        rest = 0 if self.data is None else self.data.nbytes if isinstance(self.data, Tensor) else len(self.data)
        return len(self.head) + rest

    @property
    def literal(self) -> bytes:
        """What is known before anything is written."""
        return self.head + self.data if isinstance(self.data, bytes) else self.head


def layout(name: str, entries: Sequence[Entry], *, alignment: int = 64) -> FileLayout:
    """An archive of stored members whose bytes begin at multiples of `alignment`."""
    pieces: list[Piece] = []
    central: list[bytes] = []
    waiting: list[tuple[Tensor, int, int, int, int]] = []
    position = directory = 0
    for entry in entries:
        encoded = entry.name.encode()
        crc = zlib.crc32(entry.literal)
        local = _local(encoded, crc, entry.nbytes, position, alignment)
        data = position + len(local)
        pieces.append(Piece(position, local + entry.literal))
        if isinstance(entry.data, Tensor) and entry.data.nbytes:
            waiting.append((entry.data, data + len(entry.head), crc, position + CRC_LOCAL, directory + CRC_CENTRAL))
        central.append(_central(encoded, crc, entry, position))
        directory += len(central[-1])
        position = data + entry.nbytes
    pieces += [Piece(offset, tensor, Checksum(crc, (local, position + inside))) for tensor, offset, crc, local, inside in waiting]
    end = b"".join(central) + _end(len(entries), directory, position)
    return FileLayout(name, position + len(end), (*pieces, Piece(position, end)))


def _local(name: bytes, crc: int, nbytes: int, position: int, alignment: int) -> bytes:
    wide = struct.pack("<2H2Q", 1, 16, nbytes, nbytes) if nbytes >= NARROW else b""
    size = min(nbytes, NARROW)
    gap = -(position + LOCAL.size + len(name) + len(wide) + 4) % alignment
    extra = wide + struct.pack("<2H", PADDING, gap) + bytes(gap)
    return LOCAL.pack(LOCAL_MAGIC, 45 if wide else 20, UTF8, 0, 0, DATE, crc, size, size, len(name), len(extra)) + name + extra


def _central(name: bytes, crc: int, entry: Entry, position: int) -> bytes:
    sizes = (entry.nbytes, entry.nbytes) if entry.nbytes >= NARROW else ()
    values = (*sizes, *((position,) if position >= NARROW else ()))
    extra = struct.pack(f"<2H{len(values)}Q", 1, 8 * len(values), *values) if values else b""
    size, version = min(entry.nbytes, NARROW), 45 if values else 20
    lengths = (len(name), len(extra), len(entry.comment))
    fields = (version, version, UTF8, 0, 0, DATE, crc, size, size, *lengths, 0, 0, 0, min(position, NARROW))
    return CENTRAL.pack(CENTRAL_MAGIC, *fields) + name + extra + entry.comment


def _end(count: int, length: int, start: int) -> bytes:
    wide = b""
    if count >= NARROW_COUNT or length >= NARROW or start >= NARROW:
        wide = END64.pack(END64_MAGIC, END64.size - 12, 45, 45, 0, 0, count, count, length, start)
        wide += LOCATOR.pack(LOCATOR_MAGIC, 0, start + length, 1)
    narrow = (min(count, NARROW_COUNT), min(count, NARROW_COUNT), min(length, NARROW), min(start, NARROW))
    return wide + END.pack(END_MAGIC, 0, 0, *narrow, 0)
