"""Zip member inflation: the actual output is measured, whatever the headers state."""

from __future__ import annotations

import zlib

from ....runtime.base.errors import FormatError
from ....runtime.tensor.file import Source
from .records import Member, malformed

CHUNK = 1 << 16


class Inflater:
    """A deflated member, read once from its start."""

    def __init__(self, source: Source, member: Member) -> None:
        self._source = source
        self._member = member
        self._inflate = zlib.decompressobj(-zlib.MAX_WBITS)
        self._at = member.offset
        self._end = member.offset + member.compressed
        self._input = b""
        self._made = 0
        self._crc = 0

    def read(self, nbytes: int) -> bytes:
        """The next `nbytes` bytes, fewer only at the member's end, where size and checksum are verified."""
        wanted = min(nbytes, self._member.nbytes - self._made)
        out = bytearray()
        while len(out) < wanted:
            data = self._next(wanted - len(out))
            if not data and self._exhausted:
                raise self._wrong("inflates to fewer bytes than its size", self._made + len(out))
            out += data
        self._made += len(out)
        self._crc = zlib.crc32(out, self._crc)
        if self._made == self._member.nbytes:
            self._finish()
        return bytes(out)

    @property
    def _exhausted(self) -> bool:
        return self._inflate.eof or (not self._input and self._at == self._end)

    def _next(self, nbytes: int) -> bytes:
        if not self._input and self._at < self._end:
            self._input = self._source.read(self._at, min(CHUNK, self._end - self._at))
            self._at += len(self._input)
        try:
            data = self._inflate.decompress(self._input, nbytes)
        except zlib.error as error:
            why = f"member {self._member.name!r} does not inflate: {error}"
            raise malformed(self._source, "E-ZIP-DEFLATE", why, at=self._member.offset) from error
        self._input = self._inflate.unconsumed_tail
        return data

    def _finish(self) -> None:
        while not self._exhausted:
            if self._next(1):
                raise self._wrong("inflates to more bytes than its size", f"over {self._made:,}")
        if not self._inflate.eof or self._inflate.unused_data or self._at < self._end:
            raise self._wrong("does not end where its compressed bytes do", f"{self._made:,}")
        compare(self._source, self._member, self._crc)

    def _wrong(self, why: str, found: object) -> FormatError:
        member = self._member
        return malformed(
            self._source,
            "E-ZIP-SIZE",
            f"member {member.name!r} {why}",
            at=member.offset,
            expected=member.nbytes,
            found=found,
        )


def compare(source: Source, member: Member, crc: int) -> None:
    """FormatError when a member's checksum is not `crc`."""
    if crc != member.crc:
        why, hint = f"member {member.name!r} is damaged: its CRC-32 differs", "Fetch or save the file again"
        raise malformed(
            source, "E-ZIP-CRC", why, at=member.offset, expected=f"{member.crc:08x}", found=f"{crc:08x}", hint=hint
        )
