"""Step timing: how long each step of a device plan takes.

The device is synchronized after each step, so a time includes the latency of launch and synchronization.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any

from ...execute.timing import Clock, Event
from ...ir.graph import Node
from ..kernel.kernel import Launch
from ..plan.plan import Download, Upload

COPIES: dict[type, str] = {Upload: "copy to the device", Download: "copy to the host"}
_watched: ContextVar[Clock | None] = ContextVar("clock", default=None)


@contextlib.contextmanager
def timed(clock: Clock | None) -> Iterator[None]:
    """Report all steps of this thread's runs to a clock; None for no reports."""
    token = _watched.set(clock)
    try:
        yield
    finally:
        _watched.reset(token)


def current_clock() -> Clock | None:
    """The clock of this thread."""
    return _watched.get()


def record_step(clock: Clock, node: Node | None, step: Any, work: Callable[[], None]) -> None:
    """Run a step of a node, synchronize, and report its time."""
    from numba import cuda

    began = time.monotonic_ns()
    work()
    cuda.synchronize()
    launch = step if isinstance(step, Launch) else None
    how = COPIES.get(type(step)) if launch is None else str(launch.kernel)
    clock.events.append(Event(node, launch, began, time.monotonic_ns(), how))
