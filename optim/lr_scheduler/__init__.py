"""Schedules of learning rates by PyTorch's names, and the warm-up schedules of transformers; Python numbers alone."""

from __future__ import annotations

from .composed import ChainedScheduler as ChainedScheduler
from .composed import SequentialLR as SequentialLR
from .cosine import CosineAnnealingLR as CosineAnnealingLR
from .cosine import CosineAnnealingWarmRestarts as CosineAnnealingWarmRestarts
from .cyclic import CyclicLR as CyclicLR
from .decay import ConstantLR as ConstantLR
from .decay import ExponentialLR as ExponentialLR
from .decay import LinearLR as LinearLR
from .decay import MultiStepLR as MultiStepLR
from .decay import PolynomialLR as PolynomialLR
from .decay import StepLR as StepLR
from .function import LambdaLR as LambdaLR
from .function import MultiplicativeLR as MultiplicativeLR
from .one_cycle import OneCycleLR as OneCycleLR
from .plateau import ReduceLROnPlateau as ReduceLROnPlateau
from .scheduler import LRScheduler as LRScheduler
from .warmup import get_constant_schedule_with_warmup as get_constant_schedule_with_warmup
from .warmup import get_cosine_schedule_with_warmup as get_cosine_schedule_with_warmup
from .warmup import get_linear_schedule_with_warmup as get_linear_schedule_with_warmup

__all__ = [
    "ChainedScheduler", "ConstantLR", "CosineAnnealingLR", "CosineAnnealingWarmRestarts", "CyclicLR",
    "ExponentialLR", "LRScheduler", "LambdaLR", "LinearLR", "MultiStepLR", "MultiplicativeLR", "OneCycleLR",
    "PolynomialLR", "ReduceLROnPlateau", "SequentialLR", "StepLR", "get_constant_schedule_with_warmup",
    "get_cosine_schedule_with_warmup", "get_linear_schedule_with_warmup",
]  # fmt: skip

_LRScheduler = LRScheduler
"""The name of the base class in older scripts."""


def __dir__() -> list[str]:
    return list(__all__)
