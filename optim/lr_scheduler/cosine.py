"""Learning rates along a cosine, once or with restarts (Loshchilov and Hutter 2016, arXiv:1608.03983)."""

from __future__ import annotations

import math
from typing import Any

from ..core.optimizer import Optimizer
from .scheduler import LRScheduler, require


class CosineAnnealingLR(LRScheduler):
    """From the first learning rate to `eta_min` in `T_max` steps, along half of a cosine; then up again."""

    def __init__(self, optimizer: Optimizer, T_max: int, eta_min: float = 0.0, last_epoch: int = -1) -> None:  # noqa: N803 (PyTorch's name)
        require(T_max > 0, f"T_max is {T_max}", "at least 1")
        self.T_max = T_max
        self.eta_min = eta_min
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        if self._is_initial:
            return self.current()
        if self._step_count == 1 and self.last_epoch > 0:
            return self.lr_at(self.last_epoch)
        if (self.last_epoch - 1 - self.T_max) % (2 * self.T_max) == 0:
            rise = (1 - math.cos(math.pi / self.T_max)) / 2
            return [
                rate + (base - self.eta_min) * rise for rate, base in zip(self.current(), self.base_lrs, strict=True)
            ]
        now, before = (1 + math.cos(math.pi * each / self.T_max) for each in (self.last_epoch, self.last_epoch - 1))
        return [now / before * (rate - self.eta_min) + self.eta_min for rate in self.current()]

    def lr_at(self, epoch: int) -> list[float]:
        share = (1 + math.cos(math.pi * epoch / self.T_max)) / 2
        return [self.eta_min + (base - self.eta_min) * share for base in self.base_lrs]


class CosineAnnealingWarmRestarts(LRScheduler):
    """From the first learning rate to `eta_min` along half of a cosine, and again: in `T_0` steps at first, and each
    time `T_mult` times as many."""

    def __init__(
        self,
        optimizer: Optimizer,
        T_0: int,  # noqa: N803 (PyTorch's name)
        T_mult: int = 1,  # noqa: N803 (PyTorch's name)
        eta_min: float = 0.0,
        last_epoch: int = -1,
    ) -> None:
        require(isinstance(T_0, int) and T_0 > 0, f"T_0 is {T_0!r}", "an integer from 1 on")
        require(isinstance(T_mult, int) and T_mult > 0, f"T_mult is {T_mult!r}", "an integer from 1 on")
        self.T_0 = self.T_i = T_0
        self.T_mult = T_mult
        self.eta_min = eta_min
        self.T_cur: float = last_epoch
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        share = (1 + math.cos(math.pi * self.T_cur / self.T_i)) / 2
        return [self.eta_min + (base - self.eta_min) * share for base in self.base_lrs]

    def move(self, epoch: Any) -> None:
        """Set the learning rates of the next step, or of `epoch`, which may be a fraction."""
        if epoch is None and self.last_epoch >= 0:
            self.last_epoch += 1
            self.T_cur += 1
            if self.T_cur >= self.T_i:
                self.T_cur %= self.T_i
                self.T_i *= self.T_mult
        else:
            self._jump(epoch or 0)
        self.set(self.get_lr())

    def _jump(self, epoch: float) -> None:
        require(epoch >= 0, f"epoch is {epoch}", "at least 0")
        self.last_epoch = math.floor(epoch)
        self.T_cur, self.T_i = epoch, self.T_0
        if self.T_mult == 1:
            self.T_cur = epoch % self.T_0
            return
        while self.T_cur >= self.T_i:
            self.T_cur -= self.T_i
            self.T_i *= self.T_mult
