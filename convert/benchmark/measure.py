"""Times of engines: each runs in a process of its own, in turns, and is stopped while the others run.

Threads of some engines spin for a while after a run, and would take the cores from the next engine. A stopped process
takes none, and goes on spinning at its next turn, as if it had run alone.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import statistics
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from ...runtime.base import out_of_memory
from ...runtime.base.compile_progress import Stopwatch, on_compile
from ...runtime.base.dataclass import dataclass
from ...runtime.base.errors import Error, FileAccessError, UnsupportedError, printable
from ..console.child_process import start
from ..console.memory import peak_rss
from .engines import ENGINES, OURS, Runner

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

TURNS = 5
"""Turns of each engine, which begin with an untimed run: it reads again what others took out of the caches."""
PAUSE = 0.1
"""Seconds before and after a turn where processes cannot be stopped (Windows)."""


@dataclass(frozen=True)
class Measured:
    """Seconds and bytes of one engine.

    Attributes:
        load: from opening the model to being ready; first: of the first run, without compiling kernels, which happens
            once per machine.
        seconds: of each timed run.
        peak: most resident memory of its process.
    """

    engine: str
    load: float
    first: float
    seconds: list[float]
    peak: int

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)

    @property
    def p90(self) -> float:
        """The time that nine of ten runs keep to."""
        return sorted(self.seconds)[min(len(self.seconds) - 1, len(self.seconds) * 9 // 10)]

    def to_json(self) -> dict[str, Any]:
        """All of it."""
        return {**asdict(self), "median": self.median, "p90": self.p90}


class _Process:
    """The process of one engine, which is stopped but for its turns."""

    def __init__(self, engine: str, *settings: Any) -> None:
        self.engine = engine
        context = multiprocessing.get_context("spawn")
        self._pipe, there = context.Pipe()
        self._process = context.Process(target=_serve, args=(there, engine, *settings), daemon=True)
        start(self._process)
        there.close()

    def turn(self, request: Any = None) -> Any:
        """The answer to a request; without one, of what the process begins with."""
        if request is not None:
            self._signal("SIGCONT")
            with contextlib.suppress(BrokenPipeError):  # its answer says that it died
                self._pipe.send(request)
        answer = self._answer()
        self._signal("SIGSTOP")
        self._await_stop()
        if isinstance(answer, Exception):
            raise answer
        return answer

    def kill(self) -> None:
        self._process.kill()

    def _signal(self, name: str) -> None:
        number, identity = getattr(signal, name, None), self._process.pid
        if number is None or identity is None:
            time.sleep(PAUSE)
        elif self._process.is_alive():
            os.kill(identity, number)

    def _await_stop(self) -> None:
        """Wait until its last thread has stopped (or it has ended): on a busy machine that is later than the signal."""
        identity = self._process.pid
        if hasattr(os, "waitid") and identity is not None and self._process.is_alive():
            os.waitid(os.P_PID, identity, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def _answer(self) -> Any:
        try:
            return self._pipe.recv()
        except (EOFError, ConnectionResetError) as error:
            if out_of_memory.address_space() is not None:
                raise out_of_memory.memory_error(f"the process of {self.engine} ended") from error
            why = f"{self.engine} died"
            raise FileAccessError("E-BENCH-DIED", None, why, hint="See its messages above") from error


def measure(
    engines: Sequence[str],
    path: str,
    feeds: Mapping[str, Any],
    *,
    runs: int,
    warmup: int,
    threads: int | None,
    placed: Mapping[str, Any] | None = None,
) -> list[Measured]:
    """Load engines one after another, then run each `runs` times, in turns, `placed` as options of `Session` say; the
    error of an engine that fails is raised here.

    Args:
        warmup: untimed runs of each engine before its timed ones; later turns begin with one, if there are any.
    """
    processes: list[_Process] = []
    begun, seconds = [], defaultdict[str, list[float]](list)
    try:
        for engine in engines:
            processes.append(_Process(engine, path, dict(feeds), threads, dict(placed or {})))
            begun.append(processes[-1].turn())
        for turn, count in enumerate(_turns(runs)):
            for process in processes:
                seconds[process.engine] += process.turn((min(warmup, 1) if turn else warmup, count))
        peaks = [process.turn("peak") for process in processes]
    finally:
        for process in processes:
            process.kill()
    rows = zip(engines, begun, peaks, strict=True)
    return [Measured(engine, load, first, seconds[engine], peak) for engine, (load, first), peak in rows]


def _turns(runs: int) -> list[int]:
    """Runs of each turn."""
    return [count for turn in range(TURNS) if (count := runs * (turn + 1) // TURNS - runs * turn // TURNS)]


def _serve(
    pipe: Connection, engine: str, path: str, feeds: dict[str, Any], threads: int | None, placed: dict[str, Any]
) -> None:
    """The process of one engine: load, run once, then run as often as it is asked to."""
    on_compile(None)
    try:
        watch = Stopwatch()
        runner = ENGINES[engine](path, threads, placed)
        load, watch = watch.seconds, Stopwatch()
        runner(feeds)
        pipe.send((load, watch.seconds))
        while (request := pipe.recv()) != "peak":
            untimed, timed = request
            for _ in range(untimed):
                runner(feeds)
            pipe.send([_seconds(runner, feeds) for _ in range(timed)])
        pipe.send(peak_rss())
    except Exception as error:  # whatever the engine raises is the caller's to see
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # the caller has ended
            pipe.send(error if engine == OURS or isinstance(error, Error) else _refused(engine, error))


def _refused(engine: str, error: Exception) -> UnsupportedError:
    """The error where another engine cannot run a model."""
    text = printable((str(error).strip() or type(error).__name__).partition("\n")[0])[:200]
    hint = f"Leave out --against {engine}"
    return UnsupportedError("E-BENCH-PEER", None, f"{engine} cannot run the model: {text}", hint=hint)


def _seconds(runner: Runner, feeds: Mapping[str, Any]) -> float:
    start = time.perf_counter()
    runner(feeds)
    return time.perf_counter() - start
