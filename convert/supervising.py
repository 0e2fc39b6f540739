"""Supervision: where address space is limited, the command runs in a child, since C libraries end their process when an allocation fails."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Callable
from types import FrameType

from ..runtime import shortage

ENDED = (signal.SIGABRT, signal.SIGSEGV, signal.SIGBUS, signal.SIGILL)
"""Signals by which libraries end a process that cannot have memory."""
LOADER = 127
"""Exit code of the dynamic loader when it cannot have memory."""
FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
_SIGNAL_WITH_PARENT = 1


def supervised(main: Callable[[], None]) -> None:
    """Call `main`, which ends the process, in a child where address space is limited. Never returns."""
    if not hasattr(os, "fork") or shortage.address_space() is None:
        main()
        return
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # each thread of NumPy's library reserves 40 MB
    parent = os.getpid()
    try:
        child = os.fork()
    except OSError:  # no memory for another process: this one goes without
        child = 0
    if child == 0:
        if os.getpid() != parent:
            _end_with(parent)
        main()
        return
    for number in FORWARDED:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, lambda number, frame: _forward(child, number, frame))
    _, status = os.waitpid(child, 0)
    _leave(os.waitstatus_to_exitcode(status))


def _forward(child: int, number: int, frame: FrameType | None) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(child, number)


def _end_with(parent: int) -> None:
    """Let this process be killed when its parent ends."""
    if not sys.platform.startswith("linux"):
        return
    import ctypes

    ctypes.CDLL(None).prctl(_SIGNAL_WITH_PARENT, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def _leave(code: int) -> None:
    """End as the child did, or with the error that says why a library ended it."""
    if -code in ENDED or code == LOADER:
        from .output import current

        how = f"by signal {-code}" if code < 0 else f"with {code}"
        error = shortage.refusal(f"a library ended the command {how}")
        current().reset(json="--json" in sys.argv)
        current().fail(error)
        sys.stdout.flush()
        code = error.exit_code
    if code < 0:
        signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)
