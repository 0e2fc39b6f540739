"""History: what `fit` returns: the metrics of each epoch."""

from __future__ import annotations

import contextlib
import inspect
import os
from typing import Any

from ...runtime.base.errors import UsageError
from ..callbacks import Callback
from ..loop.run import Run
from ..report.plot import plot

KERAS = (
    "on_train_begin", "on_epoch_begin", "on_epoch_end", "on_train_batch_begin", "on_test_begin",
)  # fmt: skip
"""Hooks that Keras alone has."""


class History(Callback):
    """Metrics of each epoch by name.

    Attributes:
        epoch: numbers of the epochs, from 0 on.
        history: values by name, one for each epoch.
    """

    order = 1

    def __init__(self) -> None:
        self.epoch: list[int] = []
        self.history: dict[str, list[float]] = {}

    def on_train_epoch_end(self, trainer: Run, module: Any) -> None:
        """Note the values of an epoch."""
        self.epoch.append(trainer.current_epoch)
        for name, value in trainer.progress_bar_metrics.items():
            self.history.setdefault(name, []).append(value)

    def plot(self, path: str | os.PathLike[str], *names: str) -> None:
        """Draw the curves into a picture; with `names` some of them."""
        plot({name: self.history[name] for name in names or self.history}, path)


class OfEpochs(Callback):
    """An object with Keras' hooks, ``on_epoch_end(epoch, logs)`` and others, or a function of them, as a callback.

    Args:
        model: the object's ``model``, whose ``stop_training`` ends training, too.
    """

    order = 1

    def __init__(self, given: Any, model: Any) -> None:
        self._given, self._model = given, model
        if hasattr(given, "set_model"):
            given.set_model(model)
        elif not inspect.isfunction(given):
            with contextlib.suppress(AttributeError):
                given.model = model

    def _call(self, name: str, *arguments: Any) -> None:
        method = getattr(self._given, name, None)
        if method is not None:
            method(*arguments)
        elif name == "on_epoch_end" and callable(self._given):
            self._given(*arguments)

    def _stop(self, trainer: Run) -> None:
        stops = getattr(self._given, "stop_training", False) or getattr(self._model, "stop_training", False)
        trainer.should_stop = trainer.should_stop or bool(stops)

    def on_train_start(self, trainer: Run, module: Any) -> None:
        """Keras' ``on_train_begin``."""
        self._call("on_train_begin", {})

    def on_train_end(self, trainer: Run, module: Any) -> None:
        """Keras' ``on_train_end``."""
        self._call("on_train_end", dict(trainer.progress_bar_metrics))

    def on_train_epoch_start(self, trainer: Run, module: Any) -> None:
        """Keras' ``on_epoch_begin``."""
        self._call("on_epoch_begin", trainer.current_epoch, {})

    def on_train_epoch_end(self, trainer: Run, module: Any) -> None:
        """Keras' ``on_epoch_end``; its values are floats by name."""
        self._call("on_epoch_end", trainer.current_epoch, dict(trainer.progress_bar_metrics))
        self._stop(trainer)

    def on_train_batch_start(self, trainer: Run, module: Any, batch: Any, batch_idx: int) -> None:
        """Keras' ``on_train_batch_begin``."""
        self._call("on_train_batch_begin", batch_idx, {})

    def on_train_batch_end(self, trainer: Run, module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Keras' ``on_train_batch_end``."""
        self._call("on_train_batch_end", batch_idx, {"loss": float(outputs)})
        self._stop(trainer)

    def on_validation_start(self, trainer: Run, module: Any) -> None:
        """Keras' ``on_test_begin``."""
        self._call("on_test_begin", {})

    def on_validation_end(self, trainer: Run, module: Any) -> None:
        """Keras' ``on_test_end``."""
        found = {name[4:]: value for name, value in trainer.callback_metrics.items() if name.startswith("val_")}
        self._call("on_test_end", found)


def has_keras_hooks(given: Any) -> bool:
    """Whether a callback is Keras' kind: a function, or an object with one of Keras' hooks.

    Raises UsageError for what is no callback.
    """
    if isinstance(given, Callback):
        takes_batch = inspect.signature(given.on_train_batch_end).parameters  # type: ignore[attr-defined]
        return any(hasattr(given, name) for name in KERAS) or len(takes_batch) == 2
    if not callable(given) and not any(name.startswith("on_") for name in dir(given)):
        why = f"an object of type {type(given).__name__} is not a callback"
        hint = "Pass those of cc.callbacks, objects with on_epoch_end, or functions"
        raise UsageError("E-TRAIN-CALLBACK", None, why, hint=hint)
    return True
