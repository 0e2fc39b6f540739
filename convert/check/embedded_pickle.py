"""Search for pickles and archives embedded in files of any kind, by their bytes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from ...formats.containers.pickle.cursor import Carrier
from ...formats.containers.pickle.machine import Global, Machine
from ...formats.containers.pickle.opcodes import OPCODES
from ...formats.containers.torch.allowed_names import executing, unknown
from ...formats.containers.torch.pickle_scan import scan_zip
from ...formats.containers.zip import Archive, looks_like
from ...runtime.base.errors import FormatError
from ...runtime.base.limits import Budget
from ...runtime.contract.format import Finding, ReadOptions
from ...runtime.tensor.file import Source
from ...runtime.tensor.storage import Held, Region, Storage
from ...runtime.tensor.storage_search import windows

WINDOW = 1 << 20
OVERLAP = 512
TAIL = 22 + 0xFFFF
CHARGE = 8
"""Pickle operations that cost one entry of the budget where a pickle is only suspected."""
_OPCODE = b"[" + b"".join(re.escape(bytes([code])) for code in OPCODES) + b"]"
_NAME = rb"[A-Za-z_][\w.]{0,100}"
_HEADER = re.compile(rb"\x80[\x02-\x05](?=%s)" % _OPCODE, re.DOTALL)
_NAME_LINE = re.compile(rb"\n(?P<name>%s)\n(?=[(){}\[\]NTKJMXpq\x85-\x88\x8c\x94])" % _NAME)
_MODULE_BEFORE = re.compile(rb"[\w.]{1,102}\Z")
_TEXTS = re.compile(rb"\x8c.(?P<module>%s)(?:\x94|q.)?\x8c.(?P<name>%s)(?:\x94|q.)?\x93" % (_NAME, _NAME), re.DOTALL)
_MEMBER = re.compile(rb"PK\x03\x04[\x00-\x3f]\x00.[\x00-\x0f][\x00\x08]\x00.{16}.[\x00-\x03]", re.DOTALL)
_END = b"PK\5\6"


class _Run(NamedTuple):
    stop: int
    findings: list[Finding]


def findings(source: Source, options: ReadOptions) -> Iterator[Finding]:
    """Pickles and archives inside an unrecognised file, that begin anywhere in it or in the members of the archive that
    it is."""
    if not looks_like(source):
        yield from _search(Region(source, 0, source.size), source, source.path, options)
        return
    yield from scan_zip(source, options)
    archive = Archive(source)
    for member in archive.members.values():
        stored: Storage = archive.storage(member)
        if not isinstance(stored, Region):
            stored = Held(archive.read(member, source.budget.limits.header))
        for finding in _search(stored, source, f"{source.path}!{member.name}", options):
            yield Finding(finding.code, finding.severity, finding.message, finding.offset, member.name)


def _search(storage: Storage, source: Source, name: str, options: ReadOptions) -> Iterator[Finding]:
    carrier = Carrier(storage, name, source.budget)
    stop = 0
    for at, what in _candidates(storage, source.budget):
        if what == "member":
            yield Finding("E-SCAN-ARCHIVE", "error", "an embedded zip archive is not scanned; unpack it first", at)
            return
        if at >= stop:
            run = _run(carrier, at, options.allow_globals)
            yield from run.findings
            stop = run.stop


def appended_archive(source: Source) -> Finding | None:
    """A zip archive that ends a file of another format, so that other programs take the file for that archive."""
    size = min(source.size, TAIL)
    tail = source.read(source.size - size, size)
    at = tail.rfind(_END)
    if at < 0 or at + 22 > size or at + 22 + int.from_bytes(tail[at + 20 : at + 22], "little") != size:
        return None
    place = source.size - size + at
    why = "the file ends in a zip archive, which other programs read instead of the model"
    return Finding("E-SCAN-POLYGLOT", "danger", why, place)


def _candidates(storage: Storage, budget: Budget) -> Iterator[tuple[int, str]]:
    """Offsets at which a pickle or an archive member may begin, in order, each once."""
    last = -1
    for start, data in windows(storage, budget, WINDOW, OVERLAP):
        places = [(match.start(), "pickle") for match in _HEADER.finditer(data)]
        places += [(match.start(), "member") for match in _MEMBER.finditer(data)]
        places += [(at, "pickle") for at in _names(data)]
        for place, what in sorted(places):
            if start + place > last:
                last = start + place
                yield last, what


def _names(data: bytes) -> Iterator[int]:
    """Offsets of opcodes that import a name that runs code, in pickles of the old text form and in those without a
    header."""
    for match in _TEXTS.finditer(data):
        if _runs_code(match["module"], match["name"]):
            yield match.start()
    for match in _NAME_LINE.finditer(data):
        before = _MODULE_BEFORE.search(data, max(0, match.start() - 102), match.start())
        for at in range(before.start(), match.start()) if before is not None else ():
            if data[at] in b"ci" and _runs_code(data[at + 1 : match.start()], match["name"]):
                yield at - (data[at] in b"i" and data[at - 1 : at] == b"(")


def _runs_code(module: bytes, name: bytes) -> bool:
    return executing(f"{module.decode('ascii', 'replace')}.{name.decode()}")


def _run(carrier: Carrier, start: int, allowed: frozenset[str]) -> _Run:
    """Walk what may be a pickle. In one that breaks off, or has no header, only names that were called count, and those
    that run code."""
    machine = Machine(carrier, start)
    complete = True
    try:
        machine.run()
    except FormatError:
        complete = False
    carrier.budget.entry(1 + machine.operations // CHARGE, "bytes that look like pickles")
    headed = bytes(carrier.storage.read(start, start + 1)) == b"\x80"
    suspected = (
        machine.called
        if not headed
        else machine.globals
        if complete
        else [*machine.called, *filter(_executes, machine.globals)]
    )
    found = [
        Finding("E-PKL-GLOBAL", "danger", f"a pickle within the file asks Python to call {item.name!r}", item.at)
        for item in unknown(suspected, allowed)
    ]
    return _Run(machine.cursor.position if complete else start, found)


def _executes(item: Global) -> bool:
    return executing(item.name)
