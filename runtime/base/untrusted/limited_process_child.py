"""Child side of limited calls: reads calls from stdin, runs each under OS limits, answers on stdout."""

from __future__ import annotations

import importlib
import json
import math
import os
import resource
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from ..errors import Error

HEADER = 8
PACKAGE = __name__.partition(".")[0]


def main() -> None:
    """Answer until the input ends."""
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    requests, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    empty = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(empty, standard)
    sys.set_int_max_str_digits(0)  # long integers are bounded as all else is
    for kind in (resource.RLIMIT_CORE, resource.RLIMIT_FSIZE):
        resource.setrlimit(kind, (0, 0))
    _send(answers, b"")
    while request := _message(requests):
        _send(answers, _answer(json.loads(request), requests))


def _answer(request: dict[str, Any], requests: BinaryIO) -> bytes:
    """The encoded answer to a request, the arguments of which follow it in the input."""
    answer: dict[str, Any]
    try:
        function = getattr(importlib.import_module(request["module"], PACKAGE), request["function"])
    except (ImportError, MemoryError, OSError) as error:
        _message(requests)
        return json.dumps({"unstarted": f"{type(error).__name__} {error}".strip()}).encode()
    try:
        with _limits(request["memory"], request["seconds"]):
            result = function(json.loads(_message(requests).decode("utf-8", "surrogatepass")))
            return json.dumps({"result": result}, ensure_ascii=False).encode("utf-8", "surrogatepass")
    except Error as error:
        answer = {"error": type(error).__name__, "code": error.code, "why": error.why, "hint": error.hint}
    except MemoryError:
        answer = {"memory": True}
    return json.dumps(answer).encode()


@contextmanager
def _limits(memory: int, seconds: float) -> Iterator[None]:
    """Bounds on the address space beyond what there is, and on processor time."""
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    spent = resource.getrusage(resource.RUSAGE_SELF)
    _bound(resource.RLIMIT_AS, used + memory)
    _bound(resource.RLIMIT_CPU, math.ceil(spent.ru_utime + spent.ru_stime + seconds) + 1)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        for kind in (resource.RLIMIT_AS, resource.RLIMIT_CPU):
            hard = resource.getrlimit(kind)[1]
            resource.setrlimit(kind, (hard, hard))


def _bound(kind: int, value: int) -> None:
    hard = resource.getrlimit(kind)[1]
    resource.setrlimit(kind, (value if hard == resource.RLIM_INFINITY else min(value, hard), hard))


def _message(requests: BinaryIO) -> bytes:
    return requests.read(int.from_bytes(requests.read(HEADER), "little"))


def _send(answers: BinaryIO, data: bytes) -> None:
    answers.write(len(data).to_bytes(HEADER, "little") + data)
    answers.flush()
