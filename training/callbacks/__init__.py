"""Callbacks: early stopping, checkpoints, learning rates, the progress bar. Names and options are Lightning's."""

from __future__ import annotations

from .callback import Callback as Callback
from .early_stopping import EarlyStopping as EarlyStopping
from .keras_rates import LearningRateScheduler as LearningRateScheduler
from .keras_rates import ReduceLROnPlateau as ReduceLROnPlateau
from .keras_rates import TerminateOnNaN as TerminateOnNaN
from .learning_rate_monitor import LearningRateMonitor as LearningRateMonitor
from .model_checkpoint import ModelCheckpoint as ModelCheckpoint
from .progress_bar import ProgressBar as ProgressBar
from .progress_bar import RichProgressBar as RichProgressBar
from .progress_bar import TQDMProgressBar as TQDMProgressBar
