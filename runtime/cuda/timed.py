"""Timed steps: how long each step of a device's plans takes. A step is waited for before the next one begins, so that it looks a little longer than
it is in a run, by what it takes to get to the device and back."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any

from ..graph import Node
from ..timing import Clock, Event
from .kernel import Launch
from .plan import Download, Upload

COPIES: dict[type, str] = {Upload: "copy to the device", Download: "copy to the host"}
_watched: ContextVar[Clock | None] = ContextVar("clock", default=None)


@contextlib.contextmanager
def timed(clock: Clock | None) -> Iterator[None]:
    """Let a clock be told of all steps of this thread's runs; of none where it is None."""
    token = _watched.set(clock)
    try:
        yield
    finally:
        _watched.reset(token)


def watched() -> Clock | None:
    """The clock that is to be told."""
    return _watched.get()


def noted(clock: Clock, node: Node | None, step: Any, work: Callable[[], None]) -> None:
    """Do a step's work, which is its node's, and wait for it."""
    from numba import cuda

    began = time.monotonic_ns()
    work()
    cuda.synchronize()
    launch = step if isinstance(step, Launch) else None
    how = COPIES.get(type(step)) if launch is None else str(launch.kernel)
    clock.events.append(Event(node, launch, began, time.monotonic_ns(), how))
