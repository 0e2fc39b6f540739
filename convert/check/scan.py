"""Security scan: whether files could run code, reach other files or exhaust a program that opens them.

Nothing is ever executed, but chat templates: those are rendered with sample chats, in a process with limits.
"""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any

from ...formats.containers import compressed, tar
from ...formats.containers.nested_file import Inner, spool
from ...formats.containers.torch.allowed_names import JOBLIB
from ...formats.containers.zip import Archive, Member, looks_like
from ...runtime.base.dataclass import dataclass
from ...runtime.base.errors import Error
from ...runtime.base.out_of_memory import memory_limited
from ...runtime.base.units import counted, human_size
from ...runtime.contract.format import Finding, Format, ReadOptions, nothing_found
from ...runtime.ir.graph import Graph
from ...runtime.tensor.file import Source
from ...runtime.tensor.storage import Region
from ..console.progress import NoProgress, Progress
from ..open import detect_format
from ..open.locate import located
from . import config_scan, embedded_pickle, hdf5_json, template_trial, tensorflow_ops, walk_files
from .finding import Located, WatchedSource, counts, table

UNREAD, UNSUPPORTED, DANGER, LIMIT = 3, 4, 5, 6
DEPTH = 4
"""Archives within archives that are looked into."""
PACKED = (".gz", ".bz2", ".xz", ".lzma", ".lz4", ".z", ".zlib")
CONFIGURED = (".json", ".h5", ".hdf5", ".pb", ".pbtxt")
"""Members of zip archives that are looked at as files of their own, besides the search for pickles in all of them."""
CHUNK = 1 << 20
TEXT = 16 * 2**20
"""Bytes up to which a file is looked at as text."""
TEMPLATE_KEY = re.compile(r"(^|\.)chat_template(\.|$)")
CODE = (
    (
        re.compile(rb"\x7fELF|MZ.{58}|\xfe\xed\xfa[\xce\xcf]|[\xce\xcf]\xfa\xed\xfe", re.DOTALL),
        "W-SCAN-NATIVE",
        "a program in machine code",
    ),
    (re.compile(rb"#!"), "W-SCAN-SCRIPT", "a script"),
)
"""Beginnings of files that carry code of their own."""


@dataclass(frozen=True)
class Scanned:
    """One file: its path, what it is (a format's name, "text", "unknown", or "" when it could not be opened), and its
    bytes."""

    path: str
    what: str
    nbytes: int


@dataclass
class Scan:
    """The result of a scan. Errors are files that could not be read whole."""

    files: list[Scanned] = field(default_factory=list)
    findings: list[Located] = field(default_factory=list)

    def __repr__(self) -> str:
        return f"<Scan {counted(len(self.files), 'file')}: {counts(self.findings)}; table() shows them>"

    @property
    def exit_code(self) -> int:
        """5 with a danger; else that of the first file that could not be read whole; 0 only when all was read and
        nothing is dangerous."""
        if any(finding.severity == "danger" for finding in self.findings):
            return DANGER
        return next((finding.exit_code or UNREAD for finding in self.findings if finding.severity == "error"), 0)

    def table(self) -> str:
        """The findings as aligned text, the worst first, and a line that sums up."""
        lines = [table(self.findings)] if self.findings else []
        nbytes = sum(file.nbytes for file in self.files)
        return "\n".join([*lines, f"{counted(len(self.files), 'file')}, {human_size(nbytes)}: {counts(self.findings)}"])

    def to_json(self) -> dict[str, Any]:
        return {
            "files": [{"path": file.path, "what": file.what, "bytes": file.nbytes} for file in self.files],
            "findings": [finding.to_json() for finding in self.findings],
        }


@memory_limited
def scan(
    paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    *,
    allow_globals: Iterable[str] = (),
    revision: str | None = None,
    offline: bool = False,
    progress: Progress | None = None,
) -> Scan:
    """Scan files and folders with everything below them, whatever their names say.

    Args:
        allow_globals: further pickle names, or patterns such as ``omegaconf.*``, to accept.
        revision, offline: for ``hf://``.

    Raises:
        FileAccessError: a path does not exist.
    """
    named = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
    roots = [located(path, revision, offline) for path in named]
    result = Scan()
    found = [entry for root in roots for entry in walk_files.files(root)]
    if len(found) == 1 and found[0][1] is not None:
        raise found[0][1]
    meter = _Meter(progress or NoProgress(), [0 if error is not None else _size(path) for path, error in found])
    options = ReadOptions(allow_globals=frozenset(allow_globals))
    try:
        for path, error in found:
            meter.next()
            if error is not None:
                result.files.append(Scanned(str(path), "", 0))
                result.findings.append(Located.of_error(str(path), error))
            else:
                _file(result, str(path), options, meter.advance)
        meter.complete()
    finally:
        meter.finish()
    return result


