"""Sampling: suites that are too long for every run take every n-th of their cases, others after each commit."""

import functools
import os
import subprocess
from collections.abc import Iterable
from typing import TypeVar

from candle_convert.tests.builders.paths import REPOSITORY

T = TypeVar("T")
VARIABLE = "CANDLE_SAMPLE"


def full() -> bool:
    """Whether all cases run: CANDLE_FULL=1."""
    return os.environ.get("CANDLE_FULL") == "1"


@functools.cache
def turn() -> int:
    """The number that chooses cases: CANDLE_SAMPLE, or how many commits there are; 0 where git does not know."""
    if VARIABLE in os.environ:
        return int(os.environ[VARIABLE])
    command = ["git", "-C", str(REPOSITORY), "rev-list", "--count", "HEAD"]
    try:
        counted = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    except OSError:
        return 0
    return int(counted.strip() or 0)


def every(step: int, cases: Iterable[T]) -> list[T]:
    """Every `step`-th case, beginning with the one whose turn it is; all of them in full runs."""
    return [*cases][turn() % step :: step] if not full() else [*cases]
