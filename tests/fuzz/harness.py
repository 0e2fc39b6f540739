"""Fuzzing: mutated files handed to command lines, each in a memory-limited process forked for it, and what is wrong
with how they end.

A suite says how to make a case of a seed and calls `sweep`. CI tries `SAMPLED` seeds, or as many as the suite asks for;
with CANDLE_FULL=1 (or ``-m slow``) a sweep lasts CANDLE_FUZZ_SECONDS, an hour by default, and begins at CANDLE_SEED.
Cases that fail are kept in CANDLE_FUZZ_KEEP, a folder, where that is set, so that each can be tried again by hand.
"""

from __future__ import annotations

import json
import os
import random
import re
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

SERVER = Path(__file__).with_name("server.py")
SAMPLED = 30
"""Seeds that are tried in CI."""
MEMORY = 1 << 30
"""Address space, in bytes, that a command may take beyond what the server has."""
PEAK = 256 << 20
"""Resident bytes that a command may take beyond what the server has, by default."""
SECONDS = 10
"""Processor seconds that a command may take, its children's included, by default."""
HANG = 300
"""Seconds on the clock after which a command that does not end is killed; wide, for busy machines."""
ALLOWED = (0, 1, 2, 3, 4, 5, 6, 7)
"""Exit codes of commands that handle bad input: 70 is a bug of ours, a signal is worse."""
TRACES = re.compile(
    r"Traceback \(most recent call last\)|^thread '.*' panicked|RUST_BACKTRACE|Exception ignored in", re.MULTILINE
)


@dataclass(frozen=True)
class Case:
    """What is tried.

    Attributes:
        files: content by name; names may have folders.
        actions: command lines without the program's name, in which ``{dir}`` is the folder of the files and ``{out}``
            an empty folder. The first word ``module:function`` calls a function of a module with the other words
            instead.
    """

    files: Mapping[str, bytes]
    actions: Sequence[Sequence[str]]


@dataclass(frozen=True)
class Outcome:
    """How one command ended.

    Attributes:
        action: the command line.
        code: exit code, negative for a signal.
        seconds: processor time, with that of its children.
        peak: resident bytes beyond those of the server.
        stdout, stderr: the first 20,000 characters of each.
        report: of a bug, as the command line writes it.
    """

    action: tuple[str, ...]
    code: int
    seconds: float
    peak: int
    stdout: str
    stderr: str
    report: str = ""

    def fault(self, seconds: float = SECONDS, peak: int = PEAK) -> str | None:
        """What is wrong with it; None for an outcome that any input may have."""
        if self.code not in ALLOWED:
            return f"ends with {self.code}"
        if TRACES.search(self.stderr):
            return "prints a traceback"
        if self.code > 1 and not (self.stderr + self.stdout).strip():
            return f"ends with {self.code} and says nothing"
        if self.seconds > seconds:
            return f"takes {self.seconds:.1f} s"
        return f"takes {self.peak >> 20} MiB" if self.peak > peak else None


class Forkserver:
    """A process with the package loaded that forks a child for every command.

    Args:
        memory: address space in bytes that a command may take beyond what the server has.
        seconds: processor seconds after which a command is killed.
    """

    def __init__(self, memory: int = MEMORY, seconds: int = 4 * SECONDS) -> None:
        self._arguments = [sys.executable, "-P", str(SERVER), str(memory), str(seconds)]
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Forkserver:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def run(self, case: Case) -> list[Outcome]:
        """The outcomes of a case's actions, one after another on the same files."""
        with tempfile.TemporaryDirectory(prefix="fuzz-") as place:
            folder, out = Path(place) / "in", Path(place) / "out"
            out.mkdir()
            for name, content in case.files.items():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                (folder / name).write_bytes(content)
            return [
                self._outcome(tuple(word.replace("{dir}", str(folder)).replace("{out}", str(out)) for word in words))
                for words in case.actions
            ]

    def _outcome(self, words: tuple[str, ...]) -> Outcome:
        process = self._started()
        assert process.stdin is not None
        process.stdin.write(json.dumps(words).encode() + b"\n")
        process.stdin.flush()
        line = self._line(process)
        if not line:
            self.close()
            raise AssertionError(f"the server of the fuzzer is gone after {words}")
        return Outcome(words, **json.loads(line))

    def _started(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            # One malloc arena: every thread's own would reserve address space that nothing uses.
            environment = {**os.environ, "MALLOC_ARENA_MAX": "1"}
            self._process = subprocess.Popen(
                self._arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
            )
            assert self._line(self._process) == b"ready\n"
        return self._process

    def _line(self, process: subprocess.Popen[bytes]) -> bytes:
        assert process.stdout is not None
        ready, _, _ = select.select([process.stdout], [], [], 2 * HANG)
        return process.stdout.readline() if ready else b""

    def close(self) -> None:
        """End the server."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None


def seeds(full: bool, count: int = SAMPLED) -> Iterator[int]:
    """Seeds to try: `count` that are the same in every run, or with `full` as many as CANDLE_FUZZ_SECONDS allow."""
    if not full:
        yield from range(count)
        return
    first = int(os.environ.get("CANDLE_SEED", int.from_bytes(os.urandom(3), "little")))
    print(f"CANDLE_SEED={first}")
    ends = time.monotonic() + float(os.environ.get("CANDLE_FUZZ_SECONDS", "3600"))
    while time.monotonic() < ends:
        yield first
        first += 1


def sweep(
    make: Callable[[random.Random], Case],
    full: bool,
    *,
    count: int = SAMPLED,
    seconds: float = SECONDS,
    peak: int = PEAK,
    server: Forkserver | None = None,
) -> None:
    """Try the case of every seed; fails with all that went wrong, each kind once, and the seed to see it again. What
    takes too long is tried again: the first time, kernels may have been compiled for it, which are kept.

    Args:
        make: the case of a generator of random numbers, which it alone draws from.
        full: whether to go on for CANDLE_FUZZ_SECONDS.
        count: seeds to try otherwise.
        seconds, peak: what a command may take, as `Outcome.fault` has them.
        server: to run them, one of its own by default.
    """
    wrong: dict[str, str] = {}
    with server or Forkserver() as running:
        for seed in seeds(full, count):
            case = make(random.Random(seed))
            outcomes = running.run(case)
            if any(outcome.seconds > seconds for outcome in outcomes):
                outcomes = running.run(case)
            for outcome in outcomes:
                fault = outcome.fault(seconds, peak)
                if fault is not None:
                    wrong.setdefault(_kind(outcome, fault), _told(seed, outcome, fault))
                    _keep(seed, case)
    assert not wrong, "\n\n".join(wrong.values())


def _kind(outcome: Outcome, fault: str) -> str:
    """What tells failures apart: the last line of ours that a bug came through, else the command and the fault."""
    places = re.findall(r'File ".*/candle_convert/(.*\.py)", line (\d+)', outcome.report)
    return str(places[-1]) if places else f"{outcome.action[:2]} {re.sub(r'[0-9.]+', '', fault)}"


def _told(seed: int, outcome: Outcome, fault: str) -> str:
    return f"seed {seed}: {' '.join(outcome.action)} {fault}\n{outcome.stderr[-1500:]}{outcome.report[-1200:]}"


def _keep(seed: int, case: Case) -> None:
    place = os.environ.get("CANDLE_FUZZ_KEEP")
    for name, content in case.files.items() if place else ():
        path = Path(str(place)) / str(seed) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
