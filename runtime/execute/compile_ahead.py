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
import struct
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from ..base.compile_progress import CompileProgress, compile_time, report
from ..jit import code_cache, compile_cost, kernel_store, numba_lazy
from ..plan.kernel_api import cores
from .compile_estimate import CompileEstimate, Work, work_of
from .thread_team import HELPERS

TIMEOUT_SECONDS = 120
"""Seconds until the next stage of a kernel must be finished. A worker forked while a library thread held a lock may
hang."""
REPORT_SECONDS = 0.1
"""Seconds between reports of progress."""
RECORD = struct.Struct("<Hf")
"""A worker's record: the index of a task, and its share that is done."""
_SIGNAL_WITH_PARENT = 1
"""`prctl` option: signal sent to a process when its parent ends. Source: prctl(2), PR_SET_PDEATHSIG."""


def prepare(kernels: Iterable[Any], others: Callable[[], Iterable[Any]]) -> bool:
    """Compile missing kernels, and with them those of `others`, which is called only if any are missing. Returns
    whether any were.

    Kernels that cannot be compiled ahead are compiled when they are first called.
    """
    pending = missing(kernels)
    if not pending:
        return False
    report(CompileProgress(0, 0))
    with compile_time():
        pending |= missing(others())
    compile_all(pending)
    return True


def compile_all(pending: dict[Path, Any]) -> None:
    """Compile kernels in parallel, those that take longest first."""
    if pending:
        works = sorted(((work_of(kernel), kernel) for kernel in pending.values()), key=_seconds, reverse=True)
        run_all([functools.partial(kernel_store.store, kernel) for _, kernel in works], [work for work, _ in works])


def _seconds(item: tuple[Work, Any]) -> float:
    return item[0].seconds


def missing(kernels: Iterable[Any]) -> dict[Path, Any]:
    """Kernels whose code is not in the store, by path."""
    places = (
        (kernel_store.path_of(kernel), kernel) for kernel in dict.fromkeys(kernels) if "address" not in vars(kernel)
    )
    return {path: kernel for path, kernel in places if path is not None and not code_cache.holds(path)}


def run_all(tasks: Sequence[Callable[[], Any]], works: Sequence[Work] | None = None) -> None:
    """Run tasks whose only effect is a file in the cache, in parallel on all cores. One after the other they run in
    this process, if it has loaded the compiler already.

    Args:
        works: estimate for each task, the dearest first.
    """
    count = min(cores(), len(tasks))
    parallel = count > ("numba" in sys.modules) and can_fork()
    estimate = CompileEstimate(works or [Work()] * len(tasks), count if parallel else 1)
    with compile_time(len(tasks)):
        complete = _in_processes(tasks, count, estimate) if parallel else _in_this_process(tasks, estimate)
    if complete and works is not None:
        estimate.store()


def _in_this_process(tasks: Sequence[Callable[[], Any]], estimate: CompileEstimate) -> bool:
    def advance(number: int, share: float) -> None:
        estimate.advance(number, share)
        report(estimate.progress())

    report(estimate.progress())
    for number, task in enumerate(tasks):
        estimate.start(number)
        with compile_cost.stages(_share_reporter(number, estimate, functools.partial(advance, number))):
            task()
        advance(number, 1.0)
    return True


def _share_reporter(task: int, estimate: CompileEstimate, advance: Callable[[float], None]) -> Callable[[str], None]:
    """The callback after each stage of a task."""

    def on_stage(stage: str) -> None:
        share = estimate.share_after(task, stage)
        if share is not None:
            advance(share)

    return on_stage


def can_fork() -> bool:
    """Whether this process can fork safely: no Python threads but this one and sleeping helpers."""
    return code_cache.supported() and set(threading.enumerate()) <= {threading.current_thread(), *HELPERS.threads}


def _in_processes(tasks: Sequence[Callable[[], Any]], count: int, estimate: CompileEstimate) -> bool:
    """Workers take task indices from one pipe, and write a record of each finished stage and task to another. False if
    they end or hang before all tasks are finished."""
    HELPERS.dismiss()
    task_reader, task_writer = os.pipe()
    record_reader, record_writer = os.pipe()
    os.set_blocking(task_writer, False)  # tasks that do not fit the pipe are compiled on first call
    os.write(task_writer, b"".join(number.to_bytes(2, "little") for number in range(len(tasks))))
    os.close(task_writer)
    workers: list[int] = []
    try:
        with contextlib.suppress(OSError):  # process limit or memory reached
            while len(workers) < count:
                workers.append(forked(functools.partial(_work, tasks, task_reader, record_writer, estimate)))
        os.close(task_reader)
        os.close(record_writer)
        report(estimate.progress())
        complete = _follow(record_reader, len(tasks), estimate)
        if not complete:
            report(CompileProgress(len(tasks), len(tasks), 1.0))
        return complete
    finally:
        os.close(record_reader)
        for worker in workers:
            with contextlib.suppress(ProcessLookupError, ChildProcessError):
                os.kill(worker, signal.SIGKILL)
                os.waitpid(worker, 0)


def _follow(reader: int, count: int, estimate: CompileEstimate) -> bool:
    """Report progress until `count` tasks are finished; False if the workers end or hang before."""
    poll = select.poll()
    poll.register(reader)
    heard = time.monotonic()
    while count:
        if poll.poll(1000 * min(REPORT_SECONDS, TIMEOUT_SECONDS)):
            records = os.read(reader, 64 * RECORD.size)
            if not records:
                return False
            heard = time.monotonic()
            for task, share in RECORD.iter_unpack(records):
                if share:
                    estimate.advance(task, share)
                else:
                    estimate.start(task)
                count -= share == 1
        elif time.monotonic() - heard >= TIMEOUT_SECONDS:
            return False
        report(estimate.progress())
    return True


def _work(tasks: Sequence[Callable[[], Any]], task_reader: int, record_writer: int, estimate: CompileEstimate) -> None:
    """Run tasks by their indices until none is left, and report their stages."""
    numba_lazy.compile_only()
    while number := os.read(task_reader, 2):
        task = int.from_bytes(number, "little")

        def record(share: float, task: int = task) -> None:
            os.write(record_writer, RECORD.pack(task, share))

        record(0.0)
        with compile_cost.stages(_share_reporter(task, estimate, record)):
            tasks[task]()
        record(1.0)


def forked(work: Callable[[], None]) -> int:
    """Fork a worker that calls `work` and exits, or ends with this thread; returns its process id. Exceptions never
    leave the worker."""
    first = os.getpid()
    status = 1
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # threads that are not Python's sleep meanwhile
            worker = os.fork()
        if worker:
            return worker
        ctypes.CDLL(None).prctl(_SIGNAL_WITH_PARENT, signal.SIGKILL)
        if os.getppid() != first:
            return 0
        work()
        status = 0
    finally:
        if os.getpid() != first:
            os._exit(status)
    return 0
