"""Limits on memory, time, depth and entries of one call, checked before anything is allocated."""

from __future__ import annotations

import contextlib
import contextvars
import dataclasses
import re
import time
from collections.abc import Iterator

from .dataclass import dataclass
from .errors import LimitError, UsageError
from .units import counted

UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40}
SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600}


@dataclass(frozen=True)
class Limits:
    """Resource limits of one call.

    Attributes:
        header: bytes of header or metadata in memory (safetensors JSON, pickle stream, GGUF keys).
        memory: bytes a command may hold beyond its base memory. A run includes its weights, and may use all free
            memory unless `memory` is among `chosen`.
        time: seconds for reading headers, for a loop of a model and, if among `chosen`, for a whole run.
        depth: nesting of containers in a file.
        entries: tensors, keys, archive members or pickle objects in a file.
        zip_ratio: inflated bytes for one deflated byte, above 1 MiB.
        chosen: names of the limits that were set explicitly.
    """

    header: int = 100_000_000
    memory: int = 2 * 2**30
    time: float = 600.0
    depth: int = 64
    entries: int = 2_000_000
    zip_ratio: int = 100
    chosen: frozenset[str] = frozenset()


FIELDS = tuple(field.name for field in dataclasses.fields(Limits) if field.name != "chosen")
_current: contextvars.ContextVar[Limits] = contextvars.ContextVar("limits", default=Limits())  # noqa: B039 (immutable)


def current() -> Limits:
    """The limits in force here."""
    return _current.get()


def time_error(what: str, *, found: str | None = None) -> LimitError:
    """The error for an operator that runs longer than the time limit."""
    why = f"{what} runs for more than {current().time:g} s"
    return LimitError("E-RUN-TIME", None, why, found=found, hint="Raise it with --limit time=30m")


@contextlib.contextmanager
def limits(**changes: str | float) -> Iterator[Limits]:
    """Limits for the block: ``with limits(header="64MiB", time=60): ...``. Sizes take units, seconds take s, m, h."""
    token = _current.set(replaced(current(), changes))
    try:
        yield current()
    finally:
        _current.reset(token)


@contextlib.contextmanager
def in_force(given: Limits) -> Iterator[None]:
    """Limits for the block, those that another process had in force."""
    token = _current.set(given)
    try:
        yield
    finally:
        _current.reset(token)


def replaced(base: Limits, changes: dict[str, str | float]) -> Limits:
    """`base` with some fields replaced by values parsed from strings or numbers."""
    changes = {name.replace("-", "_"): value for name, value in changes.items()}
    for name in changes:
        if name not in FIELDS:
            raise UsageError("E-LIMIT-NAME", None, f"unknown limit {name!r}", hint=f"Limits: {', '.join(FIELDS)}")
    parsed = {name: seconds(value) if name == "time" else size(value) for name, value in changes.items()}
    return dataclasses.replace(base, chosen=base.chosen | parsed.keys(), **parsed)  # type: ignore[arg-type]


def size(value: str | float) -> int:
    """Bytes from ``5GB``, ``2GiB``, ``300M`` or a plain number."""
    return int(_scaled(value, r"([kmgt]i?)?b?", UNITS, "5GB, 2GiB"))


def seconds(value: str | float) -> float:
    """Seconds from ``90``, ``10m`` or ``1h``."""
    return _scaled(value, r"([smh])?", SECONDS, "90, 10m")


def _scaled(value: str | float, unit: str, factors: dict[str, int], examples: str) -> float:
    if not isinstance(value, str):
        return value
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*" + unit, value.strip().lower())
    if match is None:
        raise UsageError("E-LIMIT-VALUE", None, f"{value!r} is not a valid quantity", hint=f"Examples: {examples}")
    return float(match[1]) * factors[match[2] or ""]


class Budget:
    """Remaining limits of one open; readers charge it and it raises LimitError when one is exceeded."""

    def __init__(self, file: str, limits: Limits) -> None:
        self.file = file
        self.limits = limits
        self.header_left = limits.header
        self.entries_left = limits.entries
        self.deadline = time.monotonic() + limits.time

    def charge(self, nbytes: int, what: str, at: int | None = None) -> None:
        """Charge `nbytes` of header memory for `what`."""
        if nbytes > self.header_left:
            left = f"{self.header_left:,} are left of {self.limits.header:,}"
            why = f"{what} needs {counted(nbytes, 'byte')} of header memory, {left}"
            hint = "If you trust the file, raise it with --limit header=1GB"
            raise LimitError("E-LIMIT-HEADER", self.file, why, at=at, hint=hint)
        self.header_left -= nbytes

    def entry(self, count: int = 1, what: str = "entries", at: int | None = None) -> None:
        """Charge `count` entries, and check the deadline."""
        if count > self.entries_left:
            why = f"more than {self.limits.entries:,} {what}"
            hint = "If you trust the file, raise it with --limit entries=10000000"
            raise LimitError("E-LIMIT-ENTRIES", self.file, why, at=at, hint=hint)
        self.entries_left -= count
        if time.monotonic() > self.deadline:
            why = f"reading took more than {self.limits.time:g} s"
            raise LimitError("E-LIMIT-TIME", self.file, why, at=at, hint="Raise it with --limit time=30m")
