"""ProgressBar: a live bar on a terminal, and a line for each epoch elsewhere."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any

from ...runtime.base.compile_progress import Stopwatch
from ...runtime.base.units import counted
from ..loop.logged import own_first
from .callback import Callback

if TYPE_CHECKING:
    from ..loop.run import Run

REFRESHES = 8
"""Of the bar, in a second."""


class ProgressBar(Callback):
    """Shows the epoch, its batches, the rate, and the metrics that are logged with ``prog_bar=True``.

    Args:
        live: draw a bar; None for a terminal. Without it each epoch is a line.
        first: number of the first epoch that is shown.
    """

    order = 1

    def __init__(self, live: bool | None = None, first: int = 0) -> None:
        self._live = sys.stderr.isatty() if live is None else live
        self._first = first
        self._bar: Any = None
        self._watch = Stopwatch()
        self._drawn = 0.0

    def on_train_epoch_start(self, trainer: Run, module: Any) -> None:
        """Begin a bar."""
        self._watch = Stopwatch()
        if self._live:
            self._start(self._title(trainer), trainer.batches)

    def on_train_batch_end(self, trainer: Run, module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Advance the bar by one batch."""
        self._advance(_text(trainer.progress_bar_metrics), trainer.batch_count)

    def on_train_epoch_end(self, trainer: Run, module: Any) -> None:
        """End the bar with a line that stays."""
        text = _text(trainer.progress_bar_metrics)
        self._stop()
        seconds = self._watch.seconds
        rate = trainer.batch_count / seconds if seconds else 0
        amount = f"{counted(trainer.batch_count, 'batch', 'batches')} in {seconds:.1f} s ({rate:.1f}/s)"
        print(
            "  ".join(each for each in (self._title(trainer), amount, text, self._compiled()) if each), file=sys.stderr
        )

    def on_exception(self, trainer: Run, module: Any, error: BaseException) -> None:
        """Take the bar away."""
        self._stop()

    def _title(self, trainer: Run) -> str:
        number = trainer.current_epoch + self._first
        of = "" if trainer.epochs is None else f"/{trainer.epochs + self._first - 1}"
        return f"epoch {number}{of}"

    def _compiled(self) -> str:
        """Seconds that the epoch spent on compilation, which its rate leaves out."""
        watch = self._watch
        if not watch.kernels:
            return ""
        return f"(compiled {counted(watch.kernels, 'kernel')} in {watch.compile_seconds:.1f} s, once per machine)"

    def _start(self, title: str, total: int | None) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        columns = (
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[metrics]}", markup=False),
        )
        # without rich's thread: where a thread runs, no processes are forked to compile kernels in parallel
        self._bar = Progress(*columns, console=Console(stderr=True), transient=True, auto_refresh=False)
        self._task = self._bar.add_task(title, total=total, metrics="")
        self._bar.start()

    def _advance(self, metrics: str, count: int) -> None:
        if self._bar is not None:
            now = time.monotonic()
            due = now - self._drawn >= 1 / REFRESHES
            self._drawn = now if due else self._drawn
            self._bar.update(self._task, completed=count, metrics=metrics, refresh=due)

    def _stop(self) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None


def _text(metrics: dict[str, float]) -> str:
    return "  ".join(f"{name} {value:.4g}" for name, value in own_first(metrics).items())


class TQDMProgressBar(ProgressBar):
    """The progress bar, under the name that it has in Lightning; options of its look are taken without effect."""

    def __init__(self, refresh_rate: int = 1, process_position: int = 0, **options: Any) -> None:
        super().__init__(False if refresh_rate == 0 else None)


RichProgressBar = TQDMProgressBar
"""Lightning's other name."""
