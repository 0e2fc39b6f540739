"""Callbacks: early stopping, checkpoints, learning rates, averages, progress display. Most names are Lightning's."""

from __future__ import annotations

from .callback import Callback as Callback
from .callback import LambdaCallback as LambdaCallback
from .early_stopping import EarlyStopping as EarlyStopping
from .exception_checkpoint import OnExceptionCheckpoint as OnExceptionCheckpoint
from .gradient_accumulation import GradientAccumulationScheduler as GradientAccumulationScheduler
from .keras_rates import LearningRateScheduler as LearningRateScheduler
from .keras_rates import ReduceLROnPlateau as ReduceLROnPlateau
from .keras_rates import TerminateOnNaN as TerminateOnNaN
from .learning_rate_monitor import LearningRateMonitor as LearningRateMonitor
from .model_checkpoint import ModelCheckpoint as ModelCheckpoint
from .model_summary import ModelSummary as ModelSummary
from .model_summary import RichModelSummary as RichModelSummary
from .progress_bar import ProgressBar as ProgressBar
from .progress_bar import RichProgressBar as RichProgressBar
from .progress_bar import TQDMProgressBar as TQDMProgressBar
from .stochastic_averages import StochasticWeightAveraging as StochasticWeightAveraging
from .timer import Timer as Timer

__all__ = [
    "Callback", "EarlyStopping", "GradientAccumulationScheduler", "LambdaCallback", "LearningRateMonitor",
    "LearningRateScheduler", "ModelCheckpoint", "ModelSummary", "OnExceptionCheckpoint", "ProgressBar",
    "ReduceLROnPlateau", "RichModelSummary", "RichProgressBar", "StochasticWeightAveraging", "TQDMProgressBar",
    "TerminateOnNaN", "Timer",
]  # fmt: skip


def __dir__() -> list[str]:
    return list(__all__)
