"""Zip writer: stored members with aligned data, byte-identical on every run."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence

from ....runtime.base.dataclass import dataclass
from ....runtime.base.errors import UnsupportedError
from ....runtime.base.units import counted
from ....runtime.contract.format import Checksum, FileLayout, Piece
from ....runtime.tensor.stored_tensor import StoredTensor
from .records import (
    CENTRAL,
    CENTRAL_MAGIC,
    END,
    END64,
    END64_MAGIC,
    END_MAGIC,
    LOCAL,
    LOCAL_MAGIC,
    LOCATOR,
    LOCATOR_MAGIC,
    MAX_MEMBERS,
    SATURATED,
    SATURATED16,
    STORED,
    UTF8,
    ZIP64,
    why_unsafe,
)

PADDING = 0x4246
"""The extra block "FB" with which PyTorch aligns data; readers skip unknown blocks."""
DATE = 0x0021
"""1980-01-01, the earliest date of the format."""
MADE_BY, ATTRIBUTES = 3 << 8, 0o100644 << 16
PLAIN, LARGE = 20, 45
"""Format versions required without and with zip64."""
LOCAL_CRC, CENTRAL_CRC = 14, 16
MAX_ALIGNMENT = 4096


@dataclass(frozen=True)
class Entry:
    """A member to write: `head`, then `data`, whose first byte is aligned if `head` fills a multiple of the
    alignment."""

    name: str
    head: bytes
    data: StoredTensor | bytes | None = None
    comment: bytes = b""

    @property
    def nbytes(self) -> int:
        """Bytes of head and data."""
        return len(self.head) + (self.data.nbytes if isinstance(self.data, StoredTensor) else len(self.data or b""))


def layout(name: str, entries: Sequence[Entry], *, alignment: int = 64) -> FileLayout:
    """An archive of stored members aligned to `alignment`, with zip64 records for large sizes.

    Raises:
        UnsupportedError: a name occurs twice or is one that archives cannot hold, or there are too many members.
    """
    assert 1 <= alignment <= MAX_ALIGNMENT
    _check_names(entries)
    pieces: list[Piece] = []
    directory = bytearray()
    tensors: list[tuple[int, int, int, int, StoredTensor]] = []
    position = 0
    for entry in entries:
        literal = entry.head + (entry.data if isinstance(entry.data, bytes) else b"")
        crc = zlib.crc32(literal)
        streamed = isinstance(entry.data, StoredTensor) and entry.data.nbytes > 0
        header = _local(entry, position, 0 if streamed else crc, alignment)
        pieces.append(Piece(position, header + literal))
        if streamed:
            assert isinstance(entry.data, StoredTensor)
            tensors.append((position, len(directory), position + len(header) + len(literal), crc, entry.data))
        directory += _central(entry, position, 0 if streamed else crc)
        position += len(header) + entry.nbytes
    for local, central, offset, seed, tensor in tensors:
        pieces.append(Piece(offset, tensor, Checksum(seed, (local + LOCAL_CRC, position + central + CENTRAL_CRC))))
    end = bytes(directory) + _ends(len(entries), position, len(directory))
    pieces.append(Piece(position, end))
    return FileLayout(name, position + len(end), tuple(sorted(pieces, key=lambda piece: piece.offset)))


def _check_names(entries: Sequence[Entry]) -> None:
    names: set[str] = set()
    for entry in entries:
        faults = (
            (entry.name in names, "appears twice"),
            (entry.name.endswith("/"), "is that of a folder"),
            (len(entry.name.encode("utf-8", "replace")) > SATURATED16, "is too long"),
            (any("\ud800" <= letter <= "\udfff" for letter in entry.name), "is not Unicode text"),
        )
        why = why_unsafe(entry.name) or next((why for fault, why in faults if fault), None)
        if why is not None:
            hint = "Rename the tensor with --rename, or write safetensors"
            raise UnsupportedError(
                "E-ZIP-NAME", None, f"no zip archive can hold {entry.name[:200]!r}: the name {why}", hint=hint
            )
        names.add(entry.name)
    if len(entries) > MAX_MEMBERS:
        why = f"{counted(len(entries), 'member', verb='is')} more than an archive should have"
        hint = "Write safetensors"
        raise UnsupportedError("E-ZIP-MEMBERS", None, why, expected=f"at most {MAX_MEMBERS:,}", hint=hint)


def _local(entry: Entry, position: int, crc: int, alignment: int) -> bytes:
    name, flags = _encoded(entry.name)
    large = entry.nbytes >= SATURATED
    size = SATURATED if large else entry.nbytes
    extra = _zip64(entry.nbytes, entry.nbytes) if large else b""
    padding = -(position + LOCAL.size + len(name) + len(extra)) % alignment
    while 0 < padding < 4:
        padding += alignment
    if padding:
        extra += struct.pack("<HH", PADDING, padding - 4) + bytes(padding - 4)
    version = LARGE if large else PLAIN
    return (
        LOCAL.pack(LOCAL_MAGIC, version, flags, STORED, 0, DATE, crc, size, size, len(name), len(extra)) + name + extra
    )


def _central(entry: Entry, position: int, crc: int) -> bytes:
    name, flags = _encoded(entry.name)
    numbers = (entry.nbytes, entry.nbytes, position)
    extra = _zip64(*(number for number in numbers if number >= SATURATED))
    version = LARGE if extra else PLAIN
    size, _, offset = (min(number, SATURATED) for number in numbers)
    fixed = CENTRAL.pack(
        CENTRAL_MAGIC,
        MADE_BY | version,
        version,
        flags,
        STORED,
        0,
        DATE,
        crc,
        size,
        size,
        len(name),
        len(extra),
        len(entry.comment),
        0,
        0,
        ATTRIBUTES,
        offset,
    )
    return fixed + name + extra + entry.comment


def _ends(count: int, start: int, size: int) -> bytes:
    large = b""
    if count >= SATURATED16 or start >= SATURATED or size >= SATURATED:
        large = END64.pack(END64_MAGIC, END64.size - 12, MADE_BY | LARGE, LARGE, 0, 0, count, count, size, start)
        large += LOCATOR.pack(LOCATOR_MAGIC, 0, start + size, 1)
    few = min(count, SATURATED16)
    return large + END.pack(END_MAGIC, 0, 0, few, few, min(size, SATURATED), min(start, SATURATED), 0)


def _zip64(*numbers: int) -> bytes:
    return struct.pack(f"<HH{len(numbers)}Q", ZIP64, 8 * len(numbers), *numbers) if numbers else b""


def _encoded(name: str) -> tuple[bytes, int]:
    """The name's bytes, and the flag that says they are UTF-8 where that matters."""
    return name.encode(), 0 if name.isascii() else UTF8
