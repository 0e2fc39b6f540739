"""Keras' callbacks of learning rates, and the end of a training whose loss is not a number."""

from __future__ import annotations

import inspect
import math
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..loop.logged import metric
from .callback import Callback

if TYPE_CHECKING:
    from ..loop.run import Run


def _set(trainer: Run, rate: float, verbose: int) -> None:
    for optimizer in trainer.optimizers:
        for group in optimizer.param_groups:
            group["lr"] = rate
    if verbose:
        print(f"epoch {trainer.current_epoch + 1}: the learning rate is {rate:.4g}", file=sys.stderr)


def _rate(trainer: Run) -> float:
    rate: float = trainer.optimizers[0].param_groups[0]["lr"]
    return rate


class LearningRateScheduler(Callback):
    """Sets the learning rate at the start of each epoch.

    Args:
        schedule: from the number of the epoch, from 0 on, and the learning rate, if it takes two arguments, to the new
            one.
        verbose: whether to print it.
    """

    def __init__(self, schedule: Callable[..., float], verbose: int = 0) -> None:
        self.schedule, self.verbose = schedule, verbose
        self._takes_rate = len(inspect.signature(schedule).parameters) > 1

    def on_train_epoch_start(self, trainer: Run, module: Any) -> None:
        """Set the learning rate."""
        given = (trainer.current_epoch, _rate(trainer)) if self._takes_rate else (trainer.current_epoch,)
        _set(trainer, float(self.schedule(*given)), self.verbose)


class ReduceLROnPlateau(Callback):
    """Multiplies the learning rate by `factor` where a metric has not got better for `patience` epochs.

    Args:
        monitor: name of the metric.
        mode: whether less (min) or more (max) is better; auto: more of metrics with "acc" in their name.
        min_delta: by how much the metric must change to count as better.
        cooldown: epochs after a change in which nothing is counted.
        min_lr: the least learning rate.
    """

    order = 1

    def __init__(
        self, monitor: str = "val_loss", factor: float = 0.1, patience: int = 10, verbose: int = 0, mode: str = "auto",
        min_delta: float = 1e-4, cooldown: int = 0, min_lr: float = 0.0,
    ) -> None:  # fmt: skip
        self.monitor, self.factor, self.patience, self.verbose = monitor, factor, patience, verbose
        self.min_delta, self.cooldown, self.min_lr = min_delta, cooldown, min_lr
        self._sign = -1 if mode == "max" or (mode == "auto" and "acc" in monitor) else 1
        self.best, self.wait, self.resting = math.inf, 0, 0

    def on_train_epoch_end(self, trainer: Run, module: Any) -> None:
        """Check, and change the learning rate."""
        current = self._sign * metric(trainer.callback_metrics, self.monitor, "ReduceLROnPlateau")
        if self.resting:
            self.resting, self.wait = self.resting - 1, 0
        if current < self.best - self.min_delta:
            self.best, self.wait = current, 0
        elif not self.resting:
            self.wait += 1
            rate = _rate(trainer)
            if self.wait >= self.patience and rate > self.min_lr:
                _set(trainer, max(rate * self.factor, self.min_lr), self.verbose)
                self.resting, self.wait = self.cooldown, 0


class TerminateOnNaN(Callback):
    """Ends training where the loss of a batch is not a finite number."""

    def on_train_batch_end(self, trainer: Run, module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Check the loss."""
        loss = outputs.get("loss") if isinstance(outputs, dict) else outputs
        if loss is not None and not math.isfinite(float(loss)):
            print(f"training stops: the loss of batch {batch_idx} is {float(loss)}", file=sys.stderr)
            trainer.should_stop = True