class _Meter:
    """Progress over files, each of which advances by no more than its size, however often it is read."""

    def __init__(self, progress: Progress, sizes: Sequence[int]) -> None:
        self._progress = progress
        self._sizes = iter(sizes)
        self._left = 0
        progress.phase("scanning")
        progress.start(sum(sizes))

    def next(self) -> None:
        """Begin the next file."""
        self.complete()
        self._left = next(self._sizes)

    def complete(self) -> None:
        """The file is done, whatever of it was read."""
        self.advance(self._left)

    def advance(self, nbytes: int) -> None:
        """`nbytes` were read."""
        step = min(nbytes, self._left)
        self._left -= step
        if step:
            self._progress.advance(step)

    def finish(self) -> None:
        self._progress.finish()


def _size(path: Path) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0


def _file(result: Scan, path: str, options: ReadOptions, advance: Callable[[int], object]) -> None:
    """Everything about one file; findings that two looks agree on are reported once."""
    try:
        source = WatchedSource(path, advance)
    except Error as error:
        result.files.append(Scanned(path, "", 0))
        result.findings.append(Located.of_error(path, error))
        return
    what, found = _content(source, path, options)
    result.files.append(Scanned(path, what, source.size))
    result.findings += _told_once(found)
    source.close()


def _content(source: Source, path: str, options: ReadOptions, depth: int = 0) -> tuple[str, list[Located]]:
    """The kind of a source (see `Scanned`), and findings in it; `path` is the file that it is or lies in, `depth` how
    deep."""
    formats = [format for format in detect_format.formats() if format.sniff(source)]
    text = None if formats else _text(source)
    found: list[Located] = []
    looks = [_look_model(source, formats, options)] if formats else [_look_unknown(source, text is not None, options)]
    for look in (*looks, _look_name(source, text), _look_inside(source, path, options, depth)):
        try:
            found += [_placed(finding, source, path) for finding in look]
        except Error as error:
            found.append(Located.of_error(path, error))
    return formats[0].name if formats else "text" if text is not None else "unknown", found


def _placed(finding: Finding | Located, source: Source, path: str) -> Located:
    """A finding of `source` with its position in the file `path`, of which `source` may be a member."""
    found = finding if isinstance(finding, Located) else Located.of(source.path, finding)
    if found.path == path:
        return found
    members = [found.path.removeprefix(f"{path}!"), *([found.member] if found.member else [])]
    return dataclasses.replace(found, path=path, member="!".join(members))


def _look_inside(source: Source, path: str, options: ReadOptions, depth: int) -> Iterator[Located]:
    """The content of a compressed stream, the files of a tar archive, and the configurations of a zip archive, each
    looked at as a file."""
    try:
        yield from _looks_within(source, path, options, depth)
    except Error as error:
        yield Located.of_error(path, error)
        if not looks_like(source):
            yield from (_placed(finding, source, path) for finding in embedded_pickle.findings(source, options))


def _looks_within(source: Source, path: str, options: ReadOptions, depth: int) -> Iterator[Located]:
    for inner in _inner(source):
        try:
            if depth >= DEPTH:
                why = f"lies within more than {DEPTH} archives and is not scanned"
                yield Located(inner.path, "E-SCAN-DEPTH", "error", why, exit_code=LIMIT)
            else:
                yield from _content(inner, path, options, depth + 1)[1]
        finally:
            inner.close()


def _inner(source: Source) -> Iterator[Source]:
    """The files inside a file."""
    kind = compressed.compression(source.head(1024))
    if kind is not None:
        name = Path(source.path.rpartition("!")[2]).name
        shorter = name.rpartition(".")[0] if name.lower().endswith(PACKED) else name
        yield compressed.unpacked(source, kind, shorter or name)
    elif tar.looks_like(source):
        for name, region in tar.members(source, folders=True).items():
            yield Inner(source, name, region.offset, region.nbytes)
    elif looks_like(source):
        archive = Archive(source)
        for name, member in archive.members.items():
            if name.lower().endswith(CONFIGURED):
                yield _member(archive, name, member)


def _member(archive: Archive, name: str, member: Member) -> Source:
    """A member of a zip archive as a file."""
    storage = archive.storage(member)
    if isinstance(storage, Region):
        return Inner(archive.source, name, storage.offset, storage.nbytes)
    archive.source.budget.charge(storage.nbytes, f"member {name!r}", at=member.at)
    return spool(
        archive.source,
        name,
        (storage.read(start, min(storage.nbytes, start + CHUNK)) for start in range(0, storage.nbytes, CHUNK)),
    )


