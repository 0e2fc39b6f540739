"""Learning rates by the number of the step, by Keras' names."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

from ..core.settings import Configured, by_name

__all__ = [
    "CosineDecay", "CosineDecayRestarts", "ExponentialDecay", "InverseTimeDecay", "LearningRateSchedule",
    "PiecewiseConstantDecay", "PolynomialDecay",
]  # fmt: skip


class LearningRateSchedule(Configured):
    """Base of schedules: a subclass defines ``__call__(step)``, where steps are counted from 0."""

    file_module: ClassVar[str] = "keras.optimizers.schedules"

    def __call__(self, step: Any) -> float:
        """The learning rate of a step."""
        raise NotImplementedError(f"{type(self).__name__} does not define __call__()")


class _Decay(LearningRateSchedule):
    """Base of schedules of ``step / decay_steps``, with `staircase` rounding the step ratio down."""

    def __init__(
        self, initial_learning_rate: float, decay_steps: int, decay_rate: float, staircase: bool = False,
        name: str | None = None,
    ) -> None:  # fmt: skip
        self.first, self.steps, self.rate, self.staircase = initial_learning_rate, decay_steps, decay_rate, staircase

    def periods(self, step: Any) -> float:
        """Number of `decay_steps` that have passed."""
        return math.floor(step / self.steps) if self.staircase else float(step / self.steps)


class ExponentialDecay(_Decay):
    """``initial * rate ** (step / decay_steps)``; with `staircase` in whole powers."""

    def __call__(self, step: Any) -> float:
        return float(self.first * self.rate ** self.periods(step))


class InverseTimeDecay(_Decay):
    """``initial / (1 + rate * step / decay_steps)``."""

    def __call__(self, step: Any) -> float:
        return self.first / (1 + self.rate * self.periods(step))


class PiecewiseConstantDecay(LearningRateSchedule):
    """The first of `values` up to the first boundary, and so on."""

    def __init__(self, boundaries: Sequence[float], values: Sequence[float], name: str | None = None) -> None:
        self.boundaries, self.rates = list(boundaries), list(values)

    def __call__(self, step: Any) -> float:
        return float(self.rates[sum(step > each for each in self.boundaries)])


class PolynomialDecay(LearningRateSchedule):
    """From the initial rate to the last one along a power of the steps that are left; with `cycle` again and again."""

    def __init__(
        self, initial_learning_rate: float, decay_steps: int, end_learning_rate: float = 1e-4, power: float = 1.0,
        cycle: bool = False, name: str | None = None,
    ) -> None:  # fmt: skip
        self.first, self.steps, self.last = initial_learning_rate, decay_steps, end_learning_rate
        self.power, self.cycle = power, cycle

    def __call__(self, step: Any) -> float:
        steps = self.steps * (max(1, math.ceil(step / self.steps)) if self.cycle else 1)
        left = 1 - min(step, steps) / steps
        return float((self.first - self.last) * left**self.power + self.last)


class CosineDecay(LearningRateSchedule):
    """From the initial rate to `alpha` times it along half a cosine, after a linear warm-up."""

    def __init__(
        self, initial_learning_rate: float, decay_steps: int, alpha: float = 0.0, name: str | None = None,
        warmup_target: float | None = None, warmup_steps: int = 0,
    ) -> None:  # fmt: skip
        self.first, self.steps, self.alpha = initial_learning_rate, decay_steps, alpha
        self.target, self.warmup = warmup_target, warmup_steps

    def __call__(self, step: Any) -> float:
        if self.target is None:
            return self._decayed(step, self.first)
        if step < self.warmup:
            return self.first + (self.target - self.first) * step / self.warmup
        return self._decayed(step - self.warmup, self.target)

    def _decayed(self, step: float, first: float) -> float:
        share = 0.5 * (1 + math.cos(math.pi * min(step, self.steps) / self.steps))
        return first * ((1 - self.alpha) * share + self.alpha)


class CosineDecayRestarts(LearningRateSchedule):
    """Half cosines, each `t_mul` times as long and `m_mul` times as high as the one before."""

    def __init__(
        self, initial_learning_rate: float, first_decay_steps: int, t_mul: float = 2.0, m_mul: float = 1.0,
        alpha: float = 0.0, name: str | None = None,
    ) -> None:  # fmt: skip
        self.first, self.steps, self.longer, self.higher, self.alpha = (
            initial_learning_rate, first_decay_steps, t_mul, m_mul, alpha,
        )  # fmt: skip

    def __call__(self, step: Any) -> float:
        left, length, height = float(step), float(self.steps), 1.0
        while left >= length:
            left, length, height = left - length, length * self.longer, height * self.higher
        share = 0.5 * height * (1 + math.cos(math.pi * left / length))
        return self.first * ((1 - self.alpha) * share + self.alpha)


SCHEDULES: dict[str, Any] = {
    name: each for name, each in list(globals().items()) if name in __all__ and each is not LearningRateSchedule
}


def get(identifier: Any) -> Any:
    """A number, a schedule, or the description of one in a file."""
    return by_name(SCHEDULES, identifier, "schedule") if isinstance(identifier, dict) else identifier


def __dir__() -> list[str]:
    return list(__all__)
