"""Supervisor process: with limited address space, commands run in a child, which C libraries may abort."""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import sys
from collections.abc import Callable
from types import FrameType

from ...runtime.base import out_of_memory
from ..console.standard_streams import OutputError

ENDED = (signal.SIGABRT, signal.SIGSEGV, signal.SIGBUS, signal.SIGILL)
"""Signals by which libraries end a process that cannot have memory."""
LOADER = 127
"""Exit code of the dynamic loader when it cannot have memory."""
OPENBLAS = 1
"""Exit code of NumPy's library when it cannot have memory; a negative answer of a command has the same."""
FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
_SIGNAL_WITH_PARENT = 1


def supervised(main: Callable[[], None]) -> None:
    """Call `main`, which ends the process, in a child where address space is limited. Never returns."""
    if not hasattr(os, "fork") or out_of_memory.address_space() is None:
        main()
        return
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # each thread of NumPy's library reserves 40 MB
    parent = os.getpid()
    reading, writing = os.pipe()
    try:
        child = os.fork()
    except OSError:  # no memory for another process: this one goes without
        child = 0
    if child == 0:
        if os.getpid() != parent:
            _end_with(parent)
            atexit.register(os.write, writing, b".")  # what a library's exit() does not do
        main()
        return
    os.close(writing)
    for number in FORWARDED:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, lambda number, frame: _forward(child, number, frame))
    _, status = os.waitpid(child, 0)
    os.set_blocking(reading, False)
    _leave(os.waitstatus_to_exitcode(status), by_python=_has_byte(reading))


def _has_byte(reading: int) -> bool:
    try:
        return bool(os.read(reading, 1))
    except BlockingIOError:  # a process of the child's still has the other end
        return False


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


def _leave(code: int, *, by_python: bool) -> None:
    """End as the child did, or with the error that says why a library ended it."""
    if -code in ENDED or code == LOADER or (code == OPENBLAS and not by_python):
        from ..console.output import current

        how = f"by signal {-code}" if code < 0 else f"with {code}"
        error = out_of_memory.memory_error(f"a library ended the command {how}")
        current().reset(json="--json" in sys.argv)
        with contextlib.suppress(OutputError):
            current().fail(error)
            sys.stdout.flush()
        code = error.exit_code
    if code < 0:
        signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)