def _told_once(found: Sequence[Located]) -> Iterable[Located]:
    """The first finding of each code at each position; one without a member equals one that has it."""
    members: dict[Any, dict[str | None, Located]] = {}
    for finding in found:
        place = (finding.code, finding.message if finding.offset is None else finding.offset)
        members.setdefault(place, {}).setdefault(finding.member, finding)
    for named in members.values():
        yield from (finding for member, finding in named.items() if member is not None or len(named) == 1)


def _look_model(source: Source, formats: Sequence[Format], options: ReadOptions) -> Iterator[Finding | Located]:
    """A file with a format's marks: read as each format that it could be, and scanned as each."""
    errors: list[Located] = []
    read = 0
    for format in formats:
        try:
            graph = format.read(source, options)
            read += 1
            yield from _carried(graph, source, scanned=format.scan is not nothing_found)
        except Error as error:
            read += error.code == JOBLIB  # what stands between its arrays is read by the scan below
            errors += [] if error.code == JOBLIB else [Located.of_error(source.path, error)]
        try:
            yield from format.scan(source, options)
        except Error as error:
            errors.append(Located.of_error(source.path, error))
    yield from (error for error in errors if error.severity == "danger" or not read)
    if not read:
        yield from embedded_pickle.findings(source, options)
    if not looks_like(source):
        appended = embedded_pickle.appended_archive(source)
        if appended is not None:
            yield appended


def _look_unknown(source: Source, text: bool, options: ReadOptions) -> Iterator[Finding | Located]:
    """A file of no format: named if it is known to be something else, and searched for pickles and archives."""
    head = source.head(1024)
    kind = next((kind for kind in detect_format.NOT_MODELS if kind.pattern.match(head)), None)
    inside = compressed.compression(head) is not None or tar.looks_like(source)
    if kind is not None and kind.code == "E-FILE-ARCHIVE" and not inside:
        why = "a compressed archive of this kind is not scanned; unpack it first"
        yield Located(source.path, "E-SCAN-ARCHIVE", "error", why, exit_code=UNSUPPORTED)
    elif kind is not None and kind.code == "E-LFS-POINTER":
        yield Finding(kind.code, "info", f"is {kind.is_a}")
    elif not text and source.size and not inside:
        yield Finding("W-SCAN-UNKNOWN", "info", "not a model format; searched for pickles and archives")
    for pattern, code, what in CODE:
        if pattern.match(head):
            yield Finding(code, "warning", f"is {what}")
    if hdf5_json.is_hdf5(source):
        yield Finding("W-SCAN-HDF5", "info", "an HDF5 file; the configurations of its Keras layers were scanned")
        yield from hdf5_json.findings(source, lambda value: config_scan.look_at(value, None))
    yield from tensorflow_ops.findings(source)
    promised = detect_format.by_suffix(source.path)
    if promised is not None and not inside and (kind is None or kind.code == "E-FILE-TEXT") and not looks_like(source):
        try:
            promised.read(source, options)
        except Error as error:
            yield Located.of_error(source.path, error)
    if not inside:
        yield from embedded_pickle.findings(source, options)
        appended = None if looks_like(source) else embedded_pickle.appended_archive(source)
        if appended is not None:
            yield appended


def _look_name(source: Source, text: str | None) -> Iterator[Finding | Located]:
    """The kind of a file by its name: Python code, a template, a configuration."""
    suffix = Path(source.path).suffix.lower()
    if suffix in (".py", ".pyc", ".pyx", ".ipynb"):
        yield Finding("W-SCAN-PYTHON", "warning", "Python code, which trust_remote_code would run")
    if suffix in (".jinja", ".jinja2", ".j2"):
        yield from (
            config_scan.template(text, None)
            if text is not None
            else (Finding("E-SCAN-TEMPLATE", "error", "the template is not UTF-8"),)
        )
    if suffix == ".json":
        yield from config_scan.look(Region(source, 0, source.size), source, None)


def _carried(graph: Graph, source: Source, *, scanned: bool) -> Iterator[Finding]:
    """Templates and configurations that a model carries in its metadata; `scanned` where its format looks at templates
    itself."""
    look = template_trial.trial if scanned else config_scan.template
    for key, value in graph.metadata.items():
        for text in config_scan.texts(value) if isinstance(key, str) and TEMPLATE_KEY.search(key) else ():
            yield from look(text, key)
    for name, storage in graph.attachments.items():
        if name.endswith(".jinja"):
            yield from look(bytes(storage.read(0, min(storage.nbytes, TEXT))).decode("utf-8", "replace"), name)
        elif name.endswith(".json"):
            yield from config_scan.look(storage, source, name)


def _text(source: Source) -> str | None:
    """The file as text, None when it is none, or too long to be held."""
    if source.size > TEXT:
        return None
    try:
        text = source.read(0, source.size).decode("utf-8")
    except UnicodeDecodeError:
        return None
    return None if "\0" in text else text
