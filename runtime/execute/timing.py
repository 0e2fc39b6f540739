"""Timing: start and end of each kernel launch and Python step of a run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from ..base.dataclass import dataclass

if TYPE_CHECKING:
    from ..ir.graph import Node
    from ..plan.kernel_api import BaseLaunch

MAX_EVENTS = 1 << 18
"""Launches of one segment that are noted; a loop comes back to Python long before."""


@dataclass(frozen=True)
class Event:
    """One launch of a node, or one other step, with its begin and end in nanoseconds of the monotonic clock.

    Attributes:
        node: None for steps of the whole graph.
        launch: of the CPU or a device; None for other steps.
        how: of a step on a device, what it is; None for all others, those without a launch run in Python.
    """

    node: Node | None
    launch: BaseLaunch | None
    began: int
    ended: int
    how: str | None = None


@dataclass(eq=False)
class Clock:
    """The launches of one run with their times; for use by one thread at a time.

    Attributes:
        events: in the order of their ends; steps in Python hold those of their subgraphs.
        lost: launches that did not fit into the buffer of events.
    """

    events: list[Event] = field(default_factory=list)
    lost: int = 0

    @cached_property
    def _log(self) -> np.ndarray:
        from .interpreter import LOG_ENTRY, LOG_HEAD

        log = np.zeros(LOG_HEAD + LOG_ENTRY * MAX_EVENTS, np.int64)
        log[2] = MAX_EVENTS
        return log

    @property
    def address(self) -> int:
        """The address of the log that native code writes."""
        return int(self._log.ctypes.data)

    def drained(self) -> Iterator[list[int]]:
        """The entries of the log (address of the instruction, begin, end), which is empty afterwards."""
        from .interpreter import LOG_ENTRY, LOG_HEAD

        count = int(self._log[3])
        kept = min(count, MAX_EVENTS)
        self.lost += count - kept
        self._log[3] = 0
        yield from self._log[LOG_HEAD : LOG_HEAD + LOG_ENTRY * kept].reshape(-1, LOG_ENTRY).tolist()
