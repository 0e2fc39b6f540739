"""Status line: the current phase and its seconds, on one terminal line that vanishes.

An interval timer of the process draws it rather than a thread, since processes that compile kernels are forked only
where no other thread runs.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from types import FrameType

DELAY = 0.6
"""Seconds of silence before something is shown."""
INTERVAL = 0.25
FRAMES = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
PROMPT = "processing the prompt"
"""The phase of a language model until its first text."""
CLEAR = "\r\x1b[K"


class Busy:
    """The line of a process; it shows nothing before `start`, if standard error is not a terminal, or while it is held.

    Attributes:
        phase: what is being done.
    """

    def __init__(self) -> None:
        self.phase = "working"
        self._since = self._spoke = 0.0
        self._held = 0
        self._drawn = False
        self._frame = 0
        self._runs = False

    def start(self, phase: str = "working") -> None:
        """Begin to watch, where this is the main thread and nobody else uses the timer."""
        if sys.stderr is None or not sys.stderr.isatty() or threading.current_thread() is not threading.main_thread():
            return
        if signal.getsignal(signal.SIGALRM) is not signal.SIG_DFL:
            return
        self.phase, self._held, self._runs = phase, 0, True
        self._since = self._spoke = time.monotonic()
        signal.signal(signal.SIGALRM, self._tick)
        signal.siginterrupt(signal.SIGALRM, False)
        signal.setitimer(signal.ITIMER_REAL, INTERVAL, INTERVAL)

    def stop(self) -> None:
        """Stop watching, and clear the line."""
        if self._runs:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            self.clear()
            self._runs = False

    def enter(self, phase: str) -> None:
        """Name what is done from now on."""
        self.phase, self._since = phase, time.monotonic()

    def clear(self) -> None:
        """Make room for something that is said, after which there is silence again."""
        self._spoke = time.monotonic()
        if self._drawn:
            self._drawn = False
            _write(CLEAR)

    def hold(self) -> None:
        """Show nothing until `release`: something else keeps the terminal up to date."""
        self._held += 1
        self.clear()

    def release(self) -> None:
        """The end of `hold`."""
        self._held = max(0, self._held - 1)
        self._spoke = time.monotonic()

    def _tick(self, number: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        if self._held or now - self._spoke < DELAY:
            return
        self._frame = (self._frame + 1) % len(FRAMES)
        self._drawn = True
        _write(f"{CLEAR}{FRAMES[self._frame]} {self.phase}  {now - self._since:.0f} s")


def _write(text: str) -> None:
    """Write past Python's buffers, which may be in use where a signal comes."""
    stream = sys.__stderr__
    if stream is not None:
        try:
            os.write(stream.fileno(), text.encode(stream.encoding or "utf-8", "replace"))
        except OSError:
            return


_busy = Busy()


def busy() -> Busy:
    """The line of this process."""
    return _busy
