"""Compile progress: a callback that follows the compilation of kernels, and stopwatches that leave it out."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator

from .dataclass import dataclass
from .units import counted

VARIABLE = "CANDLE_COMPILE_NOTICE"
MIN_NOTICE_SECONDS = 1.0
"""Estimated seconds from which the notice is printed."""


@dataclass(frozen=True)
class CompileProgress:
    """Progress of kernel compilation.

    Attributes:
        compiled: kernels that are compiled; it is `total` in the last call.
        total: kernels to compile; 0 while plans are made that show which ones are missing.
        share: share of the estimated work that is done, from 0 to 1.
        seconds_left: estimated seconds until the last kernel is compiled.
    """

    compiled: int
    total: int
    share: float = 0.0
    seconds_left: float = 0.0


Callback = Callable[[CompileProgress], None]


def description(total: int) -> str:
    """The current work as text: ``compiling 2 kernels for this processor, once per machine``."""
    return f"compiling {counted(total, 'kernel')} for this processor, once per machine"


class CompileNotice:
    """Prints one line on standard error, if it is a terminal, before kernels are compiled for more than a second."""

    def __call__(self, progress: CompileProgress) -> None:
        if progress.compiled or not progress.total or progress.share:
            return
        if progress.seconds_left < MIN_NOTICE_SECONDS or os.environ.get(VARIABLE) == "0":
            return
        if sys.stderr is not None and sys.stderr.isatty():
            print(f"{description(progress.total)}: about {progress.seconds_left:.0f} s", file=sys.stderr)


class _Listener:
    callback: Callback | None = CompileNotice()


_listener = _Listener()


def on_compile(callback: Callback | None) -> Callback | None:
    """Set what is called, in all threads of this process, while kernels are compiled: about ten times a second, in the
    thread that waits for them. None for nothing. Returns the callback before.

    By default one line is printed on standard error if it is a terminal; ``CANDLE_COMPILE_NOTICE=0`` turns it off.
    """
    before, _listener.callback = _listener.callback, callback
    return before


def report(progress: CompileProgress) -> None:
    """Call the callback, if there is one."""
    if _listener.callback is not None:
        _listener.callback(progress)


class _Account:
    """Compile time of a thread; `began`: when the current compilation started."""

    def __init__(self) -> None:
        self.spent = 0.0
        self.kernels = 0
        self.began: float | None = None

    @property
    def seconds(self) -> float:
        began = self.began
        return self.spent if began is None else self.spent + time.monotonic() - began


class _Accounts(threading.local):
    def __init__(self) -> None:
        self.own = _Account()


_accounts = _Accounts()


@contextlib.contextmanager
def compile_time(kernels: int = 0) -> Iterator[None]:
    """Charge the block to compiling `kernels` kernels, unless it is part of such a block."""
    account = _accounts.own
    if account.began is not None:
        yield
        return
    account.began = time.monotonic()
    try:
        yield
    finally:
        account.spent, account.began = account.seconds, None
        account.kernels += kernels


class Stopwatch:
    """Time since it was made, without that in which the thread that made it waited for kernels to be compiled."""

    def __init__(self) -> None:
        self._account = _accounts.own
        self._before = self._account.seconds, self._account.kernels
        self._began = time.monotonic()

    @property
    def seconds(self) -> float:
        """Seconds without compiling."""
        return time.monotonic() - self._began - self.compile_seconds

    @property
    def compile_seconds(self) -> float:
        """Seconds of compiling, planning of expected shapes included."""
        return self._account.seconds - self._before[0]

    @property
    def kernels(self) -> int:
        """Kernels compiled meanwhile."""
        return self._account.kernels - self._before[1]
