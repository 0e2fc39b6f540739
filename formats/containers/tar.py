"""Tar archives: byte ranges of regular files. Links, devices and extensions that rename or resize a member are
rejected.

Source: POSIX.1-2008, the ustar and pax interchange formats.
"""

from __future__ import annotations

import re

from ...runtime.base.errors import FormatError
from ...runtime.base.units import counted
from ...runtime.tensor.file import Source
from ...runtime.tensor.storage import Region

BLOCK = 512
PLAIN = b"0\0"
PAX = b"xg"
FOLDER = b"5"


def looks_like(source: Source) -> bool:
    """Whether a file starts with a tar header with a valid checksum."""
    head = source.head(BLOCK)
    return len(head) == BLOCK and _checksum_fits(head)


def members(source: Source, *, folders: bool = False) -> dict[str, Region]:
    """The files of an archive, by name; directories are skipped if `folders`, otherwise rejected.

    Raises:
        FormatError: a broken header, a member past the end, a duplicate name, or a member that is not a regular file.
    """
    found: dict[str, Region] = {}
    at = 0
    while True:
        if at + BLOCK > source.size:
            raise _malformed(source, "E-TAR-TRUNCATED", "the archive ends without its end mark", at)
        head = source.read(at, BLOCK)
        if not head.strip(b"\0"):
            break
        source.budget.entry(1, "tar members", at=at)
        if not _checksum_fits(head):
            raise _malformed(source, "E-TAR-HEADER", "a tar header has a wrong checksum", at)
        size, kind = _octal(source, head[124:136], at), head[156:157]
        if size > source.size - at - BLOCK:
            raise _malformed(
                source, "E-TAR-TRUNCATED", f"a member of {counted(size, 'byte')} goes past the end of the archive", at
            )
        if kind in PAX:
            _check_extension(source, at + BLOCK, size)
        elif kind == FOLDER and folders and not size:
            pass
        elif kind not in PLAIN:
            raise _malformed(source, "E-TAR-KIND", f"a member is of type {kind!r}, not a plain file", at)
        else:
            name = _name(source, head, at)
            if name in found:
                raise _malformed(source, "E-TAR-TWICE", f"the member {name!r} appears twice", at)
            found[name] = Region(source, at + BLOCK, size)
        at += BLOCK + -(-size // BLOCK) * BLOCK
    if source.size > at and _holds_data(source, at):
        raise _malformed(source, "E-TAR-TRAILING", "bytes follow the end mark", at)
    return found


def _holds_data(source: Source, at: int) -> bool:
    step = 1 << 20
    return any(
        source.read(start, min(step, source.size - start)).strip(b"\0") for start in range(at, source.size, step)
    )


def _checksum_fits(head: bytes) -> bool:
    field = head[148:156].strip(b"\0 ")
    if not re.fullmatch(rb"[0-7]{1,7}", field):
        return False
    return int(field, 8) == sum(head) - sum(head[148:156]) + 8 * ord(" ")


def _octal(source: Source, field: bytes, at: int) -> int:
    digits = field.strip(b"\0 ")
    if not re.fullmatch(rb"[0-7]{1,12}", digits):
        raise _malformed(source, "E-TAR-HEADER", f"a member has the size {field!r}", at)
    return int(digits, 8)


def _name(source: Source, head: bytes, at: int) -> str:
    prefix = head[345:500].rstrip(b"\0") if head[257:262] == b"ustar" else b""
    try:
        name = b"/".join(part for part in (prefix, head[:100].split(b"\0")[0]) if part).decode()
    except UnicodeDecodeError as error:
        raise _malformed(source, "E-TAR-NAME", "a member name is not UTF-8", at) from error
    if not name or name.startswith("/") or ".." in name.split("/") or "\\" in name:
        raise _malformed(source, "E-TAR-NAME", f"the member name {name!r} leads out of the archive", at)
    return name


def _check_extension(source: Source, at: int, size: int) -> None:
    """Reject a pax header that changes a name, a size or a link; times and owners are accepted."""
    source.budget.charge(size, "a pax header", at=at)
    for line in source.read(at, size).split(b"\n"):
        match = re.match(rb"\d+ ([^=]*)=", line)
        if match and (match[1] in (b"path", b"size", b"linkpath", b"hdrcharset") or match[1].startswith(b"GNU.")):
            raise _malformed(
                source, "E-TAR-PAX", f"a pax header changes the {match[1].decode(errors='replace')} of a member", at
            )


def _malformed(source: Source, code: str, why: str, at: int) -> FormatError:
    return FormatError(code, source.path, why, at=at, hint="The file is damaged or was not written by torch")
