"""Background compilation: one idle process compiles the kernels of expected shapes while models already run."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable

from ..base.compile_progress import on_compile
from . import compile_ahead
from .thread_team import HELPERS

NICENESS = 19


class BackgroundCompiler:
    """Runs tasks in a forked process that uses a core only while nothing else does, and that ends with this one."""

    def __init__(self) -> None:
        self._tasks: list[Callable[[], None]] = []
        self._worker = 0
        self._owner = os.getpid()

    def add(self, task: Callable[[], None]) -> None:
        """Run a task after those that are not finished; it must pass over what is in the cache, since it starts again
        after `pause`. Without effect in a process that cannot fork."""
        self.pause()
        self._tasks.append(task)
        self.resume()

    def pause(self) -> None:
        """Stop the process, so that kernels needed now are compiled first."""
        if self._owner != os.getpid():  # the tasks are those of the process that forked this one
            self._tasks, self._worker, self._owner = [], 0, os.getpid()
        if not self._worker:
            return
        with contextlib.suppress(ProcessLookupError, ChildProcessError):
            ended, status = os.waitpid(self._worker, os.WNOHANG)
            if ended and status == 0:
                self._tasks.clear()
            elif not ended:
                os.kill(self._worker, signal.SIGKILL)
                os.waitpid(self._worker, 0)
        self._worker = 0

    def finish(self) -> None:
        """Wait until all tasks are done."""
        if self._worker and self._owner == os.getpid():
            with contextlib.suppress(ChildProcessError):
                os.waitpid(self._worker, 0)
        self._tasks, self._worker = [], 0

    def resume(self) -> None:
        """Start the process again, if tasks are left."""
        self.pause()
        if self._tasks and compile_ahead.can_fork():
            HELPERS.dismiss()
            with contextlib.suppress(OSError):  # process limit or memory reached
                self._worker = compile_ahead.forked(self._run)

    def _run(self) -> None:
        null = os.open(os.devnull, os.O_RDWR)
        for stream in range(3):  # whoever reads this process's output does not wait for the worker
            os.dup2(null, stream)
        os.nice(NICENESS)
        with contextlib.suppress(OSError):
            os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
        on_compile(None)
        for task in self._tasks:
            task()


BACKGROUND = BackgroundCompiler()
"""The background compiler of this process."""
