"""Keyboard interrupts that wait until a step is counted, so that a checkpoint that is written then is of one step."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType


@contextlib.contextmanager
def deferred() -> Iterator[None]:
    """Let an interrupt wait for the end of the block; a second one does not.

    Interrupts that Python does not handle, and those of other threads than the main one, are left as they are.
    """
    before = signal.getsignal(signal.SIGINT)
    if not callable(before) or threading.current_thread() is not threading.main_thread():
        yield
        return
    seen: list[FrameType | None] = []

    def note(number: int, frame: FrameType | None) -> None:
        seen.append(frame)
        if len(seen) > 1:
            before(number, frame)

    signal.signal(signal.SIGINT, note)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        if seen:
            before(signal.SIGINT, seen[0])
