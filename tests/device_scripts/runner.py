"""Runs device scripts, each in a process of its own: on a card if there is one, otherwise in the CUDA simulator.

Loading the simulator takes longer than most scripts. One process loads it and forks for each of them.
"""

import atexit
import importlib
import json
import os
import runpy
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

LOADED = (
    "numpy",
    "ml_dtypes",
    "onnx",
    "torch",
    "numba.cuda",
    "candle_convert.runtime.session",
    "candle_convert.formats.containers.onnx.reader",
)


def run_script(script, *arguments, card=True, cwd=None):
    """What a script wrote; fails with the end of what it said of errors. With ``card=False`` it never runs on a
    card."""
    from candle_convert.runtime.cuda.device.device import cuda_support

    command = [str(script), *map(str, arguments)]
    if card and cuda_support().devices:
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        done = subprocess.run(
            [sys.executable, "-P", "-W", "ignore", *command], capture_output=True, text=True, env=environment, cwd=cwd
        )
    else:
        done = _simulated(command, cwd or Path.cwd())
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def _simulated(command, cwd):
    with tempfile.TemporaryDirectory() as folder:
        out, errors = Path(folder) / "out", Path(folder) / "errors"
        server = _server()
        try:
            server.stdin.write(json.dumps([command, str(cwd), str(out), str(errors)]) + "\n")
            server.stdin.flush()
            return subprocess.CompletedProcess(
                command, int(server.stdout.readline()), out.read_text(), errors.read_text()
            )
        except BaseException:  # what it still does is nobody's, a test that took too long for one
            server.kill()
            _server.cache_clear()
            raise


@cache
def _server():
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "NUMBA_ENABLE_CUDASIM": "1"}
    command = [sys.executable, "-P", "-W", "ignore", __file__]
    server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)
    atexit.register(server.communicate)
    return server


def main():
    for name in LOADED:
        try:
            importlib.import_module(name)
        except ImportError:
            continue
    for line in sys.stdin:
        task = json.loads(line)
        child = os.fork()
        if child == 0:
            alone(*task)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


def alone(command, cwd, out, errors):
    """Run a script as if Python had been started for it."""
    for number, path in ((0, os.devnull), (1, out), (2, errors)):
        os.dup2(os.open(path, os.O_RDWR | os.O_CREAT), number)
    os.chdir(cwd)
    sys.argv = command
    runpy.run_path(command[0], run_name="__main__")
    sys.exit()


if __name__ == "__main__":
    main()
