"""Compile bar: shows on standard error that kernels are compiled, how far that is and how long it takes."""

from __future__ import annotations

import sys
from typing import Any

from ...runtime.base.compile_progress import CompileProgress, description
from .output import current
from .status_line import busy

REFRESHES = 8
"""Of the bar, in a second."""


class CompileBar:
    """A bar on a terminal, one line elsewhere, nothing where little is to be said."""

    def __init__(self) -> None:
        self._bar: Any = None
        self._said = False
        self._phase: str | None = None

    def __call__(self, progress: CompileProgress) -> None:
        if current().json or current().quiet:
            return
        if not progress.total:
            self._phase = busy().phase
            busy().enter("planning")
            return
        ended = progress.compiled == progress.total
        if ended and self._phase is not None:
            busy().enter(self._phase)
            self._phase = None
        if not sys.stderr.isatty():
            if not self._said and not ended:
                about = f": about {progress.seconds_left:.0f} s" if progress.seconds_left >= 1 else ""
                print(f"{description(progress.total)}{about}", file=sys.stderr)
            self._said = not ended
            return
        left = f"{max(1, round(progress.seconds_left))} s left"
        if self._bar is None and not ended:
            self._start(progress, left)
        if self._bar is not None:
            self._bar.update(self._task, completed=progress.share, left=left)
            if ended:
                self._bar.stop()
                self._bar = None
                busy().release()

    def _start(self, progress: CompileProgress, left: str) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

        columns = (
            TextColumn("{task.description}", markup=False),
            BarColumn(20),
            TaskProgressColumn(),
            TextColumn("{task.fields[left]}", markup=False),
        )
        self._bar = Progress(*columns, console=Console(stderr=True), transient=True, refresh_per_second=REFRESHES)
        self._task = self._bar.add_task(description(progress.total), total=1.0, left=left)
        busy().hold()
        self._bar.start()
