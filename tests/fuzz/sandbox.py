"""Opens hostile files in a process with limits on memory and time, and reports the outcome."""

from __future__ import annotations

import functools
import json
import os
import select
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import candle_convert as cc
from candle_convert.tests.oracles.cpu_time import ATTEMPTS, within

MEMORY = 64 * 2**20
SECONDS = 1.0
HANG = 600.0
SERVER = Path(__file__).with_name("sandbox_server.py")


@dataclass(frozen=True)
class Outcome:
    """What came of it.

    Attributes:
        code, exit_code: of the error, "" and 0 when there was none.
        seconds: processor time, so that a busy machine does not count.
        detail: the error as the user sees it, or what opened.
        file, offset, hint: of the error.
        repeat: does it once more.
    """

    code: str
    exit_code: int
    seconds: float
    detail: str
    file: str | None = None
    offset: int | None = None
    hint: str | None = None
    repeat: Callable[[], Outcome] | None = field(default=None, repr=False, compare=False)

    @property
    def quick(self) -> bool:
        """Whether it comes within the second that any file may take, in the best of a few attempts."""
        again = self.repeat
        return self.seconds < SECONDS or (
            again is not None and any(again().seconds < SECONDS for _ in range(ATTEMPTS - 1))
        )


class Sandbox:
    """A process with the package loaded and `MEMORY` bytes of address space beyond that, which opens files one after
    the other."""

    def __init__(self) -> None:
        self._start()

    def _start(self) -> None:
        # One malloc arena: every thread's own would reserve address space that nothing uses.
        environment = {**os.environ, "MALLOC_ARENA_MAX": "1"}
        command = [sys.executable, "-P", str(SERVER), str(MEMORY)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)
        self._answer()

    def _answer(self) -> bytes:
        assert self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], HANG)
        return self._process.stdout.readline() if ready else b""

    def outcome(self, path: Path, action: str = "open") -> Outcome:
        """What `action` (open, read, convert, scan, check) on `path` comes to; any error that is not ours fails the
        test."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([action, str(path)]).encode() + b"\n")
        self._process.stdin.flush()
        line = self._answer()
        if not line:
            died = self._process.poll()
            self.close()
            self._start()
            raise AssertionError(
                f"the process {'hangs' if died is None else f'died with {died}'} on {action} of {path}"
            )
        answer = json.loads(line)
        assert "foreign" not in answer, answer["foreign"]
        return Outcome(**answer, repeat=functools.partial(self.outcome, path, action))

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.communicate()


def attempt(path: Path, readable: int = 1 << 22) -> cc.Error | None:
    """Open a file in this process and read its tensors, where they claim at most `readable` bytes; the error of ours
    that it came to.

    Every other error, one that does not name the file, and one that takes longer than `SECONDS` of processor time,
    fails the test.
    """
    return within(SECONDS, lambda: _attempt(path, readable))


def _attempt(path: Path, readable: int) -> cc.Error | None:
    raised = None
    try:
        graph = cc.open(path)
        if graph.nbytes <= readable:
            for tensor in graph.weights.values():
                for _ in tensor.chunks():
                    pass
    except cc.Error as error:
        raised = error
        assert error.file is not None, str(error)
        assert Path(error.file.partition("!")[0]).is_relative_to(path.parent), str(error)
        assert error.code.startswith("E-"), str(error)
        assert error.hint, str(error)
        assert error.exit_code in (3, 4, 5, 6, 7), str(error)
        assert str(error).isprintable(), repr(str(error))
    return raised
