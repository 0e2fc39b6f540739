"""Thread team: helper threads that all sessions of the process share and that sleep between runs."""

from __future__ import annotations

import contextlib
import ctypes
import os
import queue
import sys
import threading
from collections.abc import Callable, Sequence

import numpy as np

from ..jit.atomic import GIVE_WAY
from ..plan.kernel_api import CALL, UNLESS, cores
from .interpreter import CLOCK, CLOSED, DONE, INSTRUCTION, TEAM_WORDS, TICKET, help_team, walk


class Helper:
    """A helper thread.

    Attributes:
        thread: native thread id.
        core: core on which its last work ended, -1 if unknown.
        saved_cores: the cores that it may use once it is awake, None where it was not sent away.
    """

    def __init__(self, thread: int) -> None:
        self.thread = thread
        self.core = -1
        self.saved_cores: set[int] | None = None


class Helpers:
    """The pool of helper threads; they sleep until a team calls them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._forget()

    def _forget(self) -> None:
        self._calls: queue.SimpleQueue[np.ndarray | None] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._known: list[Helper] = []
        self._process = os.getpid()
        self._max_threads = sys.maxsize

    def call(self, team: np.ndarray, count: int) -> None:
        """Wake `count` threads for a team; threads that come too late find it closed."""
        if len(self._threads) < min(count, self._max_threads) or self._process != os.getpid():
            self._start(count)
        here = CURRENT_CORE()
        for helper in self._known:
            if helper.core == here >= 0:
                _move_off_core(helper, here)
        for _ in range(count):
            self._calls.put(team)

    def _start(self, count: int) -> None:
        # loaded here: a helper could hold import locks during a fork, and nobody would release them in the child
        help_them = help_team.call
        with self._lock:
            if self._process != os.getpid():
                self._forget()
            while len(self._threads) < min(count, self._max_threads):
                thread = threading.Thread(
                    target=self._serve,
                    args=(self._calls, self._known, help_them),
                    name="candle-convert helper",
                    daemon=True,
                )
                try:
                    thread.start()
                except RuntimeError:  # no memory or thread id left; the existing threads suffice
                    self._max_threads = len(self._threads)
                    return
                self._threads.append(thread)

    def dismiss(self) -> None:
        """Stop all threads; nothing else may run in the process. The next call starts new ones."""
        with self._lock:
            threads, calls = self._threads, self._calls
            self._forget()
            for _ in threads:
                calls.put(None)
            for thread in threads:
                thread.join()

    @property
    def threads(self) -> Sequence[threading.Thread]:
        """All helper threads."""
        return tuple(self._threads)

    @staticmethod
    def _serve(
        calls: queue.SimpleQueue[np.ndarray | None], known: list[Helper], help_them: Callable[[int, int, int], None]
    ) -> None:
        own = Helper(threading.get_native_id())
        known.append(own)
        block = help_team.block(team=0, give_way=GIVE_WAY)
        while (team := calls.get()) is not None:
            if own.saved_cores is not None:
                cores, own.saved_cores = own.saved_cores, None
                _set_affinity(0, cores)
            block.team = team.ctypes.data
            help_them(ctypes.addressof(block), 0, 1)
            own.core = CURRENT_CORE()


def _move_off_core(helper: Helper, here: int) -> None:
    """Let a helper wake up on another core than the caller's, where the system would let it wait for milliseconds
    while another is idle."""
    cores = os.sched_getaffinity(0)
    if len(cores) > 1:
        helper.saved_cores, helper.core = cores, -1
        _set_affinity(helper.thread, cores - {here})


def _set_affinity(thread: int, cores: set[int]) -> None:
    """Set the CPU affinity of a thread; does nothing if the cores are not available any more."""
    with contextlib.suppress(OSError):
        os.sched_setaffinity(thread, cores)


def _current_core() -> Callable[[], int]:
    """A function that returns the core of the calling thread, -1 if unknown."""
    if hasattr(os, "sched_setaffinity") and sys.platform == "linux":
        with contextlib.suppress(AttributeError):  # a C library without it
            found: Callable[[], int] = ctypes.PyDLL(None).sched_getcpu
            return found
    return lambda: -1


CURRENT_CORE = _current_core()
HELPERS = Helpers()


class Code:
    """Bytecode with addresses filled in; its arguments are in `words`."""

    def __init__(self, code: Sequence[tuple[int, int, int, int]], words: np.ndarray) -> None:
        self._words = words
        self._code = np.array(code, np.int64)
        kinds, base = self._code[:, 0], words.ctypes.data
        for kind, column in ((CALL, 2), (UNLESS, 1)):
            self._code[kinds == kind, column] = base + 8 * self._code[kinds == kind, column]
        self._address = self._code.ctypes.data
        padded = np.zeros(TEAM_WORDS + 8, np.int64)
        first = -padded.ctypes.data % 64 // 8
        self._team = padded[first : first + TEAM_WORDS]
        self._team_address = self._team.ctypes.data
        self._ended = np.zeros(1, np.int64)
        ended = self._ended.ctypes.data
        self._block = walk.block(code=0, count=0, team=0, log=0, give_way=GIVE_WAY, clock=CLOCK, ended=ended)

    @property
    def ended(self) -> bool:
        """Whether the last `walk` came to its end, which an interrupt that it raised does not tell."""
        return bool(self._ended[0])

    def walk(self, start: int, stop: int, threads: int, log: int = 0) -> None:
        """Run instructions `start` to `stop` on `threads` threads, this one included; `log`: address of a log or 0."""
        at = self._address + 8 * INSTRUCTION * start
        team = self._team_address if threads > 1 else 0
        block = self._block
        block.code, block.count, block.team, block.log = at, stop - start, team, log
        self._ended[0] = 0
        try:
            if threads > 1:
                self._team[DONE] = 0
                self._team[TICKET] = 0
                HELPERS.call(self._team, threads - 1)
            walk.call(ctypes.addressof(block), 0, 1)
        except BaseException:
            # an interrupt before `walk` began: close the team, or helpers would spin forever
            self._team[TICKET] = CLOSED
            raise

    def position(self, address: int) -> int:
        """The index of the instruction at an address."""
        return (address - self._address) // (8 * INSTRUCTION)


__all__ = ["Code", "Helpers", "cores"]
