"""Resident memory of this process."""

from __future__ import annotations

import re
import resource
import sys
from pathlib import Path


def peak_rss() -> int:
    """The most resident memory this program has had, in bytes.

    Linux's own high-water mark is preferred, since getrusage also counts what the parent held before it started us.
    """
    try:
        mark = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    except OSError:
        mark = None
    if mark is not None:
        return int(mark[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
