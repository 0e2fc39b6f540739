"""SWALR: from a learning rate to the one at which weights are averaged."""

from __future__ import annotations

import math
from typing import Any

from ..core.optimizer import Optimizer
from .scheduler import LRScheduler, per_group, require

STRATEGIES = ("cos", "linear")


class SWALR(LRScheduler):
    """Moves each group's learning rate to `swa_lr` in `anneal_epochs` steps, and keeps it (Izmailov et al. 2018,
    arXiv:1803.05407).

    Args:
        swa_lr: a number, or one for each group.
        anneal_strategy: cos, or linear.
    """

    def __init__(
        self, optimizer: Optimizer, swa_lr: Any, anneal_epochs: int = 10, anneal_strategy: str = "cos",
        last_epoch: int = -1,
    ) -> None:  # fmt: skip
        require(anneal_strategy in STRATEGIES, f"anneal_strategy is {anneal_strategy!r}", " or ".join(STRATEGIES))
        require(
            isinstance(anneal_epochs, int) and anneal_epochs >= 0, f"anneal_epochs is {anneal_epochs!r}", "0 or more"
        )
        self.anneal_epochs, self.anneal_strategy = anneal_epochs, anneal_strategy
        for rate, group in zip(per_group("swa_lr", optimizer, swa_lr), optimizer.param_groups, strict=True):
            group["swa_lr"] = rate
        super().__init__(optimizer, last_epoch)

    def _share(self, step: int) -> float:
        """How much of `swa_lr` there is."""
        place = max(0.0, min(1.0, step / max(1, self.anneal_epochs)))
        return (1 - math.cos(math.pi * place)) / 2 if self.anneal_strategy == "cos" else place

    def get_lr(self) -> list[float]:
        """From the learning rates that the groups have now."""
        step = self._step_count - 1
        if self.anneal_epochs == 0:
            step = max(1, step)
        before, now = self._share(step - 1), self._share(step)
        found = []
        for group in self.optimizer.param_groups:
            wanted = group["swa_lr"]
            first = wanted if before == 1 else (group["lr"] - before * wanted) / (1 - before)
            found.append(wanted * now + first * (1 - now))
        return found
