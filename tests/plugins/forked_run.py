"""A run of collected tests in forked workers: hands out tests, reports outcomes, replaces workers that die."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable
from multiprocessing import connection as connections
from typing import Any

import pytest

from .work_queue import PREFETCHED, PREFETCHED_SHORT, SHORT_SECONDS, WorkQueue, path_of
from .worker import Worker
from .worker_process import Outcome, warning_of

POLL_SECONDS = 1.0
"""How often processes are looked for that died while a process of theirs holds their connection."""
GRACE_SECONDS = 1.0
"""Time for workers to notice an interrupt from the terminal, before one is sent to them."""
END_SECONDS = 30.0
"""Time to tear down fixtures and join threads, after which a worker is killed."""


class WorkerError(Exception):
    """An error in a worker that is not a test's."""


class ForkedRun:
    """Workers and what they have not run yet.

    Attributes:
        seconds: number and time of the tests of each file.
    """

    def __init__(self, session: pytest.Session, queue: WorkQueue) -> None:
        self.session, self.hook, self.queue = session, session.config.hook, queue
        self.workers: list[Worker] = []
        self.started = self.done = 0
        self.closing = False
        self.seconds: dict[str, tuple[int, float]] = {}

    def run(self, count: int) -> None:
        """Run all tests in this number of processes."""
        for _ in range(min(count, len(self.session.items))):
            self._start()
        while self.workers:
            self._poll(self._report)
        if failed := self.session.shouldfail:
            raise self.session.Failed(failed)
        if self.done != len(self.session.items):
            raise WorkerError(f"{self.done} of {len(self.session.items)} tests ran")

    def close(self) -> None:
        """End workers that are left, by an interrupt if they run a test; kill those that do not end."""
        self.closing = True
        try:
            for worker in self.workers:
                worker.stop()
            self._drain(GRACE_SECONDS)
            for worker in self.workers:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(worker.process.pid, signal.SIGINT)
            self._drain(END_SECONDS)
        finally:
            for worker in self.workers:
                worker.process.kill()
                worker.process.join()

    def _drain(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while self.workers and time.monotonic() < end:
            self._poll(lambda worker, outcome: None, 0.1)

    def _start(self) -> None:
        worker = Worker(self.session, self.started, self.workers)
        self.started += 1
        self.workers.append(worker)
        self._feed(worker)

    def _feed(self, worker: Worker) -> None:
        file = self.queue.take(self.workers)
        for other in self.workers:
            other.top_up(0)  # tells that the file ends, if its other tests were taken
        if file:
            worker.give(file, PREFETCHED)
        else:
            worker.stop()

    def _poll(self, receive: Callable[[Worker, Outcome], None], seconds: float = POLL_SECONDS) -> None:
        """Receive what workers have sent, and see which of them ended."""
        ready = connections.wait([worker.connection for worker in self.workers], seconds)
        for worker in [*self.workers]:
            if worker.connection in ready:
                outcome = worker.receive()
                if outcome is not None:
                    receive(worker, outcome)
                    continue
                worker.process.join(END_SECONDS)
            elif not worker.overdue(END_SECONDS) and (worker.process.is_alive() or worker.connection.poll()):
                continue
            self._ended(worker)

    def _report(self, worker: Worker, outcome: Outcome) -> None:
        """Pass on what a worker tells; send it more tests."""
        seconds = self._log(worker, outcome)
        if outcome.internal_error:
            raise WorkerError(outcome.internal_error)
        if outcome.exit is not None:
            raise pytest.exit.Exception(*outcome.exit)
        if outcome.interrupted:
            raise KeyboardInterrupt
        if failed := self.session.shouldfail or outcome.shouldfail:
            raise self.session.Failed(failed)
        if stopped := self.session.shouldstop or outcome.shouldstop:
            raise self.session.Interrupted(stopped)
        if outcome.last:
            worker.finished = time.monotonic()
            return
        self.done += 1
        worker.last = worker.sent.popleft()
        path = path_of(self.session.items[worker.last])
        number, total = self.seconds.get(path, (0, 0.0))
        self.seconds[path] = number + 1, total + seconds
        worker.top_up(PREFETCHED_SHORT if seconds < SHORT_SECONDS else PREFETCHED)
        if not worker.sent:
            self._feed(worker)

    def _log(self, worker: Worker, outcome: Outcome) -> float:
        """Call the hooks of reports and warnings; returns the time that the test took."""
        for entry in outcome.warnings:
            message = warning_of(entry.pop("plain"), entry.pop("place"))
            self.hook.pytest_warning_recorded.call_historic(kwargs={"warning_message": message, **entry})
        seconds = 0.0
        for data in outcome.reports:
            report = self.hook.pytest_report_from_serializable(config=self.session.config, data=data)
            seconds += report.duration
            self._log_report(worker, report)
        return seconds

    def _log_report(self, worker: Worker, report: Any) -> None:
        report.node = worker
        self.hook.pytest_runtest_logreport(report=report)
        if report.when == "teardown":
            self.hook.pytest_runtest_logfinish(nodeid=report.nodeid, location=report.location)

    def _ended(self, worker: Worker) -> None:
        """Forget a process. If it died, the test that it ran fails, and another one runs the others."""
        if worker.process.is_alive():
            worker.process.kill()
            worker.process.join()
        self.workers.remove(worker)
        worker.connection.close()
        if worker.finished is not None or self.closing:
            return
        self._log_death(worker)
        self.queue.put_back([*worker.sent, *worker.rest])
        if self.queue.left(self.workers) and not self.session.shouldfail:
            self._start()

    def _log_death(self, worker: Worker) -> None:
        """Report the test that a worker ran when it died, or the last one if it died afterwards."""
        running = bool(worker.sent)
        index = worker.sent.popleft() if running else worker.last
        if index is None:
            raise WorkerError(f"{worker.id} {worker.exit_text()} before its first test")
        item = self.session.items[index]
        text = f"{worker.id} {worker.exit_text()} {'while it ran' if running else 'after'} {item.nodeid}"
        failed = pytest.TestReport(item.nodeid, item.location, {}, "failed", text, "call" if running else "teardown")
        self._log_report(worker, failed)
        if running:
            self.done += 1
            self._log_report(worker, pytest.TestReport(item.nodeid, item.location, {}, "passed", None, "teardown"))
