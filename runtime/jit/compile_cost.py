"""Compile cost: processor seconds of each stage of compiling a kernel, appended to a file as JSON lines.

``CANDLE_COMPILE_COST=FILE`` records every kernel that this process, and processes that it starts, compile. Without the
variable nothing is measured. The stages: ``import`` of Numba; ``translate``, from Python's bytecode to Numba's IR;
``type``, type inference; ``lower``, from Numba's IR to LLVM's; ``parse and link``, from LLVM's text to a module of all
that the kernel calls; ``optimize``, LLVM's passes; ``emit``, LLVM's code generator; ``relocate``, `linker.link`.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from ..base.dataclass import dataclass
from ..base.sha256 import sha256
from ..base.units import counted
from . import isa

VARIABLE = "CANDLE_COMPILE_COST"
SHORTEST_PASS = 0.001
"""Seconds of an LLVM pass from which it is recorded."""
_PASS = re.compile(r"(\d+\.\d+) \( *[\d.]+%\) +\d+\.\d+ \( *[\d.]+%\)  (\S+)$", re.MULTILINE)
"""Processor seconds of a pass, wall-clock seconds and its name, in LLVM's report, which has each line twice."""


@dataclass
class KernelCost:
    """The record of one compiled kernel.

    Attributes:
        store: name of its file in the kernel store; process: the id of the process that compiled it.
        seconds: processor seconds by stage; passes: seconds by LLVM pass.
        code: digest of the machine code; nbytes: its size.
        test: the test that asked for it.
    """

    kernel: str
    store: str
    level: str
    process: int
    seconds: dict[str, float]
    passes: dict[str, float]
    code: str
    nbytes: int
    test: str


class _Running(threading.local):
    """The kernel that a thread compiles: seconds by stage and by pass, those spent inside the open stages, and what is
    called after each stage."""

    seconds: dict[str, float] | None = None
    passes: dict[str, float]
    inside: list[float]
    on_stage: Callable[[str], None] | None = None


_running = _Running()


@contextlib.contextmanager
def kernel(name: str, store: str) -> Iterator[Callable[[bytes], None]]:
    """Record the compilation of a kernel; the caller passes the code to the function that it gets."""
    path = os.environ.get(VARIABLE)
    if not path or _running.seconds is not None:
        yield lambda code: None
        return
    _running.seconds, _running.passes, _running.inside = defaultdict(float), defaultdict(float), []
    try:
        yield lambda code: _append(Path(path), name, store, code)
    finally:
        _running.seconds = None


def _append(path: Path, name: str, store: str, code: bytes) -> None:
    cost = KernelCost(
        kernel=name,
        store=store,
        level=isa.level().name,
        process=os.getpid(),
        seconds={stage: round(seconds, 4) for stage, seconds in (_running.seconds or {}).items()},
        passes={name: round(seconds, 4) for name, seconds in _running.passes.items() if seconds >= SHORTEST_PASS},
        code=sha256(code).hexdigest()[:16],
        nbytes=len(code),
        test=os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" ")[0],
    )
    with contextlib.suppress(OSError), path.open("a") as file:  # a measurement stops no command
        file.write(json.dumps(vars(cost)) + "\n")


@contextlib.contextmanager
def stage(name: str) -> Iterator[None]:
    """Charge processor time to a stage, without that of stages inside of it."""
    if _running.seconds is None:
        yield
    else:
        with _charged(name):
            yield
    if _running.on_stage is not None:
        _running.on_stage(name)


@contextlib.contextmanager
def _charged(name: str) -> Iterator[None]:
    assert _running.seconds is not None
    start = time.thread_time()
    _running.inside.append(0.0)
    try:
        yield
    finally:
        spent = time.thread_time() - start
        _running.seconds[name] += spent - _running.inside.pop()
        if _running.inside:
            _running.inside[-1] += spent


@contextlib.contextmanager
def stages(on_stage: Callable[[str], None]) -> Iterator[None]:
    """Call `on_stage` with the name of each stage that ends in this thread within the block."""
    before, _running.on_stage = _running.on_stage, on_stage
    try:
        yield
    finally:
        _running.on_stage = before


def optimize(manager: Any, builder: Any, module: Any) -> None:
    """Run LLVM's passes on a module, timed one by one if the kernel is recorded."""
    with stage("optimize"):
        if _running.seconds is None:
            manager.run(module, builder)
            return
        builder.start_pass_timing()
        manager.run(module, builder)
        for seconds, name in set(_PASS.findall(builder.finish_pass_timing())):
            if name != "Total":
                _running.passes[name] += float(seconds)


@contextlib.contextmanager
def recorded(costs: list[KernelCost]) -> Iterator[None]:
    """Append, at the end, the records of all kernels compiled meanwhile by this process and by processes that it
    starts."""
    before = os.environ.get(VARIABLE)
    with tempfile.TemporaryDirectory(prefix="candle-cost-") as folder:
        os.environ[VARIABLE] = str(path := Path(folder, "kernels"))
        try:
            yield
        finally:
            os.environ.pop(VARIABLE)
            if before is not None:
                os.environ[VARIABLE] = before
            costs += read(path)


def read(path: Path) -> list[KernelCost]:
    """The records of a file, which is missing if no kernel was compiled."""
    return [KernelCost(**json.loads(line)) for line in path.read_text().splitlines()] if path.exists() else []


def tables(costs: Sequence[KernelCost], shown: int) -> Iterator[tuple[str, list[str]]]:
    """Titles and rows of tables: seconds by stage, LLVM pass, level and kernel, and kernels compiled in vain."""
    stages = _summed((stage, spent) for cost in costs for stage, spent in cost.seconds.items())
    passes = _summed((name, spent) for cost in costs for name, spent in cost.passes.items())
    levels = _summed((cost.level, _spent([cost])) for cost in costs)
    kernels = _summed((cost.kernel, _spent([cost])) for cost in costs)
    count = Counter(cost.kernel for cost in costs)
    yield f"{counted(len(costs), 'kernel')}, {_spent(costs):.1f} processor seconds", _rows(stages)
    yield "LLVM passes", _rows(passes[:16])
    yield "ISA levels", _rows(levels)
    yield "dearest kernels", _rows([(f"{count[name]:5}  {name}", spent) for name, spent in kernels[:shown]])
    stores = {cost.store: cost for cost in costs}.values()
    repeated = (
        ("compiled by more than one process", _repeats(costs, "store")),
        ("of equal code under different keys", _repeats(stores, "code")),
    )
    yield (
        "compiled in vain",
        _rows([(f"{counted(len(again), 'kernel')} {why}", _spent(again)) for why, again in repeated]),
    )


def _summed(seconds: Iterable[tuple[str, float]]) -> list[tuple[str, float]]:
    """The sum of each name, largest first."""
    total: defaultdict[str, float] = defaultdict(float)
    for name, spent in seconds:
        total[name] += spent
    return sorted(total.items(), key=lambda item: -item[1])


def _rows(seconds: Iterable[tuple[str, float]]) -> list[str]:
    return [f"{spent:9.1f}  {name}" for name, spent in seconds]


def _repeats(costs: Iterable[KernelCost], field: str) -> list[KernelCost]:
    """Records with a value of a field that an earlier one has."""
    seen: set[str] = set()
    repeats = []
    for cost in costs:
        value = getattr(cost, field)
        if value in seen:
            repeats.append(cost)
        seen.add(value)
    return repeats


def _spent(costs: Iterable[KernelCost]) -> float:
    return sum(sum(cost.seconds.values()) for cost in costs)
