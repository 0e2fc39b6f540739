"""LZ4 frame decompression.

Source: the LZ4 frame format 1.6.2 and the LZ4 block format of lz4.github.io.
"""

from __future__ import annotations

from ...runtime.base.units import counted

MAGIC = b"\x04\x22\x4d\x18"
HISTORY = 1 << 16
"""Maximum distance of a match before its block, in bytes."""
_STORED = 1 << 31
_END, _CHECK = 4, 4


class Lz4Error(ValueError):
    """The frame violates the format."""


class Lz4Decompressor:
    """Incremental decompressor of one frame; checksums are skipped."""

    def __init__(self) -> None:
        self.eof = False
        self.unused_data = b""
        self._input = bytearray()
        self._output = bytearray()
        self._history = b""
        self._header = True
        self._block_check = self._content_check = self._linked = False
        self._largest = 0

    @property
    def needs_input(self) -> bool:
        return not self._output and not self.eof and not self._complete()

    def decompress(self, data: bytes, max_length: int) -> bytes:
        """Decompress at most `max_length` further bytes."""
        self._input += data
        while not self._output and not self.eof and self._complete():
            self._step()
        made = bytes(self._output[:max_length])
        del self._output[:max_length]
        return made

    def _complete(self) -> bool:
        """Whether the next header or block is complete."""
        return len(self._input) >= self._size()

    def _size(self) -> int:
        """Bytes needed for the next header or block, as far as known."""
        if self._header:
            return 7 if len(self._input) < 7 else 7 + 8 * bool(self._input[4] & 8) + 4 * bool(self._input[4] & 1)
        if len(self._input) < _END:
            return _END
        word = int.from_bytes(self._input[:4], "little")
        return _END + (_CHECK * self._content_check if word == 0 else (word & ~_STORED) + _CHECK * self._block_check)

    def _step(self) -> None:
        size = self._size()
        piece = bytes(self._input[:size])
        del self._input[:size]
        if self._header:
            self._begin(piece)
            return
        word = int.from_bytes(piece[:4], "little")
        if word == 0:
            self.eof, self.unused_data = True, bytes(self._input)
            return
        stored, length = bool(word & _STORED), word & ~_STORED
        if length > self._largest:
            raise Lz4Error(f"a block of {counted(length, 'byte')} is larger than the frame allows")
        data = piece[4 : 4 + length]
        made = data if stored else _block(data, self._history if self._linked else b"", self._largest)
        self._history = (self._history + made)[-HISTORY:]
        self._output += made

    def _begin(self, head: bytes) -> None:
        flags, sizes = head[4], head[5] >> 4 & 7
        if head[:4] != MAGIC or flags >> 6 != 1 or flags & 1 or sizes < 4:
            raise Lz4Error("the header is of an unknown version or needs a dictionary")
        self._linked, self._block_check, self._content_check = not flags & 32, bool(flags & 16), bool(flags & 4)
        self._largest = 1 << (8 + 2 * sizes)
        self._header = False


def _block(data: bytes, before: bytes, largest: int) -> bytes:
    """The bytes of one block; `before` are those its matches may refer to."""
    out, at, end = bytearray(before), 0, len(data)
    most = len(before) + largest
    try:
        while at < end:
            token = data[at]
            literals, at = _length(data, at + 1, token >> 4)
            if at + literals > end:
                raise Lz4Error("literals go past the end of a block")
            out += data[at : at + literals]
            at += literals
            if at == end:
                break
            distance = int.from_bytes(data[at : at + 2], "little")
            count, at = _length(data, at + 2, token & 15)
            count += 4
            start = len(out) - distance
            if not distance or start < 0 or len(out) + count > most:
                raise Lz4Error("a match lies outside of its block")
            out += out[start : start + count] if distance >= count else (out[start:] * (count // distance + 1))[:count]
    except IndexError as error:
        raise Lz4Error("a block is cut short") from error
    if len(out) > most:
        raise Lz4Error("a block unpacks to more than the frame allows")
    return bytes(out[len(before) :])


def _length(data: bytes, at: int, count: int) -> tuple[int, int]:
    """A length that starts in four bits of a token, and the offset after it."""
    if count == 15:
        while data[at] == 255:
            count += 255
            at += 1
        count += data[at]
        at += 1
    return count, at
