"""Thread pool: the first error stops all workers, and an interrupt leaves none running."""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections.abc import Callable, Iterable
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")

LONGEST = 0.1
"""Seconds until threads are looked at again although none has said that it ended: an interrupt may have swallowed that,
and one that arrives just before the wait begins does not end it."""


class Workers:
    """Threads that call one function, and what can be waited for safely.

    `Thread.join` cannot: if an interrupt ends the wait, Python 3.11 takes the thread, which still runs, for ended
    (the except clause of `threading.Thread._wait_for_tstate_lock`); nor an `Event`, whose lock an interrupt can leave
    open.
    """

    def __init__(self, work: Callable[[], object], threads: int) -> None:
        self._work = work
        self._threads = threads
        self._running = self._ended = 0
        self._over = False
        self._lock = threading.Lock()
        self._wake = queue.SimpleQueue[None]()

    def start(self, least: int = 1) -> None:
        """Start all, or where the system allows fewer that many, which are at least `least`: RuntimeError otherwise.

        An interrupt meanwhile leaves some out, `finish` knows which.
        """
        for number in range(self._threads):
            try:
                threading.Thread(target=self._run, daemon=True).start()
            except RuntimeError:
                self._threads = number
                if number < least:
                    raise
                return

    def _run(self) -> None:
        with self._lock:
            if self._over:
                return
            self._running += 1
        try:
            self._work()
        finally:
            with self._lock:
                self._running -= 1
                self._ended += 1
            self._wake.put(None)

    def wait(self, seconds: float) -> bool:
        """Whether all have ended, at most `seconds` later."""
        until = time.monotonic() + seconds
        while self._ended < self._threads and (left := until - time.monotonic()) > 0:
            self._look(min(left, LONGEST))
        return self._ended == self._threads

    def _look(self, seconds: float) -> None:
        with contextlib.suppress(queue.Empty):
            self._wake.get(timeout=seconds)

    def finish(self) -> None:
        """Wait for running jobs, which were asked to stop, and start no others: they use what the caller is about to
        close.

        What is raised meanwhile by interrupts and other signals is raised in the end.
        """
        raised: BaseException | None = None
        busy = True
        while busy:
            try:
                with self._lock:
                    self._over, busy = True, self._running > 0
                if busy:
                    self._look(LONGEST)
            except BaseException as interrupt:
                raised = raised or interrupt
        if raised is not None:
            raise raised


def each(work: Callable[[Item], object], items: Iterable[Item], threads: int) -> None:
    """Call `work` with every item, in any order, by `threads` threads, the calling one among them."""
    pending, lock = iter(items), threading.Lock()
    errors: list[BaseException] = []

    def take() -> None:
        while not errors:
            with lock:
                item = next(pending, lock)
            if item is lock:
                return
            try:
                work(item)  # type: ignore[arg-type]
            except BaseException as error:
                errors.append(error)

    others = Workers(take, threads - 1)
    try:
        others.start(least=0)
        take()
    except BaseException as interrupt:
        errors.append(interrupt)
    finally:
        others.finish()
    if errors:
        raise errors[0]


def results(work: Callable[[Item], Result], items: Iterable[Item], threads: int) -> list[Result]:
    """The results of `work` for every item, in order."""
    found: dict[int, Result] = {}
    each(lambda numbered: found.__setitem__(numbered[0], work(numbered[1])), list(enumerate(items)), threads)
    return [found[number] for number in range(len(found))]
