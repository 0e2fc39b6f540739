"""Optimizers and schedules of learning rates, from what `configure_optimizers` returns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...optim import Optimizer
from ...optim.lr_scheduler import ReduceLROnPlateau
from ...runtime.base.dataclass import dataclass
from ...runtime.base.errors import UsageError

INTERVALS = ("epoch", "step")
SCHEDULE_KEYS = frozenset(("scheduler", "interval", "frequency", "monitor", "strict", "name", "reduce_on_plateau"))
EXPECTED = (
    "an optimizer, a list of optimizers, two lists of optimizers and schedulers, a dictionary with the key optimizer, "
    "or None"
)


@dataclass(frozen=True)
class Schedule:
    """Interval of a learning-rate schedule's steps.

    Attributes:
        interval: epoch or step: what is counted.
        frequency: how many of them make a step.
        monitor: name of the metric that a plateau scheduler is given.
        name: of the learning rate in logs; None for the optimizer's.
    """

    scheduler: Any
    interval: str = "epoch"
    frequency: int = 1
    monitor: str = "val_loss"
    strict: bool = True
    name: str | None = None

    @property
    def needs_metric(self) -> bool:
        """Whether a step needs a metric."""
        return isinstance(self.scheduler, ReduceLROnPlateau)


def configured(given: Any) -> tuple[list[Optimizer], list[Schedule]]:
    """Optimizers and schedules; UsageError for what is neither."""
    if given is None:
        return [], []
    if isinstance(given, Optimizer):
        return [given], []
    if isinstance(given, Mapping):
        return _of_dictionary(given)
    if isinstance(given, Sequence) and not isinstance(given, str):
        if len(given) == 2 and isinstance(given[0], list | tuple):
            return list(map(_checked, given[0])), list(map(_schedule, given[1] or ()))
        optimizers: list[Optimizer] = []
        schedules: list[Schedule] = []
        for each in given:
            found = configured(each)
            optimizers += found[0]
            schedules += found[1]
        return optimizers, schedules
    raise UsageError("E-TRAIN-OPTIMIZER", None, f"configure_optimizers() gives {_kind(given)}", expected=EXPECTED)


def _of_dictionary(given: Mapping[str, Any]) -> tuple[list[Optimizer], list[Schedule]]:
    unknown = sorted(set(given) - {"optimizer", "lr_scheduler", "monitor", "frequency"})
    if unknown or "optimizer" not in given:
        why = f"configure_optimizers() gives a dictionary of {', '.join(map(str, given))}"
        raise UsageError("E-TRAIN-OPTIMIZER", None, why, expected="the keys optimizer, lr_scheduler, monitor")
    schedules = []
    if given.get("lr_scheduler") is not None:
        made = given["lr_scheduler"]
        settings = dict(made) if isinstance(made, Mapping) else {"scheduler": made}
        if given.get("monitor"):
            settings.setdefault("monitor", given["monitor"])
        schedules.append(_schedule(settings))
    return [_checked(given["optimizer"])], schedules


def _checked(optimizer: Any) -> Optimizer:
    if not isinstance(optimizer, Optimizer):
        raise UsageError("E-TRAIN-OPTIMIZER", None, f"{_kind(optimizer)} is not an optimizer", expected=EXPECTED)
    return optimizer


def _schedule(given: Any) -> Schedule:
    settings = dict(given) if isinstance(given, Mapping) else {"scheduler": given}
    unknown = sorted(set(settings) - SCHEDULE_KEYS)
    if unknown or not callable(getattr(settings.get("scheduler"), "step", None)):
        what = f"the key {unknown[0]!r}" if unknown else f"{_kind(settings.get('scheduler'))} as a scheduler"
        why = f"configure_optimizers() gives {what}"
        raise UsageError("E-TRAIN-OPTIMIZER", None, why, expected=", ".join(sorted(SCHEDULE_KEYS)))
    settings.pop("reduce_on_plateau", None)
    schedule = Schedule(**settings)
    if schedule.interval not in INTERVALS or schedule.frequency < 1:
        why = f"a scheduler has the interval {schedule.interval!r} and the frequency {schedule.frequency}"
        raise UsageError("E-TRAIN-OPTIMIZER", None, why, expected="epoch or step, and at least 1")
    return schedule


def _kind(item: Any) -> str:
    return f"an object of type {type(item).__name__}"
