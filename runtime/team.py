"""Teams: the thread that leads a run and those that help it. Helpers are shared by all sessions of the process, and sleep between runs."""

from __future__ import annotations

import contextlib
import ctypes
import os
import queue
import sys
import threading
from collections.abc import Callable, Sequence

import numpy as np

from .launch import CALL, UNLESS, cores
from .native import CLOCK, CLOSED, DONE, GIVE_WAY, INSTRUCTION, TEAM_WORDS, TICKET, help_team, walk


class Helper:
    """One thread that helps.

    Attributes:
        thread: its number with the system.
        core: where it was when its last help ended, -1 for unknown.
        kept: the cores that it may use once it is awake, None where it was not sent away.
    """

    def __init__(self, thread: int) -> None:
        self.thread = thread
        self.core = -1
        self.kept: set[int] | None = None


class Helpers:
    """Threads that wait for teams to help."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._forget()

    def _forget(self) -> None:
        self._calls: queue.SimpleQueue[np.ndarray | None] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._known: list[Helper] = []
        self._process = os.getpid()
        self._most = sys.maxsize

    def call(self, team: np.ndarray, count: int) -> None:
        """Ask `count` threads to help a team; those that come too late find it closed."""
        if len(self._threads) < min(count, self._most) or self._process != os.getpid():
            self._start(count)
        here = CURRENT_CORE()
        for helper in self._known:
            if helper.core == here >= 0:
                _send_away(helper, here)
        for _ in range(count):
            self._calls.put(team)

    def _start(self, count: int) -> None:
        help_them = help_team.call  # loaded here: a helper could still hold the locks for that when this process is copied, where nobody opens them
        with self._lock:
            if self._process != os.getpid():
                self._forget()
            while len(self._threads) < min(count, self._most):
                thread = threading.Thread(target=self._serve, args=(self._calls, self._known, help_them), name="candle-convert helper", daemon=True)
                try:
                    thread.start()
                except RuntimeError:  # no memory or no number for another; those that there are do
                    self._most = len(self._threads)
                    return
                self._threads.append(thread)

    def dismiss(self) -> None:
        """End all threads, where nothing else runs in this process; the next call starts others."""
        with self._lock:
            threads, calls = self._threads, self._calls
            self._forget()
            for _ in threads:
                calls.put(None)
            for thread in threads:
                thread.join()

    @property
    def threads(self) -> Sequence[threading.Thread]:
        """Those that wait, or help."""
        return tuple(self._threads)

    @staticmethod
    def _serve(calls: queue.SimpleQueue[np.ndarray | None], known: list[Helper], help_them: Callable[[int, int, int], None]) -> None:
        own = Helper(threading.get_native_id())
        known.append(own)
        while (team := calls.get()) is not None:
            if own.kept is not None:
                cores, own.kept = own.kept, None
                _allow(0, cores)
            block = (ctypes.c_int64 * 2)(team.ctypes.data, GIVE_WAY)
            help_them(ctypes.addressof(block), 0, 1)
            own.core = CURRENT_CORE()


def _send_away(helper: Helper, here: int) -> None:
    """Let a helper wake up on another core than the caller's, where the system would let it wait for milliseconds beside an idle one."""
    cores = os.sched_getaffinity(0)
    if len(cores) > 1:
        helper.kept, helper.core = cores, -1
        _allow(helper.thread, cores - {here})


def _allow(thread: int, cores: set[int]) -> None:
    """The cores that a thread may use; it stays as it is where the system has taken them away meanwhile."""
    with contextlib.suppress(OSError):
        os.sched_setaffinity(thread, cores)


def _current_core() -> Callable[[], int]:
    """What tells the core that the calling thread is on, -1 where the system does not say."""
    if hasattr(os, "sched_setaffinity") and sys.platform == "linux":
        with contextlib.suppress(AttributeError):  # a C library without it
            found: Callable[[], int] = ctypes.PyDLL(None).sched_getcpu
            return found
    return lambda: -1


CURRENT_CORE = _current_core()
HELPERS = Helpers()


class Code:
    """Instructions for `walk`, whose arguments lie in `words`."""

    def __init__(self, code: Sequence[tuple[int, int, int, int]], words: np.ndarray) -> None:
        self._words = words
        self._code = np.array(code, np.int64)
        kinds, base = self._code[:, 0], words.ctypes.data
        for kind, column in ((CALL, 2), (UNLESS, 1)):
            self._code[kinds == kind, column] = base + 8 * self._code[kinds == kind, column]
        self._address = self._code.ctypes.data
        room = np.zeros(TEAM_WORDS + 8, np.int64)
        first = -room.ctypes.data % 64 // 8
        self._team = room[first : first + TEAM_WORDS]
        self._team_address = self._team.ctypes.data

    def walk(self, start: int, stop: int, threads: int, log: int = 0) -> None:
        """Run instructions from `start` to `stop` with `threads` threads, this one included; `log` is the address of a log, 0 for none."""
        at = self._address + 8 * INSTRUCTION * start
        team = self._team_address if threads > 1 else 0
        block = (ctypes.c_int64 * 6)(at, stop - start, team, log, GIVE_WAY, CLOCK)
        try:
            if threads > 1:
                self._team[DONE] = 0
                self._team[TICKET] = 0
                HELPERS.call(self._team, threads - 1)
            walk.call(ctypes.addressof(block), 0, 1)
        except BaseException:
            self._team[TICKET] = CLOSED  # an interrupt before `walk` began, which would have: helpers do not wait for parts for ever
            raise

    def position(self, address: int) -> int:
        """Which instruction is at an address."""
        return (address - self._address) // (8 * INSTRUCTION)


__all__ = ["Code", "Helpers", "cores"]
