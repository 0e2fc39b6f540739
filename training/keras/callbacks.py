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
from ..loggers.summary_writer import SummaryWriter
from ..loop.logged import own_first
from ..loop.run import Run
from .fit.history import KERAS, SHARED
from .fit.history import History as History

__all__ = [
    "CSVLogger", "Callback", "EarlyStopping", "History", "LambdaCallback", "LearningRateScheduler", "ModelCheckpoint",
    "ReduceLROnPlateau", "TensorBoard", "TerminateOnNaN",
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


class TensorBoard(Callback):
    """Writes event files of TensorBoard: the values of each epoch as ``epoch_loss`` and the like, those of training
    into the folder ``train`` and those of validation into ``validation``.

    Args:
        log_dir: the folder.
        histogram_freq: epochs from one histogram of each weight to the next; 0 for none.
        write_graph, write_images, write_steps_per_second, profile_batch, embeddings_freq, embeddings_metadata: Keras'
            settings without effect.
        update_freq: "epoch", or batches from one value of ``batch_loss`` to the next; "batch" is 1.
    """

    order = 2

    def __init__(
        self, log_dir: str | os.PathLike[str] = "logs", histogram_freq: int = 0, write_graph: bool = True,
        write_images: bool = False, write_steps_per_second: bool = False, update_freq: Any = "epoch",
        profile_batch: Any = 0, embeddings_freq: int = 0, embeddings_metadata: Any = None,
    ) -> None:  # fmt: skip
        self.log_dir, self.histogram_freq = log_dir, histogram_freq
        self._every = {"epoch": 0, "batch": 1}.get(update_freq, update_freq)
        self._writers: dict[str, SummaryWriter] = {}
        self._steps = 0

    def _writer(self, folder: str) -> SummaryWriter:
        if folder not in self._writers:
            self._writers[folder] = SummaryWriter(os.path.join(self.log_dir, folder))
        return self._writers[folder]

    def on_train_batch_end(self, trainer: Run, module: Any, outputs: Any, *others: Any) -> None:
        """Write the loss of a batch."""
        self._steps += 1
        if self._every and self._steps % self._every == 0:
            value = outputs["loss"] if isinstance(outputs, dict) else outputs
            self._writer("train").add_scalar("batch_loss", float(value), self._steps)

    def on_train_epoch_end(self, trainer: Run, module: Any) -> None:
        """Write the values of an epoch, and histograms of the weights."""
        epoch = trainer.current_epoch
        for name, value in own_first(trainer.progress_bar_metrics).items():
            folder = "validation" if name.startswith("val_") else "train"
            self._writer(folder).add_scalar(f"epoch_{name.removeprefix('val_')}", value, epoch)
        if self.histogram_freq and epoch % self.histogram_freq == 0:
            for name, weight in getattr(module, "model", module).state_dict().items():
                if weight.dtype.kind == "float":
                    self._writer("train").add_histogram(name, weight, epoch)

    def on_train_end(self, trainer: Run, module: Any) -> None:
        """Close the files."""
        for each in self._writers.values():
            each.close()
        self._writers = {}


def __dir__() -> list[str]:
    return list(__all__)
