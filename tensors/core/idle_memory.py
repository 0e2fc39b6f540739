"""Memory that sessions of plans keep between runs: that of plans that have not run for long is freed, so that many
shapes of batches do not add up."""

from __future__ import annotations

import threading
import weakref
from collections import OrderedDict
from typing import Protocol

MAX_IDLE_NBYTES, MAX_PLANS = 64 << 20, 64
"""Bytes that all plans but the latest may keep together, and how many of these plans there may be."""


class Idle(Protocol):
    """A plan that keeps memory between runs."""

    @property
    def idle(self) -> int:
        """Bytes that it keeps."""

    def release(self) -> None:
        """Free them."""


class IdleMemory:
    """The plans that keep memory, the latest last."""

    def __init__(self) -> None:
        self._plans: OrderedDict[int, weakref.ref[Idle]] = OrderedDict()
        self._latest = -1
        self._lock = threading.Lock()

    def used(self, plan: Idle) -> None:
        """Note that a plan has run; others may have to free their memory."""
        if self._latest == id(plan):
            return
        with self._lock:
            self._latest = id(plan)
            self._plans.pop(id(plan), None)
            older = list(self._plans.items())
            self._plans[id(plan)] = weakref.ref(plan)
            allowance = MAX_IDLE_NBYTES
            for count, (number, reference) in enumerate(reversed(older)):
                found = reference()
                allowance -= 0 if found is None else found.idle
                if found is None or allowance < 0 or count >= MAX_PLANS:
                    del self._plans[number]
                    if found is not None:
                        found.release()
