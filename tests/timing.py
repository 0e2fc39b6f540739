"""Limits of time: seconds of the calling thread's processor, in the best of a few attempts, so that what else a machine does counts little."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

Result = TypeVar("Result")
ATTEMPTS = 3


def within(seconds: float, work: Callable[[], Result]) -> Result:
    """What `work` gives; fails where every attempt takes longer."""
    taken = []
    for _ in range(ATTEMPTS):
        began = time.thread_time()
        found = work()
        taken.append(time.thread_time() - began)
        if taken[-1] < seconds:
            return found
    raise AssertionError(f"takes {min(taken):.3g} s, {seconds:g} are allowed")
