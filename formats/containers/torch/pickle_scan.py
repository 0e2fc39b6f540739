"""Security scan of pickles: every name that is not allow-listed, and everything that could not be read completely.

All members of an archive are looked at, whatever they are called; so are pickles after the first one.
"""

from __future__ import annotations

import contextlib
import dataclasses
import re
from collections.abc import Iterator

from ....runtime.base.dataclass import dataclass
from ....runtime.base.errors import Error
from ....runtime.base.limits import Budget
from ....runtime.base.units import counted
from ....runtime.contract.format import Finding, ReadOptions
from ....runtime.tensor.file import Source
from ....runtime.tensor.storage import Held, Region
from .. import tar, zip
from ..compressed import compression
from ..pickle.cursor import Carrier
from ..pickle.joblib_arrays import WRAPPER, JoblibMachine
from ..pickle.machine import Global, Machine
from ..pickle.opcodes import HIGHEST_PROTOCOL, OPCODES
from .allowed_names import executing, unknown
from .legacy_stream import MAGIC, carrier_of, read_stream
from .legacy_tar import MEMBERS, read_tar

PROTO = 0x80
PICKLE_NAME = re.compile(r".*(\.p|\.pkl|\.pickle|_pkl|\.joblib|\.dill)", re.IGNORECASE)
IDENTIFIERS = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")
ARCHIVES = re.compile(
    rb"PK\x03\x04|PK\x05\x06|7z\xbc\xaf\x27\x1c|\x1f\x8b|BZh[1-9]|\xfd7zXZ\x00|\x28\xb5\x2f\xfd|\x04\x22\x4d\x18|Rar!"
)
CODE = re.compile(r"[^/]+/code/.*\.(py|debug_pkl)")
TORCH_PICKLES = 5
"""Pickles at the start of torch's stream format, before the storages."""
HEAD = 512
TRIAL_ENTRIES, TRIAL_BYTES = 50_000, 1 << 24
"""Limit of the work to find out whether a file is a pickle."""


@dataclass(frozen=True)
class Scanned:
    """The result of scanning one pickle: findings, the machine that ran it, and whether it ran to its end."""

    findings: list[Finding]
    machine: Machine
    whole: bool
    value: object = None


def scan_pickle(
    carrier: Carrier, start: int, options: ReadOptions, *, member: str | None = None, script: bool = False
) -> Scanned:
    """Run one pickle; each name that is not accepted is a danger, and so is not reaching the end.

    One with arrays of joblib is run as joblib's loader and as Python's own, which takes the bytes of the arrays for
    opcodes.
    """
    machine = Machine(carrier, start)
    value, error = _run(machine)
    names = machine.globals
    if error is not None and any(name.name == WRAPPER for name in names):
        called = [name for name in machine.called if executing(name.name)]
        machine = JoblibMachine(carrier, start)
        value, error = _run(machine)
        names = [*machine.globals, *called]
    findings = []
    if error is not None:
        findings.append(
            Finding(error.code, "danger", f"the pickle could not be read whole: {error.why}", error.offset, member)
        )
    whole = not findings
    findings += [
        _name_finding(name, member) for name in unknown(names, options.allow_globals, made=machine.made, script=script)
    ]
    for name, at in machine.unusual[:1]:
        findings.append(
            Finding(
                "W-PKL-OPCODE",
                "warning",
                f"the opcode {name} is not what today's writers use",
                carrier.base + at,
                member,
            )
        )
    return Scanned(findings, machine, whole, value)


def _run(machine: Machine) -> tuple[object, Error | None]:
    """The value that a machine ends with, or the error that ended it."""
    try:
        return machine.run(), None
    except Error as error:
        return None, error


def _name_finding(name: Global, member: str | None) -> Finding:
    why = "which can run code" if executing(name.name) else "which is not in the table of harmless names"
    return Finding("E-PKL-GLOBAL", "danger", f"asks Python to import `{name.name}`, {why}", name.at, member)


def scan_pickles(
    carrier: Carrier, options: ReadOptions, *, member: str | None = None, script: bool = False
) -> Iterator[Finding]:
    """All pickles from the start of `carrier` to its end, one after the other."""
    at, end = 0, carrier.storage.nbytes
    while at < end or not end:
        scanned = scan_pickle(carrier, at, options, member=member, script=script)
        if at:
            yield Finding("E-PKL-TRAILING", "warning", "another pickle follows the first", carrier.base + at, member)
        yield from scanned.findings
        at = scanned.machine.cursor.position
        if not scanned.whole:
            return


def suspicious(
    carrier: Carrier, options: ReadOptions, *, member: str | None = None, script: bool = False
) -> list[Finding]:
    """Findings about bytes not declared to be a pickle that would run code if loaded as one."""
    machine = Machine(carrier)
    with contextlib.suppress(Error):
        machine.run()
    called = [name for name in machine.called if IDENTIFIERS.fullmatch(name.name)]
    return [
        _name_finding(name, member) for name in unknown(called, options.allow_globals, made=machine.made, script=script)
    ]


