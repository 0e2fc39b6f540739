"""Job queue: one thread that runs models, each time with the inputs of all queued requests that fit together."""

from __future__ import annotations

import contextvars
import threading
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future
from typing import Any

MAX_ITEMS = 64
"""Inputs that jobs are joined up to."""
Compute = Callable[[list[Any], Callable[[], None]], Sequence[Any]]
"""Results of inputs, one each; the second argument raises `Abandoned` where nobody waits for them any more."""


class Abandoned(Exception):
    """Nobody waits for the results."""


class Job:
    """Inputs of one request.

    Attributes:
        key: jobs with equal keys are computed together; None for a job that runs alone.
        compute: makes the results; the same for equal keys.
        future: gets the results.
        abandoned: whether nobody waits for them.
    """

    def __init__(self, key: Hashable | None, items: list[Any], compute: Compute) -> None:
        self.key, self.items, self.compute = key, items, compute
        self.future: Future[list[Any]] = Future()
        self.abandoned = False

    def cancel(self) -> None:
        """Drop the job, or stop it at its next step."""
        self.abandoned = True


class JobQueue:
    """Runs jobs in order on a thread of its own until it is closed."""

    def __init__(self) -> None:
        self._jobs: deque[Job] = deque()
        self._changed = threading.Condition()
        self._closing = False
        self._running: list[Job] = []
        context = contextvars.copy_context()  # limits of the command
        self._thread = threading.Thread(target=context.run, args=(self._loop,), name="jobs", daemon=True)
        self._thread.start()

    @property
    def queued(self) -> int:
        """Jobs that have not begun."""
        return len(self._jobs)

    def submit(self, job: Job) -> Job:
        """Queue a job."""
        with self._changed:
            self._jobs.append(job)
            self._changed.notify()
        return job

    def drop(self, job: Job) -> None:
        """Cancel a job. One that waits leaves the queue at once, with what it holds."""
        job.cancel()
        with self._changed:
            if job not in self._jobs:
                return
            self._jobs.remove(job)
        job.future.set_exception(Abandoned())

    def close(self) -> None:
        """Drop the jobs that wait, stop the running one at its next step, and end the thread."""
        with self._changed:
            self._closing = True
            for job in (*self._jobs, *self._running):
                job.cancel()
            self._changed.notify()
        self._thread.join()

    def _loop(self) -> None:
        while True:
            with self._changed:
                while not self._jobs and not self._closing:
                    self._changed.wait()
                if not self._jobs:
                    return
                self._running = batch = self._next_batch()
            _run(batch)
            self._running = []

    def _next_batch(self) -> list[Job]:
        """The first job, and those behind it that are computed with it."""
        first = self._jobs.popleft()
        batch, count = [first], len(first.items)
        if first.key is None:
            return batch
        for job in list(self._jobs):
            if job.key == first.key and count + len(job.items) <= MAX_ITEMS:
                self._jobs.remove(job)
                batch.append(job)
                count += len(job.items)
        return batch


def _run(batch: list[Job]) -> None:
    """Set the results of jobs. Where they fail together each is run alone, so that none suffers from another."""
    waited = [job for job in batch if not job.abandoned]
    for job in batch:
        if job.abandoned:
            job.future.set_exception(Abandoned())
    if not waited:
        return

    def check() -> None:
        if all(job.abandoned for job in waited):
            raise Abandoned

    try:
        results = list(waited[0].compute([item for job in waited for item in job.items], check))
    except Exception as error:
        if len(waited) == 1 or isinstance(error, Abandoned):
            for job in waited:
                job.future.set_exception(error)
        else:
            for job in waited:
                _run([job])
        return
    begin = 0
    for job in waited:
        job.future.set_result(results[begin : begin + len(job.items)])
        begin += len(job.items)
