"""Profiles: time of a run by node and by operator, and as a trace for browsers."""

from __future__ import annotations

import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, field
from typing import Any

from ...runtime.base.dataclass import dataclass
from ...runtime.execute.background_compile import BACKGROUND
from ...runtime.execute.timing import Clock, Event
from ...runtime.ir.graph import Node, Value
from ...runtime.jit.llvm_kernel import EmittedKernel
from ...runtime.plan.kernel_api import BaseLaunch, Buffer, Launch
from ...runtime.session import Session
from ..inspect.graph_summary import operator, type_text
from .flops import operations

PYTHON = "Python"
PROCESS, THREAD = 1, 1


@dataclass(frozen=True)
class Row:
    """The time of one node, or of all nodes of one operator, in a run.

    Attributes:
        how: names of the kernels, or that it ran in Python.
        nodes, calls: nodes, and launches or steps in one run.
        seconds: of a run, the median of all; those of subgraphs are the inner nodes' own.
        share: of the time of all nodes.
        operations: arithmetic of a run, None where it is not known.
        nbytes: what its kernels were given to read and write.
        types: of inputs and outputs.
    """

    name: str
    operator: str
    how: str
    nodes: int
    calls: int
    seconds: float
    share: float
    operations: float | None
    nbytes: float
    types: str = ""

    @property
    def gflops(self) -> float | None:
        """Billions of operations a second."""
        return self.operations / self.seconds / 1e9 if self.operations and self.seconds else None

    @property
    def gbytes(self) -> float | None:
        """Billions of bytes a second."""
        return self.nbytes / self.seconds / 1e9 if self.nbytes and self.seconds else None

    def to_json(self) -> dict[str, Any]:
        """All of it."""
        return {**asdict(self), "gflops": self.gflops, "gbytes_per_second": self.gbytes}


@dataclass
class Profile:
    """Timed runs.

    Attributes:
        runs: begin and end of each, in nanoseconds of the monotonic clock.
        events: of each run.
        nodes: by the time that they take, longest first; operators: the same summed.
        lost: launches whose time could not be noted.
    """

    runs: list[tuple[int, int]]
    events: list[list[Event]]
    nodes: list[Row] = field(default_factory=list)
    operators: list[Row] = field(default_factory=list)
    lost: int = 0

    @property
    def seconds(self) -> float:
        """The median run."""
        return statistics.median(end - begin for begin, end in self.runs) / 1e9

    @property
    def outside(self) -> float:
        """Seconds of the median run that no node took: feeding, handing out results, and Python between steps."""
        return max(0.0, self.seconds - sum(row.seconds for row in self.nodes))


def profile(session: Session, feeds: Mapping[str, Any], *, runs: int, warmup: int) -> Profile:
    """Run `warmup` times, then `runs` times with the clock."""
    for _ in range(warmup):
        session.run(None, feeds)
    BACKGROUND.pause()
    clock = Clock()
    made = Profile([], [])
    for _ in range(runs):
        clock.events = []
        began = time.monotonic_ns()
        session.run(None, feeds, clock=clock)
        made.runs.append((began, time.monotonic_ns()))
        made.events.append(clock.events)
    made.lost = clock.lost
    made.nodes = _rows(made.events)
    made.operators = _summed(made.nodes)
    return made


def _rows(runs: Sequence[Sequence[Event]]) -> list[Row]:
    seconds: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0] * len(runs))
    found: dict[tuple[str, str], list[Event]] = defaultdict(list)
    for number, events in enumerate(runs):
        for event, taken in zip(events, _own(events), strict=True):
            key = _key(event)
            seconds[key][number] += taken
            found[key].append(event)
    medians = {key: statistics.median(each) / 1e9 for key, each in seconds.items()}
    total = sum(medians.values()) or 1.0
    rows = [_row(key, found[key], medians[key], total, len(runs)) for key in medians]
    return sorted(rows, key=lambda row: -row.seconds)


def _own(events: Sequence[Event]) -> list[int]:
    """Nanoseconds of each event without those that happened inside it, which stand before it."""
    own: list[int] = []
    open_: list[tuple[int, int]] = []
    for event in events:
        inside = 0
        while open_ and open_[-1][0] >= event.began:
            inside += open_.pop()[1]
        length = event.ended - event.began
        own.append(length - inside)
        open_.append((event.began, length))
    return own


def _key(event: Event) -> tuple[str, str]:
    node = event.node
    if node is None:
        return ("", event.how or "")
    name = node.name or next((value.name for value in node.outputs if value.name), "")
    return (name, operator(node))


