"""A script that runs command lines with standard streams that are closed, full, read-only or without a reader."""

import contextlib
import io
import json
import os
import signal
import sys
from pathlib import Path

STREAMS = {
    "usable": {},
    "full": {1: "/dev/full"},
    "closed": {1: None},
    "read-only": {1: "read-only"},
    "no reader": {1: "pipe"},
    "errors closed": {2: None},
    "errors full": {2: "/dev/full"},
    "input closed": {0: None},
    "input write-only": {0: "/dev/full"},
    "all closed": {0: None, 1: None, 2: None},
}
"""What each descriptor is instead of a file."""


def opened(number, target):
    """A descriptor in place of a standard one."""
    if target == "pipe":
        reading, writing = os.pipe()
        os.close(reading)
        return writing
    if target == "read-only":
        return os.open(os.devnull, os.O_RDONLY)
    return os.open(target, os.O_WRONLY)


def arranged(streams, folder):
    """Give this process those streams, as Python has them when it starts."""
    targets = {0: os.devnull, 1: folder / "out", 2: folder / "err"}
    for number, target in targets.items():
        handle = os.open(target, os.O_RDONLY if number == 0 else os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
        os.dup2(handle, number)
        os.close(handle)
    for number, target in streams.items():
        if target is None:
            os.close(number)
        else:
            handle = opened(number, target)
            os.dup2(handle, number)
            os.close(handle)
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        closed = streams.get(number, "") is None
        raw = None if closed else io.FileIO(number, "w" if number else "r", closefd=False)
        stream = raw and io.TextIOWrapper((io.BufferedWriter if number else io.BufferedReader)(raw), encoding="utf-8")
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


def ended(words, streams, folder):
    """Exit code, standard output and standard error of a command in a fork of this process."""
    child = os.fork()
    if child == 0:
        from candle_convert.convert.__main__ import main

        code = 70
        try:
            arranged(streams, folder)
            signal.signal(signal.SIGINT, signal.default_int_handler)
            sys.argv = ["candle-convert", *words]
            main()
        except SystemExit as end:
            code = end.code or 0
            with contextlib.suppress(Exception):
                sys.stderr.flush()
            try:
                sys.stdout.flush()
            except Exception:
                code = 120  # Python's own
        except BaseException as error:
            os.write(2, f"Traceback {error!r}".encode())
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status), *(folder.joinpath(n).read_text(errors="replace") for n in ("out", "err"))


def main(jobs, folder):
    """Run every job, words and names of arrangements, and print what each ended with."""
    from candle_convert.runtime.execute.shape_warmup import ShapeWarmup

    ShapeWarmup.compile_later = ShapeWarmup.imminent_kernels = lambda *arguments: []
    results = [
        {name: ended(words, STREAMS[name], Path(folder)) for name in names}
        for words, names in json.loads(Path(jobs).read_text())
    ]
    print(json.dumps(results))


if __name__ == "__main__":
    main(*sys.argv[1:])
