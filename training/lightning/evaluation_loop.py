"""The loop of validation, test and prediction: batches of each loader through the module's step, without gradients."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ...runtime.base.dataclass import dataclass
from ...tensors.core.grad_mode import no_grad
from ...tensors.core.nested import mapped
from ..data.collate import rows_of
from ..loop.interrupts import deferred
from ..loop.logged import Epoch, Logged, Values
from ..loop.traced_step import TracedStep, detached, positional
from .engine import Engine


@dataclass(frozen=True)
class Stage:
    """A stage: validation, test or prediction.

    Attributes:
        name: validation, test or predict, as in the names of hooks.
        step: name of the module's method.
        limit: name of the setting that limits batches.
    """

    name: str
    step: str
    limit: str


VALIDATION = Stage("validation", "validation_step", "limit_val_batches")
TEST = Stage("test", "test_step", "limit_test_batches")
PREDICTION = Stage("predict", "predict_step", "limit_predict_batches")


class EvaluationLoop:
    """Runs the engine's module over loaders, one after another."""

    def __init__(self, engine: Engine, stage: Stage, loaders: Sequence[Iterable[Any]]) -> None:
        self._engine = engine
        self._stage = stage
        self._loaders = loaders
        self._step = TracedStep(engine, engine.module, stage.step, self._body, engine.settings.jit)

    def _body(self, batch: Any, number: Any, check: Callable[[], None], loader: int) -> Any:
        step = getattr(self._engine.module, self._stage.step)
        with no_grad(), self._engine.autocast():
            result = step(*[batch, number, loader][: positional(step, 3 if len(self._loaders) > 1 else 2)])
        check()
        return mapped(result, detached)

    def run(
        self, limit: int | None = None, when_done: Callable[[], None] | None = None
    ) -> tuple[list[dict[str, float]], list[list[Any]]]:
        """Go through the loaders, in evaluation mode.

        Args:
            limit: batches of each loader, in place of the setting.
            when_done: is called after the last batch. From then on an interrupt waits until all hooks are called.

        Returns the metrics of each loader, and of predictions the results of the steps.
        """
        engine, name = self._engine, self._stage.name
        modes = [(each, each.training) for each in engine.module.modules()]
        engine.module.eval()
        try:
            with contextlib.ExitStack() as end:
                with engine.collecting() as collector:
                    engine.call(f"on_{name}_start")
                    engine.call(f"on_{name}_epoch_start")
                    epochs = [Epoch() for _ in self._loaders]
                    results = [self._one(index, epoch, limit) for index, epoch in enumerate(epochs)]
                    end.enter_context(deferred())
                    if when_done is not None:
                        when_done()
                    for values in self._ended(epochs):
                        engine.callback_metrics.update(values.known)
                    engine.call(f"on_{name}_epoch_end")
                found = self._all_published(epochs, collector.entries)
                engine.call(f"on_{name}_end")
        finally:
            for each, mode in modes:
                each.training = mode
        return found, results

    def _all_published(self, epochs: Sequence[Epoch], of_hooks: Logged) -> list[dict[str, float]]:
        """The metrics of each loader that loggers are given, published with those that hooks logged."""
        if len(epochs) == 1:
            epochs[0].add(of_hooks)
            return [self._published(epochs[0].end())]
        found = [self._published(each) for each in self._ended(epochs)]
        of_all = Epoch()
        of_all.add(of_hooks)
        common = self._published(of_all.end())
        return [{**each, **common} for each in found]

    def _ended(self, epochs: Sequence[Epoch]) -> list[Values]:
        """The values of each loader, which several loaders have under longer names."""
        found = [epoch.end() for epoch in epochs]
        if len(found) == 1:
            return found
        return [each.renamed(f"/dataloader_idx_{index}") for index, each in enumerate(found)]

    def _one(self, place: int, epoch: Epoch, limit: int | None) -> list[Any]:
        engine, name, loader = self._engine, self._stage.name, self._loaders[place]
        count = engine.limit(loader, getattr(engine.settings, self._stage.limit)) if limit is None else limit
        kept: list[Any] = []
        for number, given in enumerate(itertools.islice(iter(loader), count)):
            batch = engine.converted(given)
            arguments = (place,) if len(self._loaders) > 1 else ()
            engine.call(f"on_{name}_batch_start", batch, number, *arguments)
            result, logged = self._step(batch, number, place)
            epoch.add(logged, rows_of(batch))
            engine.call(f"on_{name}_batch_end", result, batch, number, *arguments)
            if self._stage is PREDICTION:
                kept.append(result)
        return kept

    def _published(self, found: Values) -> dict[str, float]:
        engine = self._engine
        if not engine.sanity_checking:
            engine.publish(found, max(0, engine.global_step - 1) if engine.training else engine.global_step)
        return found.to_write
