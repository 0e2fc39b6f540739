"""Engine: what the loops of a trainer share: hooks, batches, logs and limits."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ...runtime.base.errors import UsageError
from ...tensors.core.autocast import autocast
from ...tensors.core.nested import mapped
from ...tensors.core.tensor import Tensor
from ..callbacks import Callback
from ..data.collate import as_tensors
from ..loop.logged import Values
from ..loop.ranks import Ranks
from ..loop.run import Run
from .lightning_module import LightningModule
from .settings import DTYPES, MIXED, Settings


class Engine(Run):
    """A run with its settings, callbacks and module.

    Attributes:
        ranks: the processes that train together; None for one.
    """

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        settings.checked()
        self.settings = settings
        self.ranks: Ranks | None = None
        self.callbacks: list[Any] = settings.listed("callbacks")
        self.module = LightningModule()
        self.dtype = DTYPES.get(str(settings.precision))

    @property
    def root(self) -> str:
        """The folder that the trainer writes to."""
        return os.fspath(self.settings.default_root_dir or os.getcwd())

    @property
    def logs_now(self) -> bool:
        """Whether loggers are given the values of this step."""
        return (self.global_step + 1) % self.settings.log_every_n_steps == 0

    def call(self, hook: str, *arguments: Any, between: Callable[[], None] | None = None) -> Any:
        """Call a hook of callbacks, of the module, then of callbacks that are called last.

        Args:
            between: is called before those that are called last.

        Returns what the module's hook gives.
        """
        order = sorted(self.callbacks, key=_order)
        first = [each for each in order if _order(each) == 0]
        for each in first:
            getattr(each, hook, _nothing)(self, self.module, *arguments)
        result = getattr(self.module, hook, _nothing)(*arguments)
        if between is not None:
            between()
        for each in order[len(first) :]:
            getattr(each, hook, _nothing)(self, self.module, *arguments)
        return result

    def autocast(self) -> autocast:
        """The context in which steps of the module are computed."""
        narrow = MIXED.get(str(self.settings.precision))
        return autocast(dtype=narrow) if narrow else autocast(enabled=False)

    def converted(self, batch: Any) -> Any:
        """A batch of tensors; its floats in the dtype of the parameters, if the precision says so."""
        found = as_tensors(batch)
        if self.dtype is None:
            return found
        return mapped(found, lambda item: item.to(self.dtype) if _is_float(item) else item)

    def publish(self, found: Values, step: int) -> None:
        """Make values known to callbacks and the progress bar, and hand them to the loggers."""
        self.callback_metrics.update(found.known)
        self.progress_bar_metrics.update(found.shown)
        if found.to_write:
            self.write_metrics(found.to_write, step)

    def limit(self, loader: Iterable[Any], limit: int | float) -> int | None:
        """The number of batches of a loader; None if it is not known.

        Raises UsageError for a share of a loader of unknown length.
        """
        count = _length(loader)
        if isinstance(limit, int):
            return limit if count is None else min(limit, count)
        if limit == 1:
            return count
        if count is None:
            why = f"a share of {limit} of the batches is asked for, and their number is not known"
            raise UsageError("E-OPTION", None, why, hint="Give a number of batches")
        return math.floor(count * limit)

    def defines_hook(self, names: Sequence[str]) -> bool:
        """Whether a callback has one of these hooks."""
        return any(
            getattr(type(callback), name, None) is not getattr(Callback, name, None)
            for callback in self.callbacks
            for name in names
        )


def _order(callback: Any) -> int:
    return getattr(callback, "order", 0)


def _nothing(*arguments: Any) -> None:
    """Of objects without a hook."""


def _length(loader: Any) -> int | None:
    """The number of batches, None where it is not known; loaders of endless samplers raise TypeError."""
    try:
        return len(loader)
    except (NotImplementedError, TypeError):
        return None


def _is_float(item: Any) -> bool:
    return isinstance(item, Tensor) and item.dtype.kind == "float"
