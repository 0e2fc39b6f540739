"""Benchmarks of a model: each engine in its own process, with alternating runs."""

from __future__ import annotations

import contextlib
import multiprocessing
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from ...runtime.base import out_of_memory
from ...runtime.base.dataclass import dataclass
from ...runtime.base.errors import FileAccessError, UnsupportedError
from ..console.child_process import start
from ..console.memory import peak_rss

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

Runner = Callable[[Mapping[str, Any]], object]


@dataclass(frozen=True)
class Measured:
    """Seconds and bytes of one engine.

    Attributes:
        load: from opening the model to being ready; first: of the first run.
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


def _ours(path: str, threads: int | None, placed: Mapping[str, Any]) -> Runner:
    from ...runtime.session import Session
    from ..api import convert

    session = Session(convert.open(path), threads=threads, **placed)
    return lambda feeds: session.run(None, feeds)


def _onnxruntime(path: str, threads: int | None, placed: Mapping[str, Any]) -> Runner:
    try:
        import onnxruntime
    except ModuleNotFoundError as error:
        raise UnsupportedError(
            "E-BENCH-PEER", None, "onnxruntime is not installed", hint="pip install onnxruntime"
        ) from error
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads or 0
    name, _, number = placed.get("device", "cpu").partition(":")
    providers: list[Any] = ["CPUExecutionProvider"]
    if name == "cuda":
        if "CUDAExecutionProvider" not in onnxruntime.get_available_providers():
            raise UnsupportedError(
                "E-BENCH-PEER", None, "this onnxruntime has no CUDA provider", hint="pip install onnxruntime-gpu"
            )
        providers = [("CUDAExecutionProvider", {"device_id": int(number or 0)}), *providers]
    session = onnxruntime.InferenceSession(path, options, providers=providers)
    return lambda feeds: session.run(None, dict(feeds))


ENGINES: dict[str, Callable[[str, int | None, Mapping[str, Any]], Runner]] = {
    "candle-convert": _ours,
    "onnxruntime": _onnxruntime,
}


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
    """Run every engine `runs` times, in turn, `placed` as options of `Session` say; the error of an engine that fails
    is raised here."""
    context = multiprocessing.get_context("spawn")
    pipes: list[Connection] = []
    workers = []
    try:
        for engine in engines:
            here, there = context.Pipe()
            worker = context.Process(
                target=_serve, args=(there, engine, path, dict(feeds), threads, dict(placed or {})), daemon=True
            )
            start(worker)
            there.close()
            pipes.append(here)
            workers.append(worker)
        ready = [_answer(pipe, engine) for pipe, engine in zip(pipes, engines, strict=True)]
        seconds: list[list[float]] = [[] for _ in engines]
        for run in range(warmup + runs):
            for pipe, engine, found in zip(pipes, engines, seconds, strict=True):
                _tell(pipe, "run")
                taken = _answer(pipe, engine)
                if run >= warmup:
                    found.append(taken)
        for pipe in pipes:
            _tell(pipe, "stop")
        peaks = [_answer(pipe, engine) for pipe, engine in zip(pipes, engines, strict=True)]
    finally:
        for worker in workers:
            worker.kill()
    times = zip(engines, ready, seconds, peaks, strict=True)
    return [Measured(engine, load, first, found, peak) for engine, (load, first), found, peak in times]


def _tell(pipe: Connection, what: str) -> None:
    with contextlib.suppress(BrokenPipeError):  # its answer says that it died
        pipe.send(what)


def _answer(pipe: Connection, engine: str) -> Any:
    try:
        answer = pipe.recv()
    except (EOFError, ConnectionResetError) as error:
        if out_of_memory.address_space() is not None:
            raise out_of_memory.memory_error(f"the process of {engine} ended") from error
        raise FileAccessError("E-BENCH-DIED", None, f"{engine} died", hint="See its messages above") from error
    if isinstance(answer, Exception):
        raise answer
    return answer


def _serve(
    pipe: Connection, engine: str, path: str, feeds: dict[str, Any], threads: int | None, placed: dict[str, Any]
) -> None:
    """The process of one engine: load, run once, then run whenever it is asked to."""
    try:
        start = time.perf_counter()
        runner = ENGINES[engine](path, threads, placed)
        loaded = time.perf_counter()
        runner(feeds)
        pipe.send((loaded - start, time.perf_counter() - loaded))
        while pipe.recv() == "run":
            start = time.perf_counter()
            runner(feeds)
            pipe.send(time.perf_counter() - start)
        pipe.send(peak_rss())
    except Exception as error:  # whatever the engine raises is the caller's to see
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # the caller has ended
            pipe.send(error)
