"""What this process uses: resident memory."""

from __future__ import annotations

import resource
import sys


def peak_rss() -> int:
    """The most resident memory this process has had, in bytes."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
