"""Compressed streams: zlib, gzip, bzip2, xz, lzma, lz4 and joblib's legacy zlib, decompressed into a temporary file
within limits."""

from __future__ import annotations

import bz2
import lzma
import re
import zlib
from collections.abc import Callable, Iterator
from typing import Protocol

from ...runtime.base.dataclass import dataclass
from ...runtime.base.errors import FormatError, LimitError
from ...runtime.base.units import counted
from ...runtime.tensor.file import Source
from .lz4_frame import MAGIC, Lz4Decompressor
from .nested_file import Inner, spool

CHUNK = 1 << 16
FREE_RATIO = 1 << 20
"""Decompressed bytes up to which any compression ratio is accepted."""
LZMA_MEMORY = 64 * 2**20
"""Limit of the dictionary of xz and lzma streams."""
TRIAL = 512


class Decompressor(Protocol):
    """Common interface of the standard library's decompressors."""

    @property
    def eof(self) -> bool: ...
    @property
    def needs_input(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, max_length: int) -> bytes: ...


class _Zlib:
    """zlib's decompressor, buffering its own input as the others do."""

    def __init__(self, window: int) -> None:
        self._inflate = zlib.decompressobj(window)
        self._full = False

    @property
    def needs_input(self) -> bool:
        return not self._full and not self._inflate.unconsumed_tail

    @property
    def eof(self) -> bool:
        return self._inflate.eof

    @property
    def unused_data(self) -> bytes:
        return self._inflate.unused_data

    def decompress(self, data: bytes, max_length: int) -> bytes:
        made = self._inflate.decompress(self._inflate.unconsumed_tail + data, max_length)
        self._full = len(made) == max_length
        return made


@dataclass(frozen=True)
class Compression:
    """A compression format: name, magic pattern, decompressor, bytes to skip before the stream, and whether streams may
    be concatenated."""

    name: str
    pattern: re.Pattern[bytes]
    decompressor: Callable[[], Decompressor]
    header: int = 0
    repeats: bool = False


def _kind(
    name: str, pattern: bytes, decompressor: Callable[[], Decompressor], header: int = 0, *, repeats: bool = False
) -> Compression:
    return Compression(name, re.compile(pattern, re.DOTALL), decompressor, header, repeats)


COMPRESSIONS = (
    _kind("gzip", rb"\x1f\x8b\x08", lambda: _Zlib(zlib.MAX_WBITS | 16), repeats=True),
    _kind("bzip2", rb"BZh[1-9](1AY&SY|\x17rE8P\x90)", bz2.BZ2Decompressor, repeats=True),
    _kind("xz", rb"\xfd7zXZ\x00", lambda: lzma.LZMADecompressor(lzma.FORMAT_XZ, LZMA_MEMORY), repeats=True),
    _kind("lzma", rb"\x5d\x00.{3}(\xff{8}|.{5}\x00{3})", lambda: lzma.LZMADecompressor(lzma.FORMAT_ALONE, LZMA_MEMORY)),
    _kind("lz4", re.escape(MAGIC), Lz4Decompressor, repeats=True),
    _kind("zlib of joblib", rb"ZF0x[0-9a-f]{1,16} *", lambda: _Zlib(zlib.MAX_WBITS), 21),
    _kind("zlib", rb"\x78[\x00-\xff]", lambda: _Zlib(zlib.MAX_WBITS)),
)
FAULTS = (zlib.error, lzma.LZMAError, OSError, ValueError, EOFError)


def compression(head: bytes) -> Compression | None:
    """The compression format whose magic a file's first bytes match, or None."""
    for kind in COMPRESSIONS:
        if kind.pattern.match(head) and (kind.name != "zlib" or _begins_zlib(head)):
            return kind
    return None


def _begins_zlib(head: bytes) -> bool:
    """Whether the two bytes of a zlib header are consistent and some data after them decompresses: the header alone is
    too short to decide."""
    if int.from_bytes(head[:2], "big") % 31 or head[1] & 0x20:
        return False
    trial = zlib.decompressobj()
    try:
        trial.decompress(head[:TRIAL], CHUNK)
    except zlib.error:
        return False
    return True


def unpacked(source: Source, kind: Compression, member: str) -> Inner:
    """The decompressed content, as a source named after `member`.

    Raises:
        FormatError: the stream is damaged, truncated, or followed by other bytes.
        LimitError: it exceeds the limit of header memory, or the compression ratio.
        FileAccessError: the disk is full.
    """
    return spool(source, member, _limited(source, kind))


def _limited(source: Source, kind: Compression) -> Iterator[bytes]:
    limits = source.budget.limits
    by_ratio = max(FREE_RATIO, source.size * limits.zip_ratio)
    size, limit = 0, min(limits.header, by_ratio)
    for piece in _content(source, kind):
        size += len(piece)
        source.budget.entry(1, "pieces of a compressed file")
        if size > limit:
            option = "zip-ratio=1100" if limit == by_ratio else "header=1GB"
            hint = f"If you trust the file, raise it with --limit {option}"
            raise LimitError(
                "E-ZIP-RATIO",
                source.path,
                f"{counted(source.size, 'byte', verb='unpacks')} to more than {limit:,}",
                hint=hint,
            )
        yield piece


def _content(source: Source, kind: Compression) -> Iterator[bytes]:
    """The decompressed content in small pieces."""
    at, data, engine = kind.header, b"", kind.decompressor()
    while True:
        if engine.eof:
            data = engine.unused_data + source.read(at, min(CHUNK, source.size - at))
            at = min(source.size, at + CHUNK)
            if not data.strip(b"\0") and at == source.size:
                return
            if not kind.repeats:
                raise _damaged(source, kind, "bytes follow its end", at - len(data))
            engine = kind.decompressor()
        elif engine.needs_input:
            data = source.read(at, min(CHUNK, source.size - at))
            at += len(data)
            if not data:
                raise _damaged(source, kind, "it is cut short", at)
        try:
            piece = engine.decompress(data, CHUNK)
        except FAULTS as error:
            raise _damaged(source, kind, str(error), at) from error
        data = b""
        if piece:
            yield piece


def _damaged(source: Source, kind: Compression, why: str, at: int) -> FormatError:
    return FormatError(
        "E-FILE-COMPRESSED", source.path, f"is a {kind.name} stream that cannot be unpacked: {why}", at=max(0, at)
    )
