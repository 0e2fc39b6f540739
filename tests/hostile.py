"""Runs one open of a hostile file in a process of its own, with a limit on its memory and time, and says what came out."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

MEMORY = 64 * 2**20
SECONDS = 1.0
SERVER = Path(__file__).with_name("hostile_server.py")


@dataclass(frozen=True)
class Outcome:
    """What came of it: the error's code and exit code ("" and 0 when it opened), seconds, and what opened."""

    code: str
    exit_code: int
    seconds: float
    detail: str


class Sandbox:
    """A process with the package loaded and `MEMORY` bytes of address space beyond that, which opens files one after the other."""

    def __init__(self) -> None:
        self._start()

    def _start(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(SERVER), str(MEMORY)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )

    def outcome(self, path: Path, action: str = "open") -> Outcome:
        """What `action` (open, read, convert, scan, check) on `path` comes to; any error that is not ours fails the test."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([action, str(path)]) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            code = self._process.wait()
            self._start()
            raise AssertionError(f"the process died with {code} on {path}")
        answer = json.loads(line)
        assert "foreign" not in answer, answer["foreign"]
        return Outcome(answer["code"], answer["exit_code"], answer["seconds"], answer["detail"])

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait()
