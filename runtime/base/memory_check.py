"""Memory check: whether a run fits the memory and work limits, before it starts."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from .errors import LimitError
from .limits import current
from .units import counted

MAX_OPERATIONS_PER_SECOND = 2e12
"""Upper bound per thread: a core's matrix unit on 8-bit integers."""
MAX_MEMORY = 1 << 46
"""Assumed bytes on systems that do not report free memory."""
MIN_CHECKED = 1 << 26
"""Smaller requests are not checked against free memory."""
RESERVED_SHARE = 0.05
"""Share of free memory that is left to other processes."""


def check_memory(need: int, weights: int, largest: str) -> None:
    """Raise LimitError if a run needs more memory than allowed, or than the machine has.

    Args:
        need: bytes without the weights; weights: bytes already held.
        largest: description of the node that needs the most.
    """
    chosen = "memory" in current().chosen
    if not chosen and need < MIN_CHECKED:
        return
    free = None if chosen else available()
    allowed, asked = (current().memory, need + weights) if chosen else (MAX_MEMORY if free is None else free, need)
    if asked <= allowed:
        return
    beside = "" if chosen else " beside its weights"
    what = f"this run needs {counted(asked, 'byte')}" + (
        f", {weights:,} of them for weights" if chosen and weights else beside
    )
    where = "are allowed" if chosen else "are free on this machine"
    hint = (
        "Raise it with --limit memory=8GiB, or feed smaller inputs"
        if chosen
        else "Feed smaller inputs, or use a machine with more memory"
    )
    raise LimitError(
        "E-RUN-MEMORY",
        None,
        f"{what}, {allowed:,} {where}" + (f"; the largest node is {largest}" if largest else ""),
        hint=hint,
    )


def check_weights(nbytes: int, read: int) -> None:
    """Raise LimitError if the weights alone exceed the memory limit.

    Args:
        read: bytes of them that are still in files.
    """
    chosen = "memory" in current().chosen
    if not chosen and read < MIN_CHECKED:
        return
    free = None if chosen else available()
    allowed, asked = (current().memory, nbytes) if chosen else (MAX_MEMORY if free is None else free, read)
    if asked > allowed:
        where = "are allowed" if chosen else "are free on this machine"
        hint = (
            "Raise it with --limit memory=8GiB, or quantize the model"
            if chosen
            else "Quantize the model, or use a machine with more memory"
        )
        raise LimitError(
            "E-RUN-MEMORY",
            None,
            f"the weights of this model are {counted(asked, 'byte')}, {allowed:,} {where}",
            hint=hint,
        )


def check_work(operations: float, threads: int, largest: str) -> None:
    """Raise LimitError if a run cannot finish within the time limit on any machine."""
    least = operations / (MAX_OPERATIONS_PER_SECOND * threads)
    if least > current().time:
        what = f"this run computes {operations:.3g} operations, for which {current().time:g} s are not enough"
        hint = "Raise it with --limit time=10h, or feed smaller inputs"
        raise LimitError("E-RUN-TIME", None, what + (f"; the largest node is {largest}" if largest else ""), hint=hint)


def available() -> int | None:
    """Bytes this process can still allocate, None if unknown."""
    found = [*_machine(), *_group(), *_address_space()]
    return int(max(0, min(found)) * (1 - RESERVED_SHARE)) if found else None


def _numbers(path: str) -> dict[str, int]:
    """Lines ``name: 12 kB`` of a file of the system."""
    text = _text(path)
    return {name: int(number) * 1024 for name, number in re.findall(r"^(\w+):\s+(\d+) kB", text, re.MULTILINE)}


def _text(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError:
        return ""


def _machine() -> Iterator[int]:
    free = _numbers("/proc/meminfo").get("MemAvailable")
    if free is not None:
        yield free
    elif hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        yield os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _group() -> Iterator[int]:
    """Free bytes of the control group and its parents."""
    for line in _text("/proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        root, limit, used = ("", "memory.max", "memory.current")
        if controllers:
            if "memory" not in controllers.split(","):
                continue
            root, limit, used = ("memory", "memory.limit_in_bytes", "memory.usage_in_bytes")
        folder = Path("/sys/fs/cgroup", root)
        own = folder / path.lstrip("/")
        for inner in (own, *(parent for parent in own.parents if parent.is_relative_to(folder))):
            most, taken = _text(f"{inner / limit}").strip(), _text(f"{inner / used}").strip()
            if most.isdecimal() and taken.isdecimal() and int(most) < 1 << 60:
                cached = re.search(r"^inactive_file (\d+)$", _text(f"{inner / 'memory.stat'}"), re.MULTILINE)
                yield int(most) - int(taken) + (int(cached[1]) if cached else 0)


def _address_space() -> Iterator[int]:
    try:
        import resource
    except ImportError:  # Windows
        return
    most, _ = resource.getrlimit(resource.RLIMIT_AS)
    taken = _numbers("/proc/self/status").get("VmSize")
    if most != resource.RLIM_INFINITY and taken is not None:
        yield most - taken
