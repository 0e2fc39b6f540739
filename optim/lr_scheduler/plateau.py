"""ReduceLROnPlateau: learning rates that fall when a metric does not get better."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, TypedDict

from ..core.optimizer import Optimizer
from .scheduler import LRScheduler, per_group, require

if TYPE_CHECKING:
    from typing import Unpack


class PlateauKeywords(TypedDict, total=False):
    """Options of ReduceLROnPlateau.

    Attributes:
        cooldown: steps after a fall in which bad ones are not counted.
        min_lr: bound of the learning rate, or one for each group.
        eps: smaller falls are not made.
    """

    cooldown: int
    min_lr: float | list[float]
    eps: float


class ReduceLROnPlateau(LRScheduler):
    """Learning rates times `factor` after more than `patience` steps without a better metric.

    Args:
        mode: "min" if smaller is better, "max" if larger is.
        threshold: how much better counts, relative to the best ("rel") or not ("abs"), by `threshold_mode`.
        options: the fields of `PlateauKeywords`.
    """

    of_a_try: ClassVar[Mapping[str, Any]] = {"metrics": 0.0}

    def __init__(
        self,
        optimizer: Optimizer,
        mode: str = "min",
        factor: float = 0.1,
        patience: int = 10,
        threshold: float = 1e-4,
        threshold_mode: str = "rel",
        **options: Unpack[PlateauKeywords],
    ) -> None:
        require(factor < 1, f"factor is {factor}", "less than 1")
        require(mode in ("min", "max"), f"mode is {mode!r}", "min or max")
        require(threshold_mode in ("rel", "abs"), f"threshold_mode is {threshold_mode!r}", "rel or abs")
        self._take(optimizer)
        unknown = set(options) - set(PlateauKeywords.__annotations__)
        require(not unknown, f"unknown options {', '.join(sorted(unknown))}", "cooldown, min_lr, eps")
        self.factor = factor
        self.patience = patience
        self.mode = mode
        self.threshold = threshold
        self.threshold_mode = threshold_mode
        self.cooldown = options.get("cooldown", 0)
        self.eps = options.get("eps", 1e-8)
        self.min_lrs = per_group("min_lr", optimizer, options.get("min_lr", 0))
        self.best = math.inf if mode == "min" else -math.inf
        self.cooldown_counter = self.num_bad_epochs = self.last_epoch = 0
        self._last_lr = self.current()

    def step(self, metrics: Any) -> None:  # type: ignore[override]
        """Take the metric of an epoch, a number or a tensor of one element."""
        metric = float(metrics)
        self.last_epoch += 1
        if self._is_better(metric):
            self.best = metric
            self.num_bad_epochs = 0
        else:
            self.num_bad_epochs += 1
        if self.cooldown_counter > 0:
            self.cooldown_counter -= 1
            self.num_bad_epochs = 0
        if self.num_bad_epochs > self.patience:
            self.set([self._fallen(rate, least) for rate, least in zip(self.current(), self.min_lrs, strict=True)])
            self.cooldown_counter = self.cooldown
            self.num_bad_epochs = 0
        self._last_lr = self.current()

    def _fallen(self, rate: float, least: float) -> float:
        found = max(rate * self.factor, least)
        return found if rate - found > self.eps else rate

    def _is_better(self, metric: float) -> bool:
        sign = 1 if self.mode == "min" else -1
        margin = self.threshold * self.best if self.threshold_mode == "rel" else sign * self.threshold
        if math.isinf(self.best):
            margin = 0
        return sign * metric < sign * (self.best - (margin if self.threshold_mode == "abs" else sign * margin))
