"""Teams: the thread that leads a run and those that help it. Helpers are shared by all sessions of the process, and sleep between runs."""

from __future__ import annotations

import ctypes
import os
import queue
import threading
from collections.abc import Sequence

import numpy as np

from .launch import CALL, UNLESS, cores
from .native import CLOCK, DONE, GIVE_WAY, INSTRUCTION, TEAM_WORDS, TICKET, help_team, walk


class Helpers:
    """Threads that wait for teams to help."""

    def __init__(self) -> None:
        self._calls: queue.SimpleQueue[np.ndarray] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._count = 0
        self._process = os.getpid()

    def call(self, team: np.ndarray, count: int) -> None:
        """Ask `count` threads to help a team; those that come too late find it closed."""
        if self._count < count or self._process != os.getpid():
            self._start(count)
        for _ in range(count):
            self._calls.put(team)

    def _start(self, count: int) -> None:
        with self._lock:
            if self._process != os.getpid():
                self._calls, self._count, self._process = queue.SimpleQueue(), 0, os.getpid()
            while self._count < count:
                threading.Thread(target=self._serve, args=(self._calls,), name="candle-convert helper", daemon=True).start()
                self._count += 1

    def _serve(self, calls: queue.SimpleQueue[np.ndarray]) -> None:
        while True:
            team = calls.get()
            block = (ctypes.c_int64 * 2)(team.ctypes.data, GIVE_WAY)
            help_team.call(ctypes.addressof(block), 0, 1)


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
        if threads > 1:
            self._team[DONE] = 0
            self._team[TICKET] = 0
            HELPERS.call(self._team, threads - 1)
        walk.call(ctypes.addressof(block), 0, 1)

    def position(self, address: int) -> int:
        """Which instruction is at an address."""
        return (address - self._address) // (8 * INSTRUCTION)


__all__ = ["Code", "Helpers", "cores"]
