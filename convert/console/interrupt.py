"""Keyboard interrupts: the first raises KeyboardInterrupt, the second ends the process."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

from .standard_streams import OutputError

INTERRUPTED = 130
"""The exit code."""


def answer(handler: Callable[[int, FrameType | None], Any] | signal.Handlers) -> None:
    """Set the reaction to an interrupt, unless this process was started to ignore it, or another program handles it."""
    if signal.getsignal(signal.SIGINT) in (signal.default_int_handler, leave, stop):
        signal.signal(signal.SIGINT, handler)


def leave(number: int, frame: FrameType | None) -> None:
    """End the process without a word."""
    os._exit(INTERRUPTED)


def stop(number: int, frame: FrameType | None) -> None:
    """Raise KeyboardInterrupt, once."""
    signal.signal(signal.SIGINT, leave)
    raise KeyboardInterrupt


def end() -> None:
    """End the process once the interrupt was reported. Python's own exit would let SIGINT kill it if code from `exec`
    was interrupted."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, OutputError):
            stream.flush()
    os._exit(INTERRUPTED)


@contextlib.contextmanager
def too_late() -> Iterator[None]:
    """Ignore Ctrl-C during the block, for the last moments of a command."""
    if signal.getsignal(signal.SIGINT) is not stop:
        yield
        return
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, stop)
