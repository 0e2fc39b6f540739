"""OneCycleLR: up to a large learning rate and down to a small one, while momentum goes the other way (Smith and Topin
2017, arXiv:1708.07120)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple, TypedDict

from ..core.optimizer import Optimizer
from .momentum import MomentumScheduler
from .scheduler import per_group, require

if TYPE_CHECKING:
    from typing import Unpack


class OneCycleKeywords(TypedDict, total=False):
    """Options of OneCycleLR.

    Attributes:
        anneal_strategy: "cos" or "linear".
        cycle_momentum: change the momentum, or the first of `betas`, too: from `max_momentum` to `base_momentum` and
            back.
        div_factor, final_div_factor: `max_lr` over the first learning rate; the first over the last one.
        three_phase: go down to the first learning rate as slowly as up, and then to the last one.
    """

    anneal_strategy: str
    cycle_momentum: bool
    base_momentum: float | list[float]
    max_momentum: float | list[float]
    div_factor: float
    final_div_factor: float
    three_phase: bool
    last_epoch: int


DEFAULTS: OneCycleKeywords = {
    "anneal_strategy": "cos", "cycle_momentum": True, "base_momentum": 0.85, "max_momentum": 0.95, "div_factor": 25.0,
    "final_div_factor": 1e4, "three_phase": False, "last_epoch": -1,
}  # fmt: skip


class Phase(NamedTuple):
    """A part of the cycle: its last step, and the options of a group between which it goes."""

    end: float
    start_lr: str
    end_lr: str
    start_momentum: str
    end_momentum: str


class OneCycleLR(MomentumScheduler):
    """From ``max_lr / div_factor`` up to `max_lr`, and down to much less, in `total_steps` steps.

    Args:
        max_lr: the largest learning rate, or one for each group.
        total_steps: length of the cycle, or None for ``epochs * steps_per_epoch``.
        pct_start: share of the steps that go up.
        options: the fields of `OneCycleKeywords`.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        max_lr: float | list[float],
        total_steps: int | None = None,
        epochs: int | None = None,
        steps_per_epoch: int | None = None,
        pct_start: float = 0.3,
        **options: Unpack[OneCycleKeywords],
    ) -> None:
        self._take(optimizer)
        unknown = set(options) - set(DEFAULTS)
        require(not unknown, f"unknown options {', '.join(sorted(unknown))}", ", ".join(DEFAULTS))
        given: OneCycleKeywords = {**DEFAULTS, **options}
        if total_steps is None and epochs and steps_per_epoch:
            total_steps = epochs * steps_per_epoch
        require(bool(total_steps and total_steps > 0), "the number of steps is not given", "total_steps, from 1 on")
        require(0 <= pct_start <= 1, f"pct_start is {pct_start}", "0 to 1")
        strategy = given["anneal_strategy"]
        require(strategy in ("cos", "linear"), f"anneal_strategy is {strategy!r}", "cos or linear")
        assert total_steps is not None
        self.total_steps = total_steps
        self.cycle_momentum = given["cycle_momentum"]
        self._anneal_func_type = strategy
        self._schedule_phases = _phases(total_steps, pct_start, given["three_phase"])
        if given["last_epoch"] == -1:
            for group, rate in zip(self.groups, per_group("max_lr", optimizer, max_lr), strict=True):
                first = rate / given["div_factor"]
                group.update(initial_lr=first, max_lr=rate, min_lr=first / given["final_div_factor"])
        if self.cycle_momentum:
            self.begin_momentum(given["base_momentum"], given["max_momentum"], given["last_epoch"] == -1)
        super().__init__(optimizer, given["last_epoch"])

    def get_lr(self) -> list[float]:
        step = self.last_epoch
        require(step <= self.total_steps, f"step {step} of a cycle of {self.total_steps}", "no more steps")
        start = 0.0
        for phase in self._schedule_phases:
            if step <= phase.end or phase is self._schedule_phases[-1]:
                break
            start = phase.end
        share = (step - start) / (phase.end - start)
        if self.cycle_momentum:
            for group in self.groups:
                between = group[phase.start_momentum], group[phase.end_momentum]
                self.set_momentum(group, self._annealed(*between, share))
        return [self._annealed(group[phase.start_lr], group[phase.end_lr], share) for group in self.groups]

    def _annealed(self, start: float, end: float, share: float) -> float:
        if self._anneal_func_type == "linear":
            return (end - start) * share + start
        return end + (start - end) / 2 * (math.cos(math.pi * share) + 1)


def _phases(steps: int, rising: float, three: bool) -> list[Phase]:
    up = Phase(rising * steps - 1, "initial_lr", "max_lr", "max_momentum", "base_momentum")
    if not three:
        return [up, Phase(steps - 1, "max_lr", "min_lr", "base_momentum", "max_momentum")]
    return [
        up,
        Phase(2 * rising * steps - 2, "max_lr", "initial_lr", "base_momentum", "max_momentum"),
        Phase(steps - 1, "initial_lr", "min_lr", "max_momentum", "max_momentum"),
    ]
