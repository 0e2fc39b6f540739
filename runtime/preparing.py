"""Preparing: kernels that this machine has not compiled yet are compiled on all cores, in processes of their own, before a plan needs them.

This process then finds them in the cache, and loads no compiler itself.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import select
import signal
import threading
import warnings
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from . import keeping, machine
from .launch import cores
from .team import HELPERS
from .waiting import compiling

PATIENCE = 120
"""Seconds for the next of the kernels. A process may have been copied while a thread of some library held a lock: it then waits for ever."""
_SIGNAL_WITH_PARENT = 1
"""Of `prctl`: the signal that a process gets when the one ends that started it. Source: prctl(2), PR_SET_PDEATHSIG."""


def prepare(kernels: Iterable[Any], others: Callable[[bool], Iterable[Any]]) -> None:
    """Compile what is missing of some kernels, and of others, which will be needed later: `others` is told whether any of the first are missing.

    What cannot be compiled beforehand is left to the moment when it is called.
    """
    waiting = _missing(kernels)
    waiting |= _missing(others(bool(waiting)))
    if waiting:
        do_all([functools.partial(keeping.keep, kernel) for kernel in sorted(waiting.values(), key=_weight, reverse=True)])


def _missing(kernels: Iterable[Any]) -> dict[Path, Any]:
    """Kernels that would be kept and are not yet, by their place."""
    places = ((keeping.place(kernel), kernel) for kernel in dict.fromkeys(kernels) if "address" not in vars(kernel))
    return {path: kernel for path, kernel in places if path is not None and not path.exists()}


def do_all(tasks: Sequence[Callable[[], Any]]) -> None:
    """Do things that only leave something in the cache, on all cores."""
    say, count = compiling.get() or _nobody, min(cores(), len(tasks))
    if count and _alone():
        _in_processes(tasks, count, say)
        return
    say(0, len(tasks))
    for number, task in enumerate(tasks, 1):
        task()
        say(number, len(tasks))


def _nobody(done: int, total: int) -> None:
    pass


def _weight(kernel: Any) -> int:
    """About how long compiling takes: what is written by hand has loops of its own and calls others."""
    function = getattr(kernel, "function", None)
    return 0 if function is None else len(function.__code__.co_code) * (1 if function.__module__.startswith("elementwise_") else 8)


def _alone() -> bool:
    """Whether no other thread of Python's does anything that a copy of this process could find half done."""
    return machine.supported() and set(threading.enumerate()) <= {threading.current_thread(), *HELPERS.threads}


def _in_processes(tasks: Sequence[Callable[[], Any]], count: int, say: Callable[[int, int], None]) -> None:
    """Each process takes the number of the next task from one pipe, and says in another that it is done."""
    HELPERS.dismiss()
    numbers, given = os.pipe()
    finished, ended = os.pipe()
    os.set_blocking(given, False)  # those that find no room in the pipe are left to the moment when they are called
    os.write(given, b"".join(number.to_bytes(2, "little") for number in range(len(tasks))))
    os.close(given)
    workers: list[int] = []
    try:
        with contextlib.suppress(OSError):  # no room for more processes
            while len(workers) < count:
                workers.append(_forked(tasks, numbers, ended))
        os.close(numbers)
        os.close(ended)
        news = select.poll()
        news.register(finished)
        say(0, len(tasks))
        for number in range(1, len(tasks) + 1):
            if not news.poll(1000 * PATIENCE) or not os.read(finished, 1):
                say(len(tasks), len(tasks))
                break
            say(number, len(tasks))
    finally:
        os.close(finished)
        for worker in workers:
            with contextlib.suppress(ProcessLookupError, ChildProcessError):
                os.kill(worker, signal.SIGKILL)
                os.waitpid(worker, 0)


def _forked(tasks: Sequence[Callable[[], Any]], numbers: int, ended: int) -> int:
    """A new process that does tasks and ends: nothing that is raised in it, an interrupt for one, gets any further there."""
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
        while number := os.read(numbers, 2):
            tasks[int.from_bytes(number, "little")]()
            os.write(ended, b".")
        os._exit(0)
    finally:
        if os.getpid() != first:
            os._exit(0)
