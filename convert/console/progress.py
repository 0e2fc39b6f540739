"""Progress of bytes or tokens: a bar, plain lines, JSON lines, or nothing."""

from __future__ import annotations

import json
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Protocol

from ...runtime.base.compile_progress import Stopwatch
from ...runtime.base.printable import printable
from ...runtime.base.units import human_size
from .status_line import busy

BYTES = "bytes"


class Progress(Protocol):
    """A receiver of the progress of long work."""

    def phase(self, name: str) -> None:
        """The current phase: reading, writing, verifying."""
        ...

    def start(self, total: int, skipped: int = 0, unit: str = BYTES) -> None:
        """`total` units will be handled, of which `skipped` were done by an earlier run."""
        ...

    def advance(self, count: int) -> None: ...
    def finish(self) -> None: ...


class NoProgress:
    """Says nothing."""

    def phase(self, name: str) -> None: ...
    def start(self, total: int, skipped: int = 0, unit: str = BYTES) -> None: ...
    def advance(self, count: int) -> None: ...
    def finish(self) -> None: ...


def ignored(nbytes: int) -> None:
    """An `advance` that does nothing."""


class RichProgress:
    """A bar with rate and remaining time on standard error."""

    def __init__(self) -> None:
        self._name = "working"
        self._bar: Any = None

    def phase(self, name: str) -> None:
        self._name = name
        busy().enter(name)

    def start(self, total: int, skipped: int = 0, unit: str = BYTES) -> None:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            DownloadColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeRemainingColumn,
            TransferSpeedColumn,
        )

        amounts = (
            (DownloadColumn(binary_units=True), TransferSpeedColumn())
            if unit == BYTES
            else (MofNCompleteColumn(), TextColumn(unit))
        )
        columns = (TextColumn("{task.description:<9}", markup=False), BarColumn(), *amounts, TimeRemainingColumn())
        self._bar = Progress(*columns, console=Console(stderr=True), transient=True, refresh_per_second=8)
        self._left = max(0, total - skipped)
        self._task = self._bar.add_task(printable(self._name), total=total, completed=min(skipped, total))
        busy().hold()
        self._bar.start()

    def advance(self, count: int) -> None:
        step = min(max(0, count), self._left)
        self._left -= step
        self._bar.advance(self._task, step)

    def finish(self) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None
            busy().release()


class _Lines(NoProgress, ABC):
    """Lines on standard error, one for every 5 % that takes over a second to come."""

    def __init__(self) -> None:
        self._name = "working"

    def phase(self, name: str) -> None:
        self._name = name

    def start(self, total: int, skipped: int = 0, unit: str = BYTES) -> None:
        self._unit = unit
        self._total = max(1, total)
        self._done = self._skipped = min(skipped, self._total)
        self._shown, self._watch = self._done * 20 // self._total, Stopwatch()

    def advance(self, count: int) -> None:
        self._done = min(self._total, self._done + max(0, count))
        step = self._done * 20 // self._total
        seconds = self._watch.seconds
        if step > self._shown and seconds > 1:
            self._shown = step
            self._show(seconds)

    @abstractmethod
    def _show(self, seconds: float) -> None: ...


class PlainProgress(_Lines):
    """Plain text lines, for logs and pipes."""

    def _show(self, seconds: float) -> None:
        rate = (self._done - self._skipped) / seconds
        left = (self._total - self._done) / rate if rate else 0
        if self._unit == BYTES:
            amounts, speed = f"{human_size(self._done)} of {human_size(self._total)}", f"{human_size(rate)}/s"
        else:
            amounts, speed = f"{self._done:,} of {self._total:,} {self._unit}", f"{rate:,.0f} {self._unit}/s"
        text = f"{self._name} {self._done * 100 // self._total}%  {amounts}  {speed}  {left:.0f} s left"
        print(printable(text), file=sys.stderr)


class JsonProgress(_Lines):
    """One JSON object a line."""

    def _show(self, seconds: float) -> None:
        line = {"phase": self._name, "done": self._done, "total": self._total, "seconds": round(seconds, 3)}
        print(json.dumps(line), file=sys.stderr)


STYLES: dict[str, Callable[[], Progress]] = {
    "bar": RichProgress,
    "plain": PlainProgress,
    "json": JsonProgress,
    "none": NoProgress,
}


def of(style: str) -> Progress:
    """The progress display of a style; ``auto`` is a bar on a terminal and plain lines elsewhere."""
    if style == "auto":
        style = "bar" if sys.stderr.isatty() else "plain"
    return STYLES[style]()
