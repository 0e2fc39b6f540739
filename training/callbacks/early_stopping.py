"""EarlyStopping: training ends when a metric does not get better."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from ...optim.core.saved_value import arrays, checked
from ...runtime.base.errors import UsageError
from ...runtime.base.units import counted
from ..loop.logged import metric
from .callback import Callback

if TYPE_CHECKING:
    from ..loop.run import Run

MODES = ("min", "max")
LARGER_IS_BETTER = ("acc", "auc")
"""Parts of the names of metrics of which more is better, for the mode auto."""


@dataclass(eq=False)
class EarlyStopping(Callback):
    """Stops training when a metric has not got better for a number of checks.

    Attributes:
        monitor: name of the metric.
        min_delta: by how much it must change to count as better.
        patience: checks without anything better after which training stops.
        verbose: say why training stops.
        mode: whether less (min) or more (max) is better; Keras' auto takes max for metrics with "acc" or "auc" in their
            name.
        strict: whether a metric that is not logged is an error.
        check_finite: stop where the metric is not a finite number.
        stopping_threshold: stop when the metric is better than this.
        divergence_threshold: stop when the metric is worse than this.
        check_on_train_epoch_end: check after training instead of after validation; None for the first where there is
            no validation.
        restore_best_weights: give the module the weights of its best check when training ends.
        baseline: a best value that is not better than this counts as a check without one, but stops nothing.
        start_from_epoch: before which nothing is checked.
    """

    order: ClassVar[int] = 1
    monitor: str = "val_loss"
    min_delta: float = 0.0
    patience: int = 3
    verbose: bool = False
    mode: str = "min"
    strict: bool = True
    check_finite: bool = True
    stopping_threshold: float | None = None
    divergence_threshold: float | None = None
    check_on_train_epoch_end: bool | None = None
    restore_best_weights: bool = False
    baseline: float | None = None
    start_from_epoch: int = 0
    stopped_epoch: int = field(default=0, init=False)
    wait_count: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        if self.mode == "auto":
            self.mode = "max" if any(part in self.monitor for part in LARGER_IS_BETTER) else "min"
        if self.mode not in MODES:
            raise UsageError("E-OPTION", None, f"mode is {self.mode!r}", expected="min or max, or auto")
        self.best_score = math.inf if self.mode == "min" else -math.inf
        self._best: dict[str, Any] = {}

    @property
    def state_key(self) -> str:
        """Different for callbacks of different metrics."""
        return f"EarlyStopping({self.monitor}, {self.mode})"

    def state_dict(self) -> dict[str, Any]:
        """Best value and checks since then."""
        return {
            "wait_count": self.wait_count,
            "stopped_epoch": self.stopped_epoch,
            "best_score": self.best_score,
            "patience": self.patience,
            "best": self._best,
        }

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Restore a state; UsageError for values of another kind."""
        best = arrays("best", state_dict["best"])
        own = self.state_dict() | {"best": best}
        given = checked(self.state_key, {**state_dict, "best": best}, own)
        self.wait_count, self.stopped_epoch = given["wait_count"], given["stopped_epoch"]
        self.best_score, self.patience = given["best_score"], given["patience"]
        self._best = best

    def on_train_epoch_end(self, trainer: Run, module: Any) -> None:
        """Check, if that is asked for here."""
        if self._after_training(trainer):
            self._check(trainer, module)

    def on_validation_end(self, trainer: Run, module: Any) -> None:
        """Check, if that is asked for here."""
        if not self._after_training(trainer) and trainer.training and not trainer.sanity_checking:
            self._check(trainer, module)

    def on_fit_end(self, trainer: Run, module: Any) -> None:
        """Restore the best weights, if that is asked for."""
        if self.restore_best_weights and self._best:
            module.load_state_dict(self._best)

    def _after_training(self, trainer: Run) -> bool:
        asked = self.check_on_train_epoch_end
        return not trainer.has_validation if asked is None else asked

    def _check(self, trainer: Run, module: Any) -> None:
        if trainer.current_epoch < self.start_from_epoch:
            return
        if self.monitor not in trainer.callback_metrics and not self.strict:
            return
        current = metric(trainer.callback_metrics, self.monitor, "EarlyStopping")
        sign = 1 if self.mode == "min" else -1
        better = sign * current < sign * self.best_score - abs(self.min_delta)
        why = None
        if self.check_finite and not math.isfinite(current):
            why = f"{self.monitor} is {current}"
        elif self.stopping_threshold is not None and sign * current < sign * self.stopping_threshold:
            why = f"{self.monitor} is {current:.4g}, which is better than {self.stopping_threshold}"
        elif self.divergence_threshold is not None and sign * current > sign * self.divergence_threshold:
            why = f"{self.monitor} is {current:.4g}, which is worse than {self.divergence_threshold}"
        counts = self.baseline is None or sign * current < sign * self.baseline - abs(self.min_delta)
        if better:
            self.best_score, self.wait_count = current, 0 if counts else self.wait_count + 1
            if self.restore_best_weights:
                self._best = {name: each.array() for name, each in module.state_dict().items()}
        elif why is None:
            self.wait_count += 1
            if self.wait_count >= self.patience:
                why = (
                    f"{self.monitor} did not get better than {self.best_score:.4g} in "
                    f"{counted(self.wait_count, 'check')}"
                )
        if why is not None:
            trainer.should_stop = True
            self.stopped_epoch = trainer.current_epoch
            if self.verbose:
                print(f"training stops: {why}", file=sys.stderr)
