"""Work on many things by several threads; the first error stops all, and none is left running behind an interrupt."""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections.abc import Callable, Iterable
from typing import TypeVar

Item = TypeVar("Item")

LONGEST = 0.1
"""Seconds until threads are looked at again although none has said that it ended: an interrupt may have swallowed that."""


class Workers:
    """Threads that call one function, and what can be waited for safely.

    `Thread.join` cannot: where an interrupt ends its waiting, Python 3.11 takes the thread, which still runs, for ended
    (the except clause of `threading.Thread._wait_for_tstate_lock`); nor an `Event`, whose lock an interrupt can leave open.
    """

    def __init__(self, work: Callable[[], object], threads: int) -> None:
        self._work = work
        self._running = threads
        self._lock = threading.Lock()
        self._wake = queue.SimpleQueue[None]()
        for _ in range(threads):
            threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        try:
            self._work()
        finally:
            with self._lock:
                self._running -= 1
            self._wake.put(None)

    def wait(self, seconds: float) -> bool:
        """Whether all have ended, at most `seconds` later."""
        until = time.monotonic() + seconds
        while self._running and (left := until - time.monotonic()) > 0:
            with contextlib.suppress(queue.Empty):
                self._wake.get(timeout=left)
        return not self._running

    def finish(self) -> None:
        """Wait for all, which have been told to stop, through further interrupts: they still use what the caller is about to close."""
        while self._running:
            with contextlib.suppress(KeyboardInterrupt):
                self.wait(LONGEST)


def each(work: Callable[[Item], object], items: Iterable[Item], threads: int) -> None:
    """Call `work` with every item, in any order, by `threads` threads, the calling one among them."""
    waiting, lock = iter(items), threading.Lock()
    errors: list[BaseException] = []

    def take() -> None:
        while not errors:
            with lock:
                item = next(waiting, lock)
            if item is lock:
                return
            try:
                work(item)  # type: ignore[arg-type]
            except BaseException as error:
                errors.append(error)

    others = Workers(take, threads - 1)
    try:
        take()
    except BaseException as interrupt:
        errors.append(interrupt)
    others.finish()
    if errors:
        raise errors[0]