def is_pickle(source: Source) -> bool:
    """Whether a file is a pickle: by its protocol mark and a valid opcode after it, or, for protocols 0 and 1, by
    running to its end."""
    head = source.head(3)
    if len(head) < 2:
        return False
    if head[0] == PROTO:
        return head[1] <= HIGHEST_PROTOCOL and head[2:] != b"" and head[2] in OPCODES
    if head[0] not in OPCODES:
        return False
    tried = dataclasses.replace(source.budget.limits, entries=TRIAL_ENTRIES, header=TRIAL_BYTES)
    machine = Machine(Carrier(Region(source, 0, source.size), source.path, Budget(source.path, tried)))
    try:
        machine.run()
    except Error:
        return any(IDENTIFIERS.fullmatch(name.name) for name in machine.called)
    return machine.cursor.position == source.size or bool(machine.called)


def scan_file(source: Source, options: ReadOptions) -> Iterator[Finding]:
    """Findings about a torch file or raw pickle, whatever its suffix."""
    if zip.looks_like(source):
        yield from _guarded(scan_zip(source, options))
    elif tar.looks_like(source):
        yield from _guarded(_scan_tar(source, options))
    else:
        yield from _guarded(_scan_stream(source, options))


def _guarded(findings: Iterator[Finding]) -> Iterator[Finding]:
    """The findings, and what stopped the search."""
    try:
        yield from findings
    except Error as error:
        yield Finding(error.code, "danger", f"could not be read whole: {error.why}", error.offset)


def _scan_stream(source: Source, options: ReadOptions) -> Iterator[Finding]:
    carrier = carrier_of(source)
    first = scan_pickle(carrier, 0, options)
    if not first.whole or first.value != MAGIC:
        yield from scan_pickles(carrier, options)
        return
    at, safe = 0, True
    for _ in range(TORCH_PICKLES):
        scanned = scan_pickle(carrier, at, options)
        yield from scanned.findings
        at, safe = (
            scanned.machine.cursor.position,
            safe and not any(finding.severity == "danger" for finding in scanned.findings),
        )
        if not scanned.whole:
            return
    if safe:
        read_stream(source, first.machine.cursor.position, options.allow_globals)


def _scan_tar(source: Source, options: ReadOptions) -> Iterator[Finding]:
    safe = True
    for name, region in tar.members(source).items():
        carrier = Carrier(region, f"{source.path}!{name}", source.budget)
        if name in MEMBERS[1:]:
            continue
        found = (
            list(scan_pickles(carrier, options, member=name))
            if name in ("sys_info", MEMBERS[0])
            else _scan_other(carrier, options, name)
        )
        safe = safe and not any(finding.severity == "danger" for finding in found)
        yield from found
    if safe:
        read_tar(source, options.allow_globals)


def scan_zip(source: Source, options: ReadOptions) -> Iterator[Finding]:
    """Findings about every member of a zip archive."""
    archive = zip.Archive(source)
    script = any(name.endswith("/constants.pkl") for name in archive.members)
    code = [name for name in archive.members if CODE.fullmatch(name)]
    if code:
        why = (
            f"holds TorchScript code ({counted(len(code), 'file')}), which torch.jit.load would compile; "
            "nothing here reads it"
        )
        yield Finding("W-PTH-CODE", "info", why)
    unchecked: list[str] = []
    for name, member in archive.members.items():
        try:
            if member.crc:
                archive.check_crc(member)
            elif member.nbytes:
                unchecked.append(name)
            storage = archive.storage(member)
            carrier = Carrier(storage, f"{source.path}!{name}", source.budget)
            if not isinstance(storage, Region):
                source.budget.charge(member.nbytes, f"member {name!r}", at=member.at)
                carrier = Carrier(Held(storage.read(0, member.nbytes)), carrier.file, source.budget)
            yield from _scan_member(archive, carrier, options, name, script)
        except Error as error:
            yield Finding(error.code, "danger", error.why, error.offset, name)
    if unchecked:
        yield Finding(
            "W-ZIP-CRC",
            "info",
            f"{counted(len(unchecked), 'member', verb='has')} no checksum, which torch can leave out",
            None,
            unchecked[0],
        )


def _scan_member(
    archive: zip.Archive, carrier: Carrier, options: ReadOptions, name: str, script: bool
) -> Iterator[Finding]:
    head = bytes(carrier.storage.read(0, min(3, carrier.storage.nbytes)))
    marked = len(head) == 3 and head[0] == PROTO and head[1] <= HIGHEST_PROTOCOL and head[2] in OPCODES
    if _is_storage(archive, name):
        yield from suspicious(carrier, options, member=name, script=script)
    elif PICKLE_NAME.fullmatch(name) or marked:
        yield from scan_pickles(carrier, options, member=name, script=script)
    else:
        yield from _scan_other(carrier, options, name, script=script)


def _is_storage(archive: zip.Archive, name: str) -> bool:
    """Whether a member is a tensor's bytes by torch's naming: ``X/data/0`` next to ``X/data.pkl``."""
    folder, _, key = name.rpartition("/")
    return key.isdigit() and f"{folder}.pkl" in archive.members


def _scan_other(carrier: Carrier, options: ReadOptions, name: str, *, script: bool = False) -> list[Finding]:
    """Findings about a member that is neither a pickle nor a storage by its name."""
    head = bytes(carrier.storage.read(0, min(HEAD, carrier.storage.nbytes)))
    if ARCHIVES.match(head) or head[257:262] == b"ustar" or compression(head) is not None:
        return [
            Finding("E-SCAN-NESTED", "danger", "is an archive inside the archive, which is not looked into", 0, name)
        ]
    return suspicious(carrier, options, member=name, script=script)
