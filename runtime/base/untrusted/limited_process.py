"""Limited calls: run functions on untrusted input in a child process with memory, CPU and output limits.

Python cannot bound its own work: one C call may take gigabytes or hours. The kernel can, for a process. One child is
kept for the calls of a program, so that a conversation starts it once; it ends with the program, since its input does.

What goes in and comes out is JSON. The child loads nothing of this package but the module that is called, and has no
descriptors of ours.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib.util
import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from .. import errors
from ..dataclass import dataclass
from ..errors import Error, LimitError

MEMORY = 64 << 20
"""Bytes of address space that a call may take, before `PER_BYTE` of its arguments."""
PER_BYTE = 16
"""Bytes of address space for each byte of the arguments: what JSON becomes in memory, and text that is made of it."""
SECONDS = 1.5
"""Processor seconds that a call may take."""
BYTES_PER_SECOND = 8 << 20
"""Bytes of arguments that earn a call another second."""
OUTPUT = 16 << 20
"""Bytes that the answer of a call may have, beyond four times its arguments."""
WALL = 120.0
"""Seconds on the clock, for machines so busy that a child hardly runs."""
HEADER = 8
"""Bytes that hold the length of a message, little-endian."""
LIBRARIES = ("jinja2", "markupsafe", "tokenizers")
"""Packages outside the standard library that called modules import."""
START = """
import importlib, sys, types
root, name, module, *libraries = sys.argv[1:]
sys.path += libraries
sys.modules[name] = package = types.ModuleType(name)
package.__path__ = [root]
importlib.import_module(module, name).main()
"""
"""The child's program: this package without its `__init__`, and the folders of `LIBRARIES` after the standard
library's."""
OUT_OF_TIME = (signal.SIGPROF, signal.SIGXCPU)
PACKAGE = __name__.partition(".")[0]
ROOT = Path(__file__).parents[__name__.count(".") - 1]


@dataclass(frozen=True)
class Work:
    """The subject of a call, for error messages.

    Attributes:
        code: prefix of the codes, such as ``E-TEMPLATE``.
        what: what is worked on, such as "the chat template".
        file: where it comes from.
        hint: what to do when it takes too much.
        per_byte, bytes_per_second: in place of `PER_BYTE` and `BYTES_PER_SECOND`.
        fixed: bytes of the arguments that earn `PER_BYTE` and `fixed_seconds`, because they are not input to work on.
    """

    code: str
    what: str
    file: str | None
    hint: str
    per_byte: int = PER_BYTE
    bytes_per_second: int = BYTES_PER_SECOND
    fixed: int = 0
    fixed_seconds: float = 0.0


def call(module: str, function: str, arguments: Any, work: Work) -> Any:
    """Call a function of a module of this package in the child, with one argument of JSON values, and return its
    result.

    Args:
        module: the full name of a module of this package.

    Raises:
        LimitError: it takes more memory, time or output than a call may.
        Error: whatever error of ours the function raises.
    """
    data = _encoded(arguments)
    with _lock:
        child = _started(work)
        try:
            return child.answer({"module": module, "function": function}, data, work)
        except BaseException as error:
            if not isinstance(error, Error) or isinstance(error, LimitError):
                _drop()
            raise


