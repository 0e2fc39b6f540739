"""Timer: training ends after a given time."""

from __future__ import annotations

import datetime
import re
import sys
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ...optim.core.saved_value import checked
from ...runtime.base.errors import UsageError
from .callback import Callback

if TYPE_CHECKING:
    from ..loop.run import Run

STAGES = ("train", "validate", "test", "predict")
WRITTEN = re.compile(r"(\d+):(\d\d):(\d\d):(\d\d)")


class Timer(Callback):
    """Stops training when it has taken a given time, that of the runs before a checkpoint included.

    Args:
        duration: "DD:HH:MM:SS", a timedelta, or a dictionary of its arguments such as ``{"hours": 2}``; None measures.
        interval: step or epoch: after what the time is checked.
        verbose: say why training stops.

    Raises UsageError for a value that is not a duration.
    """

    def __init__(
        self,
        duration: str | datetime.timedelta | Mapping[str, float] | None = None,
        interval: str = "step",
        verbose: bool = True,
    ) -> None:
        if interval not in ("step", "epoch"):
            raise UsageError("E-OPTION", None, f"interval is {interval!r}", expected="step or epoch")
        self.interval, self.verbose = interval, verbose
        self._duration = _seconds(duration)
        self._before = dict.fromkeys(STAGES, 0.0)
        self._began: dict[str, float] = {}
        self._ended: dict[str, float] = {}

    def start_time(self, stage: str = "train") -> float | None:
        """Start of a stage, in seconds of a monotonic clock; None before."""
        return self._began.get(stage)

    def end_time(self, stage: str = "train") -> float | None:
        """End of a stage; None before."""
        return self._ended.get(stage)

    def time_elapsed(self, stage: str = "train") -> float:
        """Seconds that a stage has taken."""
        began = self._began.get(stage)
        return self._before[stage] + (0.0 if began is None else self._ended.get(stage, time.monotonic()) - began)

    def time_remaining(self, stage: str = "train") -> float | None:
        """Seconds that are left; None without a duration."""
        return None if self._duration is None else self._duration - self.time_elapsed(stage)

    def state_dict(self) -> dict[str, Any]:
        """The seconds of each stage."""
        return {"time_elapsed": {stage: self.time_elapsed(stage) for stage in STAGES}}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Restore a state; UsageError for values of another kind."""
        self._before = checked("time_elapsed", state_dict["time_elapsed"], self._before)

    def _begin(self, stage: str) -> None:
        self._began[stage] = time.monotonic()
        self._ended.pop(stage, None)

    def _end(self, stage: str) -> None:
        self._ended[stage] = time.monotonic()

    def on_train_start(self, trainer: Run, module: Any) -> None:
        """Begin."""
        self._begin("train")

    def on_train_end(self, trainer: Run, module: Any) -> None:
        """End."""
        self._end("train")

    def on_train_batch_end(self, trainer: Run, module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Check, if that is asked for here."""
        if self.interval == "step":
            self._check(trainer)

    def on_train_epoch_end(self, trainer: Run, module: Any) -> None:
        """Check, if that is asked for here."""
        if self.interval == "epoch":
            self._check(trainer)

    def on_validation_start(self, trainer: Run, module: Any) -> None:
        """Begin."""
        self._begin("validate")

    def on_validation_end(self, trainer: Run, module: Any) -> None:
        """End."""
        self._end("validate")

    def on_test_start(self, trainer: Run, module: Any) -> None:
        """Begin."""
        self._begin("test")

    def on_test_end(self, trainer: Run, module: Any) -> None:
        """Stop the timer of the test."""
        self._end("test")

    def on_predict_start(self, trainer: Run, module: Any) -> None:
        """Begin."""
        self._begin("predict")

    def on_predict_end(self, trainer: Run, module: Any) -> None:
        """End."""
        self._end("predict")

    def _check(self, trainer: Run) -> None:
        left = self.time_remaining()
        if left is not None and left <= 0 and not trainer.should_stop:
            trainer.should_stop = True
            if self.verbose:
                print(f"training stops: it has taken {self.time_elapsed():.1f} s", file=sys.stderr)


def _seconds(duration: Any) -> float | None:
    written = WRITTEN.fullmatch(duration.strip()) if isinstance(duration, str) else None
    try:
        if written is not None:
            days, hours, minutes, seconds = map(int, written.groups())
            duration = datetime.timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)
        elif isinstance(duration, Mapping):
            duration = datetime.timedelta(**duration)
    except (OverflowError, TypeError) as error:
        raise UsageError("E-OPTION", None, f"the duration is {duration!r} ({error})") from error
    if not isinstance(duration, datetime.timedelta | None):
        expected = 'a timedelta, its arguments, or a string such as "00:12:00:00", days first'
        raise UsageError("E-OPTION", None, f"the duration is {duration!r}", expected=expected)
    return None if duration is None else duration.total_seconds()
