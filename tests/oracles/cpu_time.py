"""Limits of processor time: the best of a few attempts of the calling thread, so that a busy machine counts little."""

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
