"""Hosts as network namespaces of this machine, connected by a bridge, for tests of clusters."""

import contextlib
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import candle_convert
import pytest

BELOW = Path(candle_convert.__file__).parents[1]
DASK = {"DASK_DISTRIBUTED__COMM__TIMEOUTS__TCP": "12s"}
"""Instead of 30 s, until Dask calls a connection dead; 11 are the least it takes."""


def _ip(*words):
    return subprocess.run(["ip", *words], capture_output=True, text=True)


class Hosts:
    """Namespaces with one address each."""

    def __init__(self, count):
        self.mark = f"cc{os.getpid() % 100000}"
        self.names = [f"{self.mark}h{number}" for number in range(count)]
        self.addresses = [f"10.93.7.{number + 1}" for number in range(count)]
        self._started = []

    def up(self):
        """Create them. Skips the test where this is not permitted."""
        bridge = f"{self.mark}b"
        steps = [("link", "add", bridge, "type", "bridge"), ("link", "set", bridge, "up")]
        for number, (name, address) in enumerate(zip(self.names, self.addresses, strict=True)):
            outer, inner = f"{self.mark}o{number}", f"{self.mark}i{number}"
            steps += [
                ("netns", "add", name), ("link", "add", outer, "type", "veth", "peer", "name", inner),
                ("link", "set", outer, "master", bridge, "up"), ("link", "set", inner, "netns", name),
                ("-n", name, "addr", "add", f"{address}/24", "dev", inner), ("-n", name, "link", "set", inner, "up"),
                ("-n", name, "link", "set", "lo", "up"),
            ]  # fmt: skip
        for step in steps:
            done = _ip(*step)
            if done.returncode:
                pytest.skip(f"network namespaces are not permitted here: ip {' '.join(step)}: {done.stderr.strip()}")

    def cut(self, number):
        """Take the cable of a host out."""
        _ip("link", "set", f"{self.mark}o{number}", "down")

    def command(self, number, *words):
        """A command in a host."""
        return ["ip", "netns", "exec", self.names[number], *words]

    def start(self, number, *words, below=BELOW, hidden=None):
        """Start a program in a host, which imports the package from the folder `below`, and for which the folder
        `hidden` is empty."""
        where = {**os.environ, **DASK, "PYTHONPATH": str(below)}
        hiding = ["sh", "-c", 'mount -t tmpfs none "$0" && exec "$@"', str(hidden)] if hidden else []
        process = subprocess.Popen(
            self.command(number, *hiding, sys.executable, *words),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=where,
        )
        self._started.append(process)
        return process

    def scheduler(self, number=0):
        """Start a scheduler; its address."""
        self.start(number, "-m", "distributed.cli.dask_scheduler", "--host", self.addresses[number], "--port", "8786",
                   "--no-dashboard")  # fmt: skip
        time.sleep(1)
        return f"tcp://{self.addresses[number]}:8786"

    def worker(self, number, scheduler, below=BELOW, hidden=None):
        """Start a worker."""
        return self.start(
            number, "-m", "distributed.cli.dask_worker", scheduler, "--host", self.addresses[number], "--nthreads", "1",
            "--no-dashboard", "--local-directory", f"/tmp/{self.mark}", below=below, hidden=hidden,
        )  # fmt: skip

    def convert(self, number, *words):
        """Run a command of the package in a host."""
        command = self.command(number, sys.executable, "-m", "candle_convert.convert", *words)
        return subprocess.run(command, capture_output=True, text=True, timeout=300,
                              env={**os.environ, **DASK, "PYTHONPATH": str(BELOW)})  # fmt: skip

    def down(self):
        """End all programs and delete the namespaces."""
        for process in self._started:
            process.terminate()
        for process in self._started:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(10)
            process.kill()
        for name in self.names:
            _ip("netns", "del", name)
        _ip("link", "del", f"{self.mark}b")
        shutil.rmtree(f"/tmp/{self.mark}", ignore_errors=True)


@contextlib.contextmanager
def hosts(count):
    """Hosts until the block ends."""
    if os.geteuid() or shutil.which("ip") is None:
        pytest.skip("network namespaces need root and the program ip")
    made = Hosts(count)
    try:
        made.up()
        yield made
    finally:
        made.down()
