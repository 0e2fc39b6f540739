"""Callbacks with Keras' defaults, on those of `cc.callbacks`."""

from __future__ import annotations

import csv
import os
import warnings
from dataclasses import dataclass
from typing import Any

from ...runtime.base.errors import UsageTypeError
from ...runtime.base.nearest_name import did_you_mean
from ..callbacks import Callback as Callback
from ..callbacks import EarlyStopping as _EarlyStopping
from ..callbacks import LearningRateScheduler as LearningRateScheduler
from ..callbacks import ReduceLROnPlateau as ReduceLROnPlateau
from ..callbacks import TerminateOnNaN as TerminateOnNaN
from ..callbacks.weights_file import WeightsFile
from ..loop.logged import own_first
from ..loop.run import Run
from .fit.history import KERAS, SHARED
from .fit.history import History as History

__all__ = [
    "CSVLogger", "Callback", "EarlyStopping", "History", "LambdaCallback", "LearningRateScheduler", "ModelCheckpoint",
    "ReduceLROnPlateau", "TerminateOnNaN",
]  # fmt: skip
HOOKS = (*KERAS, *SHARED)
"""Names of Keras' hooks."""


@dataclass(eq=False)
class EarlyStopping(_EarlyStopping):
    """`cc.callbacks.EarlyStopping` that by default stops at the first check without anything better.

    Attributes:
        monitor, min_delta, patience, verbose, mode, baseline, restore_best_weights, start_from_epoch: Keras', in this
            order.
    """

    monitor: str = "val_loss"
    min_delta: float = 0.0
    patience: int = 0
    verbose: Any = 0
    mode: str = "auto"
    strict: bool = False

    def _check(self, trainer: Run, module: Any) -> None:
        self.check_finite = False
        if self.monitor not in trainer.callback_metrics:
            known = ", ".join(own_first(trainer.callback_metrics))
            why = f"EarlyStopping monitors {self.monitor!r}, which there is not"
            warnings.warn(f"{why}. Available metrics: {known}", stacklevel=2)
        super()._check(trainer, module)


@dataclass(eq=False)
class ModelCheckpoint(WeightsFile):
    """Writes the model after each epoch, or where it is better than ever: .keras, or with `save_weights_only` weights.

    Attributes:
        filepath: ``{epoch:02d}`` and ``{val_loss:.2f}`` stand for values.
    """

    def _save(self, module: Any, path: str) -> None:
        model = getattr(module, "model", module)
        (model.save_weights if self.save_weights_only else model.save)(path)


class LambdaCallback(Callback):
    """Functions by the names of Keras' hooks, such as ``on_epoch_end=lambda epoch, logs: ...``.

    Raises UsageTypeError for other names.
    """

    def __init__(self, **functions: Any) -> None:
        for name, function in functions.items():
            if name not in HOOKS:
                hint = did_you_mean(name, HOOKS, f"Hooks: {', '.join(HOOKS)}")
                raise UsageTypeError("E-TRAIN-CALLBACK", None, f"{name!r} is not a hook of callbacks", hint=hint)
            if function is not None:
                setattr(self, name, function)


class CSVLogger(Callback):
    """Writes a row for each epoch.

    Args:
        separator: between values; append: to the rows that the file has.
    """

    order = 2

    def __init__(self, filename: str | os.PathLike[str], separator: str = ",", append: bool = False) -> None:
        self._path, self._separator, self._append = filename, separator, append
        self._names: list[str] = []

    def on_train_epoch_end(self, trainer: Run, module: Any) -> None:
        """Write a row."""
        values = {"epoch": trainer.current_epoch, **own_first(trainer.progress_bar_metrics)}
        is_first = not self._names
        keeps = self._append and os.path.exists(self._path)
        self._names = self._names or list(values)
        with open(self._path, "a" if keeps or not is_first else "w", newline="") as file:
            rows = csv.DictWriter(file, self._names, delimiter=self._separator, extrasaction="ignore")
            if is_first and not keeps:
                rows.writeheader()
            rows.writerow(values)


def __dir__() -> list[str]:
    return list(__all__)
