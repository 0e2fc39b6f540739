"""History: what `fit` returns: the metrics of each epoch."""

from __future__ import annotations

import contextlib
import inspect
import os
import warnings
from typing import Any

from ....runtime.base.errors import UsageError
from ....runtime.base.nearest_name import nearest
from ...callbacks import Callback
from ...callbacks.callback import HOOKS
from ...loop.logged import own_first
from ...loop.run import Run
from ...report.plot import plot

KERAS = (
    "on_batch_begin", "on_batch_end", "on_epoch_begin", "on_epoch_end", "on_predict_batch_begin", "on_predict_begin",
    "on_test_batch_begin", "on_test_begin", "on_train_batch_begin", "on_train_begin",
)  # fmt: skip
"""Hooks that Keras alone has."""
SHARED = {
    "on_train_end": 2, "on_test_end": 2, "on_predict_end": 2, "on_train_batch_end": 5, "on_test_batch_end": 5,
    "on_predict_batch_end": 5,
}  # fmt: skip
"""Hooks of Keras that trainers have too, and how many arguments theirs ask for; Keras passes fewer."""


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
        for name, value in own_first(trainer.progress_bar_metrics).items():
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
        older = getattr(self._given, name.replace("_train", ""), None)
        if method is not None and (older is None or _defines(self._given, name)):
            method(*arguments)
        elif older is not None:
            older(*arguments)
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
        self._call("on_train_end", own_first(trainer.progress_bar_metrics))

    def on_train_epoch_start(self, trainer: Run, module: Any) -> None:
        """Keras' ``on_epoch_begin``."""
        self._call("on_epoch_begin", trainer.current_epoch, {})

    def on_train_epoch_end(self, trainer: Run, module: Any) -> None:
        """Keras' ``on_epoch_end``; its values are floats by name."""
        self._call("on_epoch_end", trainer.current_epoch, own_first(trainer.progress_bar_metrics))
        self._stop(trainer)

    def on_train_batch_start(self, trainer: Run, module: Any, batch: Any, batch_idx: int) -> None:
        """Keras' ``on_train_batch_begin``."""
        self._call("on_train_batch_begin", batch_idx, {})

    def on_train_batch_end(self, trainer: Run, module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Keras' ``on_train_batch_end``."""
        loss = outputs["loss"] if isinstance(outputs, dict) else outputs
        self._call("on_train_batch_end", batch_idx, {"loss": float(loss)})
        self._stop(trainer)

    def on_validation_start(self, trainer: Run, module: Any) -> None:
        """Keras' ``on_test_begin``."""
        self._call("on_test_begin", {})

    def on_validation_batch_start(self, trainer: Run, module: Any, batch: Any, batch_idx: int, *others: Any) -> None:
        """Keras' ``on_test_batch_begin``."""
        self._call("on_test_batch_begin", batch_idx, {})

    def on_validation_batch_end(
        self, trainer: Run, module: Any, outputs: Any, batch: Any, batch_idx: int, *others: Any
    ) -> None:
        """Keras' ``on_test_batch_end``."""
        loss = outputs["loss"] if isinstance(outputs, dict) else outputs
        self._call("on_test_batch_end", batch_idx, {} if loss is None else {"loss": float(loss)})

    def on_validation_end(self, trainer: Run, module: Any) -> None:
        """Keras' ``on_test_end``."""
        found = {name[4:]: value for name, value in trainer.callback_metrics.items() if name.startswith("val_")}
        self._call("on_test_end", found)


def has_keras_hooks(given: Any) -> bool:
    """Whether a callback is Keras' kind: a function, or an object with one of Keras' hooks.

    Methods that are nearly named like hooks are warned of. Raises UsageError for objects that are not callbacks.
    """
    for name in dir(given):
        meant = nearest(name, (*KERAS, *HOOKS)) if name.startswith("on_") else None
        if meant not in (None, name) and name not in (*KERAS, *HOOKS) and callable(getattr(given, name)):
            warnings.warn(f"{type(given).__name__}.{name} is never called. Did you mean {meant}?", stacklevel=3)
    if isinstance(given, Callback):
        return any(hasattr(given, name) for name in KERAS) or any(
            not _takes(getattr(given, name), count) for name, count in SHARED.items()
        )
    if not callable(given) and not any(name.startswith("on_") for name in dir(given)):
        why = f"an object of type {type(given).__name__} is not a callback"
        hint = "Pass those of cc.callbacks, objects with on_epoch_end, or functions"
        raise UsageError("E-TRAIN-CALLBACK", None, why, hint=hint)
    return True


def _takes(method: Any, count: int) -> bool:
    """Whether a method asks for so many arguments at least, or takes any number."""
    given = inspect.signature(method).parameters.values()
    needed = [each for each in given if each.default is each.empty and each.kind is each.POSITIONAL_OR_KEYWORD]
    return len(needed) >= count or any(each.kind is each.VAR_POSITIONAL for each in given)


def _defines(given: Any, name: str) -> bool:
    """Whether an object or its class, and not the base of callbacks, has an attribute."""
    owners = (given, *(each for each in type(given).__mro__ if each is not Callback))
    return any(name in getattr(each, "__dict__", {}) for each in owners)
