"""Compile estimate: seconds until kernels are compiled, from the size of their functions and the speed so far.

The seconds of a kernel grow with the bytecode of its function and of all functions that it calls. They are scaled by
the measured speed: of earlier runs on this machine, kept in the cache, and of this run.
"""

from __future__ import annotations

import contextlib
import heapq
import math
import os
import sys
import time
import types
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..base.compile_progress import CompileProgress
from ..base.dataclass import dataclass
from ..jit import code_cache

WARM_UP_SECONDS = 2.0
"""Until a process has typed its first function: it imports Numba, which registers all types that it knows."""
WARM_UP_WEIGHT = 0.4
"""Weight of the warm-up's speed in the estimate: it waits for the disk."""
KERNEL_SECONDS, BYTE_SECONDS = 0.08, 2.4e-4
"""Seconds of any Numba kernel, and of a byte of its bytecode; fitted to 164 kernels of five models (AVX-512)."""
EMITTED_SECONDS, EMITTED_BYTE_SECONDS = 0.03, 6e-5
"""The same for kernels whose LLVM instructions a function emits."""
UNKNOWN_SECONDS = 0.7
"""Seconds of a kernel whose module is not imported."""
FRONT_END, OPTIMIZED = 0.45, 0.85
"""Shares of a kernel's seconds until its LLVM module is built, and until it is optimized."""
PRIOR_SECONDS = 1.5
"""Weight of the speed of earlier runs, in estimated seconds of this run."""
EPSILON = 1e-6
"""Shares that differ by less are equal: workers write them as f32."""
SPEEDS = 0.1, 30.0
"""Bounds of a stored speed."""
SPEED_FILE = "compile-speed"


@dataclass(frozen=True)
class Work:
    """Estimated seconds of compiling a kernel, and the functions that are typed and lowered for it."""

    seconds: float = UNKNOWN_SECONDS
    functions: int = 1


def work_of(kernel: Any) -> Work:
    """The estimate for a `RangeKernel` or an `EmittedKernel`."""
    function = getattr(kernel, "function", None)
    if function is not None:
        sizes = _bytecode_sizes(function)
        return Work(KERNEL_SECONDS + BYTE_SECONDS * sum(sizes), len(sizes))
    emitting = getattr(kernel, "write", None)
    return Work(EMITTED_SECONDS + EMITTED_BYTE_SECONDS * sum(_bytecode_sizes(emitting)))


def _bytecode_sizes(function: Any) -> list[int]:
    """Bytes of bytecode of a function and of each Python function that it refers to, directly or indirectly."""
    seen, pending = set(), [function]
    while pending:
        function = pending.pop()
        if isinstance(function, types.FunctionType) and function not in seen:
            seen.add(function)
            pending += _references(function)
    return [len(function.__code__.co_code) for function in seen]


def _references(function: types.FunctionType) -> list[Any]:
    names = function.__code__.co_names
    values = [function.__globals__.get(name) for name in names]
    modules = [value for value in values if isinstance(value, types.ModuleType)]
    values += [vars(module).get(name) for module in modules for name in names]
    for cell in function.__closure__ or ():
        with contextlib.suppress(ValueError):  # not assigned yet
            values.append(cell.cell_contents)
    return values


class _Running:
    """A task that a worker compiles.

    Attributes:
        began: when its worker took it or was warm; since: when its last stage ended.
        first, share: shares of the task that were done at these times.
    """

    def __init__(self, began: float, share: float) -> None:
        self.began = self.since = began
        self.first = self.share = share


