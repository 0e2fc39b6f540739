"""Workspaces: the arena, the arrays and the objects that one run of a plan works in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .blocks import numbers
from .graph import Value
from .launch import Buffer
from .plan import Plan
from .reserve import returned


class Workspace:
    """What one run of a plan works in."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.arena = returned(plan.arena + 64)
        self.start = -self.arena.ctypes.data % 64
        words = plan.words.copy()
        words[plan.arena_words[0]] = plan.arena_words[1] + (self.arena.ctypes.data + self.start)
        self.words = words
        self.cells = memoryview(words)  # type: ignore[arg-type]
        self.arrays: list[Any] = [None] * len(plan.slots)
        self.objects: dict[Value, Any] = {}
        self._views: dict[int, np.ndarray] = {}
        self.refusal: np.ndarray | None = None if plan.refusal is None else self.get(plan.refusal)
        self.constants = [home.room.constant for home in plan.outputs if isinstance(home, Buffer) and home.room.constant is not None]
        if plan.code:
            from .team import Code

            self.code = Code(plan.code, words)

    def put(self, slot: int, array: np.ndarray) -> None:
        """Give a slot its array for this run."""
        if not array.flags.c_contiguous:
            array = np.ascontiguousarray(array)
        self.arrays[slot] = array
        places = self.plan.slot_words.get(slot)
        if places:
            address = array.__array_interface__["data"][0]
            cells = self.cells
            for place, offset in places:
                cells[place] = address + offset

    def get(self, home: Buffer | Value) -> Any:
        """The array or object of a home."""
        if isinstance(home, Value):
            return self.objects[home]
        room = home.room
        if room.slot is not None:
            array = self.arrays[room.slot]
            if home.offset == 0 and array.dtype == home.dtype and array.shape == home.shape:
                return array
            return _view(array.reshape(-1).view(np.uint8), home, 0)
        found = self._views.get(id(home))
        if found is None:
            base = self.arena if room.constant is None else room.constant.reshape(-1).view(np.uint8)
            found = self._views[id(home)] = _view(base, home, self.start + room.at if room.constant is None else 0)
        return found

    def walk(self, start: int, stop: int, threads: int, log: int = 0) -> None:
        """Run the native launches from `start` to `stop`; `log` is the address of a log, 0 for none."""
        self.code.walk(start, stop, threads, log)

    def apart(self, result: Any) -> Any:
        """A result of Python that does not lie in the arena, whose bytes others will use."""
        if isinstance(result, np.ndarray):
            return result.copy() if self.plan.arena and np.may_share_memory(result, self.arena) else result
        return [self.apart(item) for item in result] if isinstance(result, list) else result

    def owned(self, result: Any, feeds: Sequence[Any]) -> Any:
        """A result that shares no memory with inputs, weights or the arena."""
        result = numbers(result)
        if not isinstance(result, np.ndarray):
            return [self.owned(item, feeds) for item in result] if isinstance(result, list) else result
        private = result.base is None and not any(result is array for array in (*feeds, *self.plan.held, *self.constants))
        return result if private else result.copy()

    def free(self, things: Sequence[int | Value]) -> None:
        """Let go of results of Python that nothing uses any more."""
        for thing in things:
            if isinstance(thing, Value):
                self.objects.pop(thing, None)
            else:
                self.arrays[thing] = None

    def forget(self) -> None:
        """Let go of the arrays of a run."""
        self.objects.clear()
        self.arrays = [None] * len(self.arrays)


def _view(base: np.ndarray, home: Buffer, start: int) -> np.ndarray:
    at = start + home.offset
    return base[at : at + home.nbytes].view(home.dtype).reshape(home.shape)
