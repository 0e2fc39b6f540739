"""Compile-ahead: compiles missing kernels in parallel processes before a plan needs them.

This process then finds them in the cache, and loads no compiler itself.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import select
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from ..base.compile_progress import compiling
from ..jit import code_cache, kernel_store
from ..plan.kernel_api import cores
from .thread_team import HELPERS

TIMEOUT_SECONDS = 120
"""Seconds until the next kernel must be finished. A worker forked while a library thread held a lock may hang."""
_SIGNAL_WITH_PARENT = 1
"""`prctl` option: signal sent to a process when its parent ends. Source: prctl(2), PR_SET_PDEATHSIG."""


def prepare(kernels: Iterable[Any], others: Callable[[bool], Iterable[Any]]) -> None:
    """Compile missing kernels, and those that later runs need: `others` is called with whether any are missing.

    Kernels that cannot be compiled ahead are compiled when they are first called.
    """
    pending = _missing(kernels)
    pending |= _missing(others(bool(pending)))
    if pending:
        run_all(
            [
                functools.partial(kernel_store.store, kernel)
                for kernel in sorted(pending.values(), key=_compile_cost, reverse=True)
            ]
        )


def _missing(kernels: Iterable[Any]) -> dict[Path, Any]:
    """Kernels whose code is not in the store, by path."""
    places = (
        (kernel_store.path_of(kernel), kernel) for kernel in dict.fromkeys(kernels) if "address" not in vars(kernel)
    )
    return {path: kernel for path, kernel in places if path is not None and not path.exists()}


def run_all(tasks: Sequence[Callable[[], Any]]) -> None:
    """Run tasks whose only effect is a file in the cache, in parallel on all cores. One after the other they run in
    this process, if it has loaded the compiler already."""
    report, count = compiling.get() or _ignore_progress, min(cores(), len(tasks))
    if count > ("numba" in sys.modules) and _can_fork():
        _in_processes(tasks, count, report)
        return
    report(0, len(tasks))
    for number, task in enumerate(tasks, 1):
        task()
        report(number, len(tasks))


def _ignore_progress(done: int, total: int) -> None:
    pass


def _compile_cost(kernel: Any) -> int:
    """Estimated compile time: hand-written kernels have loops and call other functions."""
    function = getattr(kernel, "function", None)
    return (
        0
        if function is None
        else len(function.__code__.co_code) * (1 if function.__module__.startswith("elementwise_") else 8)
    )


def _can_fork() -> bool:
    """Whether this process can fork safely: no Python threads but this one and sleeping helpers."""
    return code_cache.supported() and set(threading.enumerate()) <= {threading.current_thread(), *HELPERS.threads}


def _in_processes(tasks: Sequence[Callable[[], Any]], count: int, report: Callable[[int, int], None]) -> None:
    """Workers take task indices from one pipe and report each finished task in another."""
    HELPERS.dismiss()
    task_reader, task_writer = os.pipe()
    done_reader, done_writer = os.pipe()
    os.set_blocking(task_writer, False)  # tasks that do not fit the pipe are compiled on first call
    os.write(task_writer, b"".join(number.to_bytes(2, "little") for number in range(len(tasks))))
    os.close(task_writer)
    workers: list[int] = []
    try:
        with contextlib.suppress(OSError):  # process limit or memory reached
            while len(workers) < count:
                workers.append(_forked(tasks, task_reader, done_writer))
        os.close(task_reader)
        os.close(done_writer)
        poll = select.poll()
        poll.register(done_reader)
        report(0, len(tasks))
        for number in range(1, len(tasks) + 1):
            if not poll.poll(1000 * TIMEOUT_SECONDS) or not os.read(done_reader, 1):
                report(len(tasks), len(tasks))
                break
            report(number, len(tasks))
    finally:
        os.close(done_reader)
        for worker in workers:
            with contextlib.suppress(ProcessLookupError, ChildProcessError):
                os.kill(worker, signal.SIGKILL)
                os.waitpid(worker, 0)


def _forked(tasks: Sequence[Callable[[], Any]], task_reader: int, done_writer: int) -> int:
    """Fork a worker that runs tasks and exits; returns its process id. Exceptions never leave the worker."""
    first = os.getpid()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # threads that are not Python's sleep meanwhile
            worker = os.fork()
        if worker:
            return worker
        ctypes.CDLL(None).prctl(_SIGNAL_WITH_PARENT, signal.SIGKILL)
        if os.getppid() != first:
            return 0
        while number := os.read(task_reader, 2):
            tasks[int.from_bytes(number, "little")]()
            os.write(done_writer, b".")
        os._exit(0)
    finally:
        if os.getpid() != first:
            os._exit(0)