class CompileEstimate:
    """The estimate for tasks that `workers` processes take in order.

    Args:
        works: of each task, the dearest first.
        speed: seconds that one estimated second takes on an idle machine; None for that of earlier runs.
    """

    def __init__(self, works: Sequence[Work], workers: int, speed: float | None = None) -> None:
        imported = "numba" in sys.modules
        self._warm_ups = [0.0 if imported or task >= workers else WARM_UP_SECONDS for task in range(len(works))]
        self._works = works
        self._seconds = [work.seconds + first for work, first in zip(works, self._warm_ups, strict=True)]
        self._workers = workers
        self._contention = _contention(workers)
        self._prior = (stored_speed() if speed is None else speed) * self._contention
        self._running: dict[int, _Running] = {}
        self._finished: set[int] = set()
        self._spent = self._estimated = 0.0
        self._typed: defaultdict[int, int] = defaultdict(int)
        self._share = 0.0

    def start(self, task: int) -> None:
        """A worker has taken a task."""
        self._running[task] = _Running(time.monotonic(), 0.0)

    def advance(self, task: int, share: float) -> None:
        """A share of a task is done; 1 ends it."""
        now, running = time.monotonic(), self._running[task]
        if share <= self._warm_up_share(task) + EPSILON:
            self._spent += WARM_UP_WEIGHT * (now - running.began)
            self._estimated += WARM_UP_WEIGHT * WARM_UP_SECONDS
            self._running[task] = _Running(now, share)
            return
        running.since, running.share = now, share
        if share == 1:
            self._finished.add(task)
            self._spent += now - running.began
            self._estimated += self._seconds[task] * (1 - running.first)
            del self._running[task]

    def share_after(self, task: int, stage: str) -> float | None:
        """The share of a task that is done after a stage of `compile_cost`; None if that is not known."""
        first = self._warm_up_share(task)
        if stage == "type":  # once a function, those that it calls before it
            self._typed[task] += 1
        typed = self._typed[task] - (first > 0)
        done = {
            "type": FRONT_END * min(1.0, typed / (self._works[task].functions + 1)),
            "parse and link": FRONT_END,
            "optimize": OPTIMIZED,
        }.get(stage)
        return None if done is None else first + done * (1 - first)

    def progress(self) -> CompileProgress:
        """The state now; `share` never falls."""
        now = time.monotonic()
        speed = self._speed(now)
        shares = dict.fromkeys(self._finished, 1.0)
        speeds = {task: self._own_speed(task, running, now, speed) for task, running in self._running.items()}
        shares |= {task: self._share_now(task, running, now, speeds[task]) for task, running in self._running.items()}
        done = sum(self._seconds[task] * share for task, share in shares.items())
        self._share = max(self._share, done / sum(self._seconds)) if len(self._finished) < len(self._works) else 1.0
        left = self._seconds_left(shares, speeds, speed)
        return CompileProgress(len(self._finished), len(self._works), self._share, left)

    def store(self) -> None:
        """Keep the speed of this run for later ones."""
        path = _speed_file()
        if path is not None and self._estimated:
            with contextlib.suppress(OSError):
                code_cache.write_text(path, f"{self._speed(time.monotonic()) / self._contention:.3f}\n")

    def _warm_up_share(self, task: int) -> float:
        return self._warm_ups[task] / self._seconds[task]

    def _next_share(self, task: int, share: float) -> float:
        """The share at which the next stage ends."""
        first = self._warm_up_share(task)
        ends = (first, first + FRONT_END * (1 - first), first + OPTIMIZED * (1 - first))
        return next((end for end in ends if end > share + EPSILON), 1.0)

    def _speed(self, now: float) -> float:
        """Seconds that one estimated second takes: what stages took, and at least what open stages have taken."""
        spent, estimated = self._prior * PRIOR_SECONDS + self._spent, PRIOR_SECONDS + self._estimated
        spent_so_far, estimated_next = spent, estimated
        for task, running in self._running.items():
            seconds = self._seconds[task]
            spent, estimated = (
                spent + running.since - running.began,
                estimated + seconds * (running.share - running.first),
            )
            spent_so_far += now - running.began
            estimated_next += seconds * (self._next_share(task, running.share) - running.first)
        return max(spent / estimated, spent_so_far / estimated_next)

    def _own_speed(self, task: int, running: _Running, now: float, speed: float) -> float:
        """The speed of a running task, whose estimate may be far from its seconds, as far as it is known."""
        done = self._seconds[task] * (self._next_share(task, running.share) - running.first)
        at_least = (now - running.began) / done
        known = running.share - running.first
        if not known:
            return max(speed, at_least)
        own = (running.since - running.began) / (self._seconds[task] * known)
        return max(speed ** (1 - known) * own**known, at_least)

    def _share_now(self, task: int, running: _Running, now: float, speed: float) -> float:
        """The share of a running task that is done, between the last stage and the end of the next."""
        gap = self._next_share(task, running.share) - running.share
        return running.share + gap * math.tanh((now - running.since) / (speed * gap * self._seconds[task]))

    def _seconds_left(self, shares: dict[int, float], speeds: dict[int, float], speed: float) -> float:
        """Seconds until the last worker ends, if each takes the next task when it has finished one."""
        ends = [own * self._seconds[task] * (1 - shares[task]) for task, own in speeds.items()]
        ends += [0.0] * (self._workers - len(ends))
        heapq.heapify(ends)
        for task, seconds in enumerate(self._seconds):
            if task not in shares:
                heapq.heapreplace(ends, ends[0] + speed * seconds)
        return max(ends)


def _contention(workers: int) -> float:
    """The slowdown of workers by other processes, from the load average."""
    try:
        load = os.getloadavg()[0]
    except OSError:
        return 1.0
    return max(1.0, (load + workers) / (os.cpu_count() or 1))


def stored_speed() -> float:
    """The speed of earlier runs; 1 without any."""
    path = _speed_file()
    text = None if path is None else code_cache.read_cached(path, 64)
    with contextlib.suppress(ValueError):
        speed = float(text or b"")
        if math.isfinite(speed):
            return min(max(speed, SPEEDS[0]), SPEEDS[1])
    return 1.0


def _speed_file() -> Path | None:
    kernels = code_cache.folder()
    return None if kernels is None else kernels.with_name(SPEED_FILE)
