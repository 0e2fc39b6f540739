"""Format detection by content, and explanations for files that are not models."""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Callable

from ...runtime.base.dataclass import dataclass
from ...runtime.base.errors import Error, FormatError, UsageError
from ...runtime.contract.format import Format
from ...runtime.ir.graph import Graph
from ...runtime.plugin import discovery
from ...runtime.tensor.file import Source
from . import foreign_format

SPARSE = 64 << 30
"""Bytes from which a file is looked at for holes."""
MAX_EXTENTS = 10_000
"""Written ranges of a file that are counted."""
SHARED_SUFFIXES = (".bin",)
"""Suffixes that promise nothing, since several formats and much else have them."""


def formats() -> tuple[Format, ...]:
    """Every format, in alphabetical order."""
    return discovery.FORMATS.all()


def by_name(name: str) -> Format:
    """The format with that name."""
    if name not in discovery.FORMATS:
        raise UsageError(
            "E-FORMAT-NAME", None, f"unknown format {name!r}", hint=f"Formats: {', '.join(discovery.FORMATS.names())}"
        )
    found: Format = discovery.FORMATS.load(name)
    return found


def by_suffix(path: str) -> Format | None:
    """The format that a file name promises; the longest suffix wins."""
    named = _namesake(path)
    if named is not None:
        return named
    fits = [
        (len(suffix), format) for format in formats() for suffix in format.suffixes if path.lower().endswith(suffix)
    ]
    return max(fits, key=lambda fit: fit[0])[1] if fits else None


def _namesake(path: str) -> Format | None:
    """The format that is called like the suffix of a file name: the one that is meant, so that no other needs to be
    loaded."""
    suffix = os.path.splitext(path)[1].lower()
    if suffix[1:] not in discovery.FORMATS:
        return None
    found = by_name(suffix[1:])
    return found if suffix in found.suffixes else None


def detect(source: Source, name: str | None = None) -> Format:
    """The format of a file: the one named, else the one whose content it has.

    A file that is nothing we read is named as what it is. One that is damaged at its start is given to the format its
    suffix promises, whose reader says what is wrong.
    """
    if name is not None:
        return by_name(name)
    likely = _namesake(source.path)
    if likely is not None and likely.sniff(source):
        return likely
    for format in formats():
        if format.sniff(source):
            return format
    refuse_known(source)
    promised = by_suffix(source.path)
    if promised is not None and not source.path.lower().endswith(SHARED_SUFFIXES):
        return promised
    raise FormatError(
        "E-FORMAT-UNKNOWN",
        source.path,
        f"is not a known model format; it starts with {source.head(8)!r}",
        at=0,
        hint="It may be damaged or truncated: --from NAME reads it as one of candle-convert formats and reports "
        "the error. For a raw array: np.save",
    )


@dataclass(frozen=True)
class NotAModel:
    """A kind of file that is often found where weights should be."""

    code: str
    pattern: re.Pattern[bytes]
    is_a: str
    hint: str


def _kind(code: str, pattern: bytes, is_a: str, hint: str) -> NotAModel:
    return NotAModel(code, re.compile(pattern, re.DOTALL | re.IGNORECASE), is_a, hint)