def _encoded(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass")


class _Child:
    """A process that answers calls one after another."""

    def __init__(self, work: Work) -> None:
        command = [
            sys.executable,
            "-I",
            "-S",
            "-c",
            START,
            str(ROOT),
            PACKAGE,
            f"{__name__.removeprefix(PACKAGE)}_child",
            *_folders(),
        ]
        kept = {name: os.environ[name] for name in ("LD_LIBRARY_PATH", "TZ") if name in os.environ}
        try:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, bufsize=0, cwd="/",
                env={"MALLOC_ARENA_MAX": "1", "TOKENIZERS_PARALLELISM": "false", **kept}, process_group=0,
            )  # fmt: skip
        except OSError as error:
            raise _unstarted(work, error.strerror or "no such program") from error
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._requests, self._answers = self._process.stdin.fileno(), self._process.stdout.fileno()
        os.set_blocking(self._requests, False)
        os.set_blocking(self._answers, False)
        self._begun = False

    def answer(self, request: dict[str, Any], data: bytes, work: Work) -> Any:
        """The reply to a request."""
        deadline = time.monotonic() + WALL
        fixed = min(work.fixed, len(data))
        seconds = SECONDS + work.fixed_seconds + (len(data) - fixed) / work.bytes_per_second
        memory = MEMORY + PER_BYTE * fixed + work.per_byte * (len(data) - fixed)
        request |= {"memory": memory, "seconds": seconds}
        try:
            if not self._begun:
                self._message(deadline, 0)
                self._begun = True
            for part in (_encoded(request), data):
                self._send(len(part).to_bytes(HEADER, "little") + part, deadline)
            answer = json.loads(self._message(deadline, OUTPUT + 4 * len(data)).decode("utf-8", "surrogatepass"))
        except (EOFError, BrokenPipeError) as error:
            raise self._ended(seconds, work) from error
        except TimeoutError as error:
            raise LimitError(
                f"{work.code}-STEPS", work.file, f"{work.what} does not end within {WALL:g} seconds", hint=work.hint
            ) from error
        except _LongError as error:
            why = f"{work.what} makes more than {OUTPUT >> 20} MiB of text"
            raise LimitError(f"{work.code}-SIZE", work.file, why, hint=work.hint) from error
        if "unstarted" in answer:
            raise _unstarted(work, answer["unstarted"])
        if "memory" in answer:
            why = f"{work.what} needs more than {MEMORY >> 20} MiB of memory"
            raise LimitError(f"{work.code}-SIZE", work.file, why, hint=work.hint)
        if "error" in answer:
            raise getattr(errors, answer["error"])(answer["code"], work.file, answer["why"], hint=answer["hint"])
        return answer["result"]

    def _ended(self, seconds: float, work: Work) -> LimitError:
        """Why the child ended without an answer."""
        status = self._process.wait()
        if not self._begun:
            return _unstarted(work, f"it ended with {status}")
        if -status in OUT_OF_TIME:
            why = f"{work.what} does not end within {seconds:.2g} seconds of processor time"
            return LimitError(f"{work.code}-STEPS", work.file, why, hint=work.hint)
        why = f"{work.what} ended the process that worked on it, with {status}: it needs too much memory or depth"
        return LimitError(f"{work.code}-SIZE", work.file, why, hint=work.hint)

    def _send(self, data: bytes, deadline: float) -> None:
        left = memoryview(data)
        while left:
            _wait(self._requests, select.POLLOUT, deadline)
            with contextlib.suppress(BlockingIOError):
                left = left[os.write(self._requests, left[: 1 << 16]) :]

    def _message(self, deadline: float, most: int) -> bytes:
        size = int.from_bytes(self._received(HEADER, deadline), "little")
        if size > most:
            raise _LongError
        return self._received(size, deadline)

    def _received(self, size: int, deadline: float) -> bytes:
        data = bytearray()
        while len(data) < size:
            _wait(self._answers, select.POLLIN, deadline)
            with contextlib.suppress(BlockingIOError):
                part = os.read(self._answers, min(size - len(data), 1 << 20))
                if not part:
                    raise EOFError
                data += part
        return bytes(data)

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait()
        self.forget()

    def forget(self) -> None:
        """Close the pipes, which ends the process; does not join it."""
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()


class _LongError(Exception):
    """An answer is longer than it may be."""


def _wait(descriptor: int, event: int, deadline: float) -> None:
    poll = select.poll()
    poll.register(descriptor, event)
    if not poll.poll(max(0.0, deadline - time.monotonic()) * 1000):
        raise TimeoutError


def _folders() -> list[str]:
    """The folders of `LIBRARIES` for the child, looked up without loading them."""
    found = (importlib.util.find_spec(name) for name in LIBRARIES)
    return list(
        dict.fromkeys(
            str(Path(spec.origin).parents[1]) for spec in found if spec is not None and spec.origin is not None
        )
    )


def _unstarted(work: Work, why: str) -> LimitError:
    hint = "It takes 100 MB of memory and 1 process; look at ulimit -v and ulimit -u"
    return LimitError(
        f"{work.code}-PROCESS", work.file, f"the process that works on {work.what} cannot be started: {why}", hint=hint
    )


_lock = threading.Lock()
_child: _Child | None = None


def _started(work: Work) -> _Child:
    global _child
    if _child is None:
        _child = _Child(work)
    return _child


def _drop() -> None:
    global _child
    dropped, _child = _child, None
    if dropped is not None:
        dropped.close()


def _after_fork() -> None:
    """A forked process has its own child: two would read each other's answers, and its copy of the pipe would keep the
    other alive."""
    global _child, _lock
    dropped, _child, _lock = _child, None, threading.Lock()
    if dropped is not None:
        dropped.forget()


atexit.register(_drop)
os.register_at_fork(after_in_child=_after_fork)
