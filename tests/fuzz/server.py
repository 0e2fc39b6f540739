"""The process behind `harness.Forkserver`: a command line a line as JSON, how it ended as one line of JSON, after one
that says it is ready."""

import importlib
import json
import os
import resource
import signal
import sys
import tempfile
import time
import traceback
from pathlib import Path

import candle_convert as cc
import jinja2.sandbox  # noqa: F401 (loaded before the fork, as the others are)
import numpy  # noqa: F401
import onnx  # noqa: F401
import tokenizers  # noqa: F401
from candle_convert.convert.cli import main as cli
from candle_convert.convert.open.detect_format import formats
from candle_convert.runtime.execute.shape_warmup import ShapeWarmup
from candle_convert.runtime.ir import registry
from candle_convert.runtime.plugin.discovery import COMMANDS
from candle_convert.runtime.tensor.dtype import DTYPES
from candle_convert.tests.builders.sampling import full
from candle_convert.tests.fuzz.harness import HANG

SHOWN = 20_000
"""Characters of an output that are told."""


def warm() -> None:
    """Load what commands load, so that limits count what a file makes us take; no thread is started, which a fork would
    lose. Commands compile no kernels that only later runs may need, unless sweeps are exhaustive."""
    formats()
    registry.operators()
    if not full():
        ShapeWarmup.compile_later = ShapeWarmup.imminent_kernels = lambda *arguments: []
    for name in COMMANDS.names():
        COMMANDS.load(name)
    for dtype in DTYPES.values():
        if dtype.numpy is not None:
            dtype.as_numpy()


def act(words: list[str]) -> int:
    """Do it; the exit code."""
    if ":" not in words[0]:
        return cli.run(words)
    module, _, function = words[0].partition(":")
    try:
        found = getattr(importlib.import_module(module), function)(*words[1:])
    except cc.Error as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return found if isinstance(found, int) else 0


def child(words: list[str], memory: int, seconds: int, folder: Path) -> None:
    """Run a command with its output in files; never returns."""
    code = cli.BUG
    try:
        for number, name in ((1, "stdout"), (2, "stderr")):
            os.dup2(os.open(folder / name, os.O_CREAT | os.O_WRONLY), number)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        tempfile.tempdir = os.environ["TMPDIR"] = str(folder)
        os.setsid()
        limit = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize() + memory
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 5))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        code = act(words)
    except BaseException:
        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(code)


def watched(process: int) -> tuple[int, resource.struct_rusage]:
    """The exit code and the use of a child; one that hangs is killed, with what it started."""
    ends, delay = time.monotonic() + HANG, 0.0005
    while time.monotonic() < ends:
        done, status, used = os.wait4(process, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status), used
        time.sleep(delay)
        delay = min(2 * delay, 0.02)
    os.killpg(process, signal.SIGKILL)
    _, _, used = os.wait4(process, 0)
    return -signal.SIGKILL, used


def answer(words: list[str], memory: int, seconds: int) -> dict[str, object]:
    """How a command ends."""
    with tempfile.TemporaryDirectory(prefix="fuzz-out-") as place:
        folder = Path(place)
        base = int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
        process = os.fork()
        if process == 0:
            child(words, memory, seconds, folder)
        code, used = watched(process)
        outputs = {
            name: (folder / name).read_bytes()[:SHOWN].decode("utf-8", "replace") for name in ("stdout", "stderr")
        }
        report = "".join(path.read_text(errors="replace") for path in folder.glob("candle-convert-*.txt"))
    peak = max(0, used.ru_maxrss * 1024 - base)
    return {"code": code, "seconds": used.ru_utime + used.ru_stime, "peak": peak, **outputs, "report": report[-SHOWN:]}


def main() -> None:
    """Serve until standard input ends."""
    memory, seconds = int(sys.argv[1]), int(sys.argv[2])
    warm()
    out = os.fdopen(os.dup(1), "w")
    print("ready", file=out, flush=True)
    for line in sys.stdin:
        print(json.dumps(answer(json.loads(line), memory, seconds)), file=out, flush=True)


if __name__ == "__main__":
    main()