NOT_MODELS = (
    _kind(
        "E-LFS-POINTER",
        rb"version https://git-lfs\.github\.com/spec/v1\n",
        "a Git-LFS pointer, not weights",
        "Run `git lfs pull`, or download the file itself",
    ),
    _kind(
        "E-FILE-HTML",
        rb"\s*(<!--.*?-->\s*)?<(!doctype html|html|head|body)",
        "an HTML page, not weights",
        "The download returned an error or login page; download the file again",
    ),
    _kind(
        "E-FILE-XML",
        rb"\s*<\?xml",
        "an XML document, not weights",
        "The download returned an error message; download the file again",
    ),
    _kind(
        "E-FILE-ARCHIVE",
        rb"\x1f\x8b|BZh[1-9]|\xfd7zXZ\x00|7z\xbc\xaf\x27\x1c|\x28\xb5\x2f\xfd|\x04\x22\x4d\x18|Rar!|.{257}ustar",
        "a compressed file or an archive",
        "Unpack it first",
    ),
    _kind("E-FILE-ZIP", rb"PK\x03\x04", "a zip archive without tensors", "Unpack it, or use the weights file itself"),
    _kind("E-FILE-HDF5", rb"\x89HDF\r\n\x1a\n", "an HDF5 file (Keras)", "Save the model as safetensors or ONNX first"),
    _kind(
        "E-FILE-IMAGE", rb"\x89PNG|\xff\xd8\xff|GIF8|%PDF", "an image or document, not weights", "Use the model file"
    ),
    _kind(
        "E-FILE-EMPTY",
        rb"\x00{512}|\x00+\Z",
        "zeros at the start",
        "The download was preallocated but not finished; download the file again",
    ),
    _kind(
        "E-FILE-JSON",
        rb'\s*[{\[]\s*["{\[\]}]',
        "a JSON text, not weights",
        "Use the weights file, its *.index.json, or the model directory",
    ),
    _kind(
        "E-FILE-TEXT",
        rb"[\t\n\r\x20-\x7e]+\Z",
        "a text, not weights",
        "The download returned an error message, or this is not the weights file of the model",
    ),
)


NOT_FETCHED = ("E-LFS-POINTER", "E-FILE-HTML")
"""Errors of content that was stored instead of the file; they come before the models of other frameworks, some of which
have only their names."""


def refuse_unwritten(graph: Graph) -> None:
    """FormatError for a very large file that is nearly all holes, whose values nobody ever wrote: reading them would
    take hours."""
    for path in graph.files:
        if os.path.isfile(path) and os.stat(path).st_size >= SPARSE:
            _refuse_holes(Source(path))


def _refuse_holes(source: Source) -> None:
    extents = [last - first for first, last in itertools.islice(source.written(0, source.size), MAX_EXTENTS)]
    written = sum(extents)
    if written * 10 < source.size and len(extents) < MAX_EXTENTS:
        why = f"only {written:,} of its {source.size:,} bytes were written"
        hint = "The download was preallocated but not finished; download the file again"
        raise FormatError("E-FILE-SPARSE", source.path, why, hint=hint)


def refuse_known(source: Source) -> None:
    """Raise what the file is, when it is something else that we can name."""
    if not source.size:
        raise FormatError("E-FILE-EMPTY", source.path, "is empty", hint="The download or the copy did not finish")
    head = source.head(1024)
    kinds = [kind for kind in NOT_MODELS if kind.pattern.match(head)]
    if not any(kind.code in NOT_FETCHED for kind in kinds):
        foreign_format.refuse(source)
    if kinds:
        raise _not_a_model(source, kinds[0], head)


def _not_a_model(source: Source, kind: NotAModel, head: bytes) -> Error:
    details = DETAILS[kind.code](head) if kind.code in DETAILS else None
    why = f"the file of {source.size:,} bytes is {kind.is_a}{f' ({details})' if details else ''}"
    return FormatError(kind.code, source.path, why, at=0, hint=kind.hint)


def _pointed_to(head: bytes) -> str | None:
    oid, size = re.search(rb"oid sha256:([0-9a-f]{8})", head), re.search(rb"\nsize (\d{1,18})", head)
    return f"oid {oid[1].decode()}…, real size {int(size[1]):,} bytes" if oid and size else None


def _first_member(head: bytes) -> str | None:
    name = head[30 : 30 + int.from_bytes(head[26:28], "little")]
    return f"its first member is {name.decode(errors='replace')!r}" if name else None


def _first_line(head: bytes) -> str | None:
    line = head.decode("ascii").strip().partition("\n")[0]
    return repr(line[:80]) if line else None


DETAILS: dict[str, Callable[[bytes], str | None]] = {
    "E-LFS-POINTER": _pointed_to,
    "E-FILE-ZIP": _first_member,
    "E-FILE-TEXT": _first_line,
}
"""Descriptions of a file's content from its first bytes, by error code."""
