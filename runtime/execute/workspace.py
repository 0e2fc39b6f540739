"""Workspace: the arena, arrays and Python objects of one run of a plan."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..base.huge_pages import allocate
from ..ir.evaluate import owned
from ..ir.graph import Value
from ..plan.kernel_api import Buffer
from ..plan.plan import Plan


class Workspace:
    """The memory of one run of a plan.

    Args:
        shared: a workspace of the plan that never runs at the same time, whose arena this one uses.
    """

    def __init__(self, plan: Plan, shared: Workspace | None = None) -> None:
        self.plan = plan
        self.arena: np.ndarray = allocate(plan.arena + 64) if shared is None else shared.arena
        self.start = -self.arena.ctypes.data % 64
        words = plan.words.copy()
        words[plan.arena_words[0]] = plan.arena_words[1] + (self.arena.ctypes.data + self.start)
        self.words = words
        self.cells = memoryview(words)  # type: ignore[arg-type]
        self.arrays: list[Any] = [None] * len(plan.slots)
        self.objects: dict[Value, Any] = {}
        self._views: dict[int, np.ndarray] = {}
        self.bailout: np.ndarray | None = None if plan.bailout is None else self.get(plan.bailout)
        self.constants = [
            location.allocation.constant
            for location in plan.outputs
            if isinstance(location, Buffer) and location.allocation.constant is not None
        ]
        if plan.code:
            from .thread_team import Code

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
            for index, offset in places:
                cells[index] = address + offset

    def new_output(self, slot: int) -> None:
        """Give a slot an array that this run writes."""
        dtype, shape = self.plan.slots[slot]
        self.put(slot, np.empty(shape, dtype))

    def get(self, location: Buffer | Value) -> Any:
        """The array or object of a location."""
        if isinstance(location, Value):
            return self.objects[location]
        allocation = location.allocation
        if allocation.slot is not None:
            array = self.arrays[allocation.slot]
            if location.offset == 0 and array.dtype == location.dtype and array.shape == location.shape:
                return array
            return _view(array.reshape(-1).view(np.uint8), location, 0)
        found = self._views.get(id(location))
        if found is None:
            base = self.arena if allocation.constant is None else allocation.constant.reshape(-1).view(np.uint8)
            start = self.start + allocation.at if allocation.constant is None else 0
            found = self._views[id(location)] = _view(base, location, start)
        return found

    def walk(self, start: int, stop: int, threads: int, log: int = 0) -> None:
        """Run the native launches from `start` to `stop`; `log` is the address of a log, 0 for none."""
        self.code.walk(start, stop, threads, log)

    def private_copy(self, result: Any) -> Any:
        """A Python result, copied if it is in the arena, whose memory later steps reuse."""
        if isinstance(result, np.ndarray):
            return result.copy() if self.plan.arena and np.may_share_memory(result, self.arena) else result
        return [self.private_copy(item) for item in result] if isinstance(result, list) else result

    def owned(self, result: Any, feeds: Sequence[Any]) -> Any:
        """A result that shares no memory with inputs, weights or the arena."""
        return owned(result, (*feeds, *self.plan.pinned, *self.constants))

    def free(self, things: Sequence[int | Value]) -> None:
        """Release Python results that are dead."""
        for thing in things:
            if isinstance(thing, Value):
                self.objects.pop(thing, None)
            else:
                self.arrays[thing] = None

    def forget(self) -> None:
        """Let go of the arrays of a run."""
        self.objects.clear()
        self.arrays = [None] * len(self.arrays)


def _view(base: np.ndarray, location: Buffer, start: int) -> np.ndarray:
    at = start + location.offset
    return base[at : at + location.nbytes].view(location.dtype).reshape(location.shape)
