"""Learning rates that are multiplied: at some steps, at each step, along a line or a power."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable

from ..core.optimizer import Optimizer
from .scheduler import LRScheduler, require


class StepLR(LRScheduler):
    """Multiplied by `gamma` every `step_size` steps."""

    def __init__(self, optimizer: Optimizer, step_size: int, gamma: float = 0.1, last_epoch: int = -1) -> None:
        require(step_size > 0, f"step_size is {step_size}", "at least 1")
        self.step_size = step_size
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        falls = self.last_epoch != 0 and self.last_epoch % self.step_size == 0
        return [rate * self.gamma for rate in self.current()] if falls else self.current()

    def lr_at(self, epoch: int) -> list[float]:
        return [base * self.gamma ** (epoch // self.step_size) for base in self.base_lrs]


class MultiStepLR(LRScheduler):
    """Multiplied by `gamma` at each of the steps `milestones`."""

    def __init__(
        self, optimizer: Optimizer, milestones: Iterable[int], gamma: float = 0.1, last_epoch: int = -1
    ) -> None:
        self.milestones = Counter(milestones)
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        times = self.milestones[self.last_epoch]
        return [rate * self.gamma**times for rate in self.current()] if times else self.current()

    def lr_at(self, epoch: int) -> list[float]:
        passed = bisect_right(sorted(self.milestones.elements()), epoch)
        return [base * self.gamma**passed for base in self.base_lrs]


class ExponentialLR(LRScheduler):
    """Multiplied by `gamma` at each step."""

    def __init__(self, optimizer: Optimizer, gamma: float, last_epoch: int = -1) -> None:
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        return self.current() if self._is_initial else [rate * self.gamma for rate in self.current()]

    def lr_at(self, epoch: int) -> list[float]:
        return [base * self.gamma**epoch for base in self.base_lrs]


class ConstantLR(LRScheduler):
    """Multiplied by `factor` until step `total_iters`."""

    def __init__(self, optimizer: Optimizer, factor: float = 1 / 3, total_iters: int = 5, last_epoch: int = -1) -> None:
        require(0 <= factor <= 1, f"factor is {factor}", "0 to 1")
        self.factor = factor
        self.total_iters = total_iters
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        if self.last_epoch == 0:
            return [rate * self.factor for rate in self.current()]
        if self.last_epoch != self.total_iters:
            return self.current()
        return [rate * (1 / self.factor) for rate in self.current()]

    def lr_at(self, epoch: int) -> list[float]:
        factor = 1 if epoch >= self.total_iters else self.factor
        return [base * factor for base in self.base_lrs]


class LinearLR(LRScheduler):
    """Multiplied by a factor that goes from `start_factor` to `end_factor` in `total_iters` steps."""

    def __init__(
        self,
        optimizer: Optimizer,
        start_factor: float = 1 / 3,
        end_factor: float = 1.0,
        total_iters: int = 5,
        last_epoch: int = -1,
    ) -> None:
        require(0 < start_factor <= 1, f"start_factor is {start_factor}", "more than 0, at most 1")
        require(0 <= end_factor <= 1, f"end_factor is {end_factor}", "0 to 1")
        self.start_factor = start_factor
        self.end_factor = end_factor
        self.total_iters = total_iters
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        if self.last_epoch == 0:
            return [rate * self.start_factor for rate in self.current()]
        if self._is_initial or self.last_epoch > self.total_iters:
            return self.current()
        slope = self.end_factor - self.start_factor
        before = self.total_iters * self.start_factor + (self.last_epoch - 1) * slope
        return [rate * (1 + slope / before) for rate in self.current()]

    def lr_at(self, epoch: int) -> list[float]:
        slope = self.end_factor - self.start_factor
        factor = self.start_factor + slope * min(self.total_iters, epoch) / self.total_iters
        return [base * factor for base in self.base_lrs]


class PolynomialLR(LRScheduler):
    """Multiplied by ``(1 - step / total_iters) ** power``."""

    def __init__(self, optimizer: Optimizer, total_iters: int = 5, power: float = 1.0, last_epoch: int = -1) -> None:
        require(total_iters > 0, f"total_iters is {total_iters}", "at least 1")
        self.total_iters = total_iters
        self.power = power
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        if self._is_initial or self.last_epoch > self.total_iters:
            return self.current()
        rest, before = (1 - each / self.total_iters for each in (self.last_epoch, self.last_epoch - 1))
        return [rate * (rest / before) ** self.power for rate in self.current()]

    def lr_at(self, epoch: int) -> list[float]:
        factor = (1 - min(self.total_iters, epoch) / self.total_iters) ** self.power
        return [base * factor for base in self.base_lrs]
