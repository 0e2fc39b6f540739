"""Schedules made of schedules: one after another, or all at once."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from ...runtime.base.units import counted
from ..core.optimizer import Optimizer
from ..core.saved_value import mismatch
from .plateau import ReduceLROnPlateau
from .scheduler import LRScheduler, require


class _Composed(LRScheduler):
    """A schedule whose state has those of others."""

    external: ClassVar[frozenset[str]] = frozenset({"optimizer", "_schedulers"})
    has_functions = True
    _schedulers: list[LRScheduler]

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "_schedulers": [scheduler.state_dict() for scheduler in self._schedulers]}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        own = self.fitting(state_dict)
        states = state_dict.get("_schedulers")
        if not isinstance(states, list | tuple) or len(states) != len(self._schedulers):
            raise mismatch(
                f"{type(self).__name__}._schedulers", f"a list of {len(self._schedulers)}", repr(type(states))
            )
        for each, state in zip(self._schedulers, states, strict=True):
            each.fitting(state)
        for each, state in zip(self._schedulers, states, strict=True):
            each.load_state_dict(state)
        vars(self).update(own)


class SequentialLR(_Composed):
    """The first schedule until the first of `milestones`, then the next one from its start."""

    def __init__(
        self, optimizer: Optimizer, schedulers: Sequence[LRScheduler], milestones: Sequence[int], last_epoch: int = -1
    ) -> None:
        require(bool(schedulers), "the list of schedules is empty", "at least one")
        fits = all(
            scheduler.optimizer is optimizer and not isinstance(scheduler, ReduceLROnPlateau)
            for scheduler in schedulers
        )
        require(fits, "a schedule is of another optimizer, or needs a metric", "schedules of this optimizer")
        count = len(schedulers) - 1
        require(
            len(milestones) == count,
            f"{counted(len(milestones), 'milestone')} of {counted(count + 1, 'schedule')}",
            str(count),
        )
        self._take(optimizer)
        self._schedulers = list(schedulers)
        self._milestones = list(milestones)
        self.last_epoch = last_epoch + 1
        for group in self.groups:
            group["lr"] = group["initial_lr"]
        _undo(self)
        first = self._schedulers[bisect_right(self._milestones, 0)]
        first.begin()
        self._last_lr = first.get_last_lr()

    def step(self, epoch: int | None = None) -> None:
        """Set the learning rates of the next step."""
        self.last_epoch += 1
        number = bisect_right(self._milestones, self.last_epoch)
        scheduler = self._schedulers[number]
        if number > 0 and self._milestones[number - 1] == self.last_epoch:
            scheduler.move(0)
        else:
            scheduler.step()
        self._last_lr = scheduler.get_last_lr()


def _undo(scheduler: LRScheduler) -> None:
    """Take back the first step of the schedules that a schedule is made of."""
    if not isinstance(scheduler, _Composed):
        scheduler.last_epoch -= 1
        return
    for each in scheduler._schedulers:
        _undo(each)


class ChainedScheduler(_Composed):
    """All schedules at each step."""

    def __init__(self, schedulers: Sequence[LRScheduler], optimizer: Optimizer | None = None) -> None:
        require(bool(schedulers), "the list of schedules is empty", "at least one")
        self._take(optimizer or schedulers[0].optimizer)
        fits = all(scheduler.optimizer is self.optimizer for scheduler in schedulers)
        require(fits, "a schedule is of another optimizer", "schedules of one optimizer")
        self._schedulers = list(schedulers)
        self._last_lr = self.current()

    def step(self, epoch: int | None = None) -> None:
        """Set the learning rates of the next step."""
        for scheduler in self._schedulers:
            scheduler.step()
        self._last_lr = self.current()
