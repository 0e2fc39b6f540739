"""LearningRateMonitor: learning rates among the logged metrics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...runtime.base.errors import UsageError
from .callback import Callback

if TYPE_CHECKING:
    from ..loop.run import Run


class LearningRateMonitor(Callback):
    """Logs the learning rate of each group of parameters under Lightning's names, such as ``lr-AdamW``.

    Args:
        logging_interval: step, epoch, or None for the interval of each schedule.
        log_momentum: log momentum, or the first beta, too.
        log_weight_decay: log weight decay too.
    """

    def __init__(
        self, logging_interval: str | None = None, log_momentum: bool = False, log_weight_decay: bool = False
    ) -> None:
        if logging_interval not in (None, "step", "epoch"):
            why = f"logging_interval is {logging_interval!r}"
            raise UsageError("E-OPTION", None, why, expected="step, epoch or None")
        self.logging_interval = logging_interval
        self.log_momentum = log_momentum
        self.log_weight_decay = log_weight_decay

    def on_train_batch_start(self, trainer: Run, module: Any, batch: Any, batch_idx: int) -> None:
        """Log the rates of this step."""
        if self.logging_interval != "epoch" and trainer.logs_now:
            self._log(trainer, "step")

    def on_train_epoch_start(self, trainer: Run, module: Any) -> None:
        """Log the rates of this epoch."""
        if self.logging_interval != "step":
            self._log(trainer, "epoch")

    def _log(self, trainer: Run, interval: str) -> None:
        found: dict[str, float] = {}
        intervals = {id(each.scheduler.optimizer): each for each in trainer.schedules}
        for optimizer in trainer.optimizers:
            schedule = intervals.get(id(optimizer))
            own = "step" if schedule is None else schedule.interval
            if self.logging_interval is None and own != interval:
                continue
            name = (schedule.name if schedule is not None else None) or f"lr-{type(optimizer).__name__}"
            groups = optimizer.param_groups
            for number, group in enumerate(groups):
                full = name if len(groups) == 1 else f"{name}/pg{number + 1}"
                found[full] = float(group["lr"])
                if self.log_momentum:
                    momentum = group.get("momentum", group.get("betas", (0.0,))[0])
                    found[f"{full}-momentum"] = float(momentum)
                if self.log_weight_decay:
                    found[f"{full}-weight_decay"] = float(group.get("weight_decay", 0))
        if found:
            for logger in trainer.loggers:
                logger.log_metrics(found, trainer.global_step)
            trainer.callback_metrics.update(found)
