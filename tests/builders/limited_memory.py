"""Commands in processes whose memory is limited."""

import resource
import subprocess
import sys

MOST = 4 << 30
"""Bytes of address space; commands reserve 2 to 3 GiB, of which they use little."""


def run_limited(*words):
    """The exit code of a command, and what it wrote to stderr."""

    def limit():
        resource.setrlimit(resource.RLIMIT_AS, (MOST, MOST))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

    command = [sys.executable, "-m", "candle_convert.convert", *map(str, words)]
    ended = subprocess.run(command, preexec_fn=limit, capture_output=True, text=True, timeout=300, check=False)
    return ended.returncode, ended.stderr