def _row(key: tuple[str, str], events: Sequence[Event], seconds: float, total: float, runs: int) -> Row:
    times = {id(event.node): event.node for event in events if event.node is not None}
    hows = dict.fromkeys(how(event) for event in events)
    calls: dict[tuple[int, int], int] = defaultdict(int)
    for event in events:
        calls[id(event.node), id(event.launch)] += 1
    nodes = list(times.values())
    applied = {id(node): max(count for (one, _), count in calls.items() if one == id(node)) for node in nodes}
    counted = [operations(node) for node in nodes]
    work = (
        None
        if None in counted
        else sum(float(one or 0) * applied[id(node)] for one, node in zip(counted, nodes, strict=True)) / runs
    )
    nbytes = sum(_nbytes(event) for event in events) / runs
    types = _types(nodes[-1]) if nodes else ""
    return Row(*key, ", ".join(hows), 1, round(len(events) / runs), seconds, seconds / total, work, nbytes, types)


def how(event: Event) -> str:
    """The name of the kernel that ran, a generated one's by the operators that it joins."""
    if event.how is not None:
        return event.how
    if event.launch is None:
        return PYTHON
    kernel: Any = event.launch.kernel
    if isinstance(kernel, EmittedKernel):
        return str(kernel)
    module = sys.modules.get(kernel.function.__module__)
    generated, text = "Generated from ", (getattr(module, "__doc__", None) or "")
    if text.startswith(generated):
        names = (part.rsplit(".", 1)[-1] for part in text.removeprefix(generated).rstrip(".").split(", "))
        return "+".join(names)
    return str(kernel)


def _nbytes(event: Event) -> int:
    if event.launch is not None:
        return buffers_nbytes(event.launch)
    node = event.node
    return 0 if node is None else sum(_value_nbytes(value) for value in (*node.inputs, *node.outputs))


def buffers_nbytes(launch: BaseLaunch) -> int:
    """Bytes of the buffers that a launch is given, each counted once."""
    spans = {(id(item.allocation), item.offset, item.nbytes) for item in launch.arguments if isinstance(item, Buffer)}
    return sum(nbytes for _, _, nbytes in spans)


def _value_nbytes(value: Value | None) -> int:
    if (
        value is None
        or value.dtype is None
        or value.shape is None
        or not all(isinstance(length, int) for length in value.shape)
    ):
        return 0
    count = 1
    for length in value.shape:
        count *= int(length or 0)
    return count * value.dtype.bits // 8


def _types(node: Node) -> str:
    inputs = ", ".join("-" if value is None else type_text(value) for value in node.inputs)
    return f"{inputs} -> {', '.join(type_text(value) for value in node.outputs if value.name)}"


def _summed(rows: Iterable[Row]) -> list[Row]:
    """Rows of the nodes, one for each operator."""
    groups: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        groups[row.operator].append(row)
    found = []
    for name, group in groups.items():
        hows = dict.fromkeys(part for row in group for part in row.how.split(", "))
        known = [row.operations for row in group]
        work = None if None in known else sum(one or 0.0 for one in known)
        times = (sum(row.seconds for row in group), sum(row.share for row in group))
        found.append(
            Row(
                "",
                name,
                ", ".join(hows),
                len(group),
                sum(row.calls for row in group),
                *times,
                work,
                sum(row.nbytes for row in group),
            )
        )
    return sorted(found, key=lambda row: -row.seconds)


def trace(made: Profile, model: str) -> dict[str, Any]:
    """The runs in the Trace Event Format, which chrome://tracing and Perfetto read: complete events, times in
    microseconds."""
    origin = made.runs[0][0]
    place = {"pid": PROCESS, "tid": THREAD}

    def complete(name: str, kind: str, began: int, ended: int, **arguments: Any) -> dict[str, Any]:
        return {
            "name": name,
            "cat": kind,
            "ph": "X",
            "ts": (began - origin) / 1e3,
            "dur": (ended - began) / 1e3,
            **place,
            "args": arguments,
        }

    events: list[dict[str, Any]] = [
        {"name": "process_name", "ph": "M", **place, "args": {"name": f"candle-convert {model}"}},
        {"name": "thread_name", "ph": "M", **place, "args": {"name": "run"}},
    ]
    for number, ((began, ended), steps) in enumerate(zip(made.runs, made.events, strict=True)):
        events.append(complete(f"run {number + 1}", "run", began, ended))
        for step in steps:
            name, kind = _key(step)
            details = {
                "node": name,
                "how": how(step),
                "parts": step.launch.parts if isinstance(step.launch, Launch) else 1,
            }
            types = "" if step.node is None else _types(step.node)
            place_of = "device" if step.how is not None else "python" if step.launch is None else "native"
            events.append(complete(kind or "?", place_of, step.began, step.ended, **details, types=types))
    return {"displayTimeUnit": "ms", "traceEvents": events}
