"""Schedules of transformers: a linear warm-up, then constant, linear or cosine."""

from __future__ import annotations

import math

from ..core.optimizer import Optimizer
from .function import LambdaLR


def get_constant_schedule_with_warmup(optimizer: Optimizer, num_warmup_steps: int, last_epoch: int = -1) -> LambdaLR:
    """From 0 to the learning rate in `num_warmup_steps`, and constant from then on."""
    return LambdaLR(optimizer, lambda step: min(1.0, step / max(1, num_warmup_steps)), last_epoch)


def get_linear_schedule_with_warmup(
    optimizer: Optimizer, num_warmup_steps: int, num_training_steps: int, last_epoch: int = -1
) -> LambdaLR:
    """From 0 to the learning rate in `num_warmup_steps`, and along a line to 0 at `num_training_steps`."""

    def factor(step: int) -> float:
        if step < num_warmup_steps:
            return step / max(1, num_warmup_steps)
        return max(0.0, (num_training_steps - step) / max(1, num_training_steps - num_warmup_steps))

    return LambdaLR(optimizer, factor, last_epoch)


def get_cosine_schedule_with_warmup(
    optimizer: Optimizer, num_warmup_steps: int, num_training_steps: int, num_cycles: float = 0.5, last_epoch: int = -1
) -> LambdaLR:
    """From 0 to the learning rate in `num_warmup_steps`, and along `num_cycles` waves of a cosine until
    `num_training_steps`; half a wave ends at 0."""

    def factor(step: int) -> float:
        if step < num_warmup_steps:
            return step / max(1, num_warmup_steps)
        share = (step - num_warmup_steps) / max(1, num_training_steps - num_warmup_steps)
        return max(0.0, 0.5 * (1 + math.cos(math.pi * num_cycles * 2 * share)))

    return LambdaLR(optimizer, factor, last_epoch)
