"""Timing: how long each launch and each step in Python of a run took."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from .record import dataclass

if TYPE_CHECKING:
    from .cuda.kernel import Launch as DeviceLaunch
    from .graph import Node
    from .launch import Launch

MOST = 1 << 18
"""Launches of one stretch that are noted; a loop comes back to Python long before."""


@dataclass(frozen=True)
class Event:
    """One launch of a node, or one other step (`launch` is None), with its begin and end in nanoseconds of the monotonic clock.

    Attributes:
        node: None for steps of the whole graph.
        how: of a step on a device, what it is; None for all others, those without a launch run in Python.
    """

    node: Node | None
    launch: Launch | DeviceLaunch | None
    began: int
    ended: int
    how: str | None = None


@dataclass(eq=False)
class Clock:
    """What one run is told to note its times in; one thread at a time may use it.

    Attributes:
        events: in the order of their ends; steps in Python hold those of their subgraphs.
        lost: launches that there was no room for.
    """

    events: list[Event] = field(default_factory=list)
    lost: int = 0

    @cached_property
    def _log(self) -> np.ndarray:
        from .native import LOG_ENTRY, LOG_HEAD

        log = np.zeros(LOG_HEAD + LOG_ENTRY * MOST, np.int64)
        log[2] = MOST
        return log

    @property
    def address(self) -> int:
        """The address of the log that native code writes."""
        return int(self._log.ctypes.data)

    def drained(self) -> Iterator[list[int]]:
        """The entries of the log (address of the instruction, begin, end), which is empty afterwards."""
        from .native import LOG_ENTRY, LOG_HEAD

        count = int(self._log[3])
        kept = min(count, MOST)
        self.lost += count - kept
        self._log[3] = 0
        yield from self._log[LOG_HEAD : LOG_HEAD + LOG_ENTRY * kept].reshape(-1, LOG_ENTRY).tolist()
