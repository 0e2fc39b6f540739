"""A forked worker as its parent sees it."""

from __future__ import annotations

import contextlib
import multiprocessing
import signal
import time
import warnings
from collections import deque
from collections.abc import Iterable

import pytest

from . import worker_process


class Worker:
    """A process and the tests that it holds.

    Attributes:
        sent: indices of the tests that the process knows of; it runs the first.
        rest: the other tests of their file.
        ended: whether the process knows that its file ends after `sent`.
        last: the test that it finished last.
        stopped: whether it was told to end.
        finished: when it had torn down everything.
    """

    def __init__(self, session: pytest.Session, number: int, others: Iterable[Worker]) -> None:
        self.id = f"worker{number}"
        self.gateway, self._workerinfocache = self, f"[{self.id}]"  # what pytest prints of `report.node`
        self.sent, self.rest = deque[int](), deque[int]()
        self.ended = True
        self.last: int | None = None
        self.stopped = False
        self.finished: float | None = None
        self.connection, end = multiprocessing.Pipe()

        def work() -> None:
            for other in (*others, self):
                other.connection.close()
            worker_process.work(session, end, self.id)

        self.process = multiprocessing.get_context("fork").Process(target=work, name=self.id)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # libraries have threads, which sleep
            self.process.start()
        end.close()

    def give(self, file: deque[int], held: int) -> None:
        """Begin a file."""
        self.rest, self.ended = file, False
        self.top_up(held)

    def top_up(self, held: int) -> None:
        """Send tests until the process holds this number."""
        while self.rest and len(self.sent) < held:
            self.sent.append(self.rest.popleft())
            self._send(self.sent[-1])
        if not self.rest and not self.ended:
            self.ended = True
            self._send(worker_process.END_OF_FILE)

    def receive(self) -> worker_process.Outcome | None:
        """What the process sent; None if it ended."""
        try:
            return self.connection.recv()
        except (EOFError, OSError):
            return None

    def stop(self) -> None:
        if not self.stopped:
            self.stopped = True
            self._send(worker_process.STOP)

    def _send(self, value: int) -> None:
        with contextlib.suppress(OSError):  # the process died, which its parent is about to see
            self.connection.send(value)

    def overdue(self, seconds: float) -> bool:
        """Whether the process has torn down everything this long ago: threads of tests keep it alive."""
        return self.finished is not None and time.monotonic() > self.finished + seconds

    def exit_text(self) -> str:
        """How a process that died ended."""
        code = self.process.exitcode
        if code is None or code >= 0:
            return f"exited with code {code}"
        return f"was killed by {signal.Signals(-code).name}"
