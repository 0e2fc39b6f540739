"""Counter: progress of runs over many inputs."""

from __future__ import annotations

from ..console.progress import Progress


class Counter:
    """Tells a progress display how many inputs are done."""

    def __init__(self, progress: Progress, phase: str, unit: str = "texts") -> None:
        self._progress, self._unit, self._done = progress, unit, 0
        self._started = False
        progress.phase(phase)

    def __call__(self, done: int, total: int) -> None:
        if not self._started or done < self._done:
            self._progress.start(total, unit=self._unit)
            self._started, self._done = True, 0
        self._progress.advance(done - self._done)
        self._done = done
        if done == total:
            self._progress.finish()
