"""The loop of training: epochs of batches, steps of the optimizer, validation in between; and going on from a state."""

from __future__ import annotations

import contextlib
import itertools
import math
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from ...optim import clip_grad_norm_, clip_grad_value_
from ...optim.core.saved_value import checked, count
from ...runtime.base.errors import UsageError
from ...tensors.core.expression import leaf
from ...tensors.core.nested import mapped
from ...tensors.core.tensor import Tensor
from ...tensors.jit import jit
from ..averaging import renewed_statistics
from ..data.collate import rows_of
from ..data.loader import DataLoader
from ..loop.interrupts import deferred
from ..loop.logged import Epoch, Logged, metric
from ..loop.random_state import check_random_state, random_state, set_random_state
from ..loop.ranks import Ranks
from ..loop.traced_step import TracedStep, detached, positional
from .engine import Engine
from .evaluation_loop import VALIDATION, EvaluationLoop
from .lightning_module import defines

DEFAULT_EPOCHS = 1000
"""Of Lightning, where neither epochs nor steps are limited."""
HOOKS = ("on_before_zero_grad", "on_before_backward", "on_after_backward", "on_before_optimizer_step")
"""Hooks inside of a training step; where one is defined, the step is not a plan."""


class FitLoop:
    """Trains the engine's module.

    Args:
        loader: batches to train with.
        val_loaders: batches to validate with; none for no validation.
    """

    def __init__(self, engine: Engine, loader: Iterable[Any], val_loaders: Sequence[Iterable[Any]]) -> None:
        self._engine = engine
        self._loader = loader
        settings = engine.settings
        self._epoch = Epoch()
        self._epoch_random: Mapping[str, Any] = {}
        self._validated_at = -1
        self._total = 0
        self._ended = False
        self._is_finite = True
        self._has_run = False
        self._random_before: Mapping[str, Any] | None = None
        self._resumed: Mapping[str, Any] | None = None
        self._manual = not engine.module.automatic_optimization
        if self._manual and engine.ranks is not None:
            why = "a module that calls its optimizers itself is trained by one process"
            raise UsageError("E-TRAIN-DEVICE", None, why, hint="Use devices=1")
        if not self._manual and len(engine.optimizers) > 1:
            why = f"configure_optimizers() gives {len(engine.optimizers)} optimizers"
            hint = "Set automatic_optimization = False, and call them in training_step"
            raise UsageError("E-TRAIN-OPTIMIZER", None, why, hint=hint)
        if self._manual:
            for optimizer in engine.optimizers:
                self._count_steps(optimizer)
        traced = settings.jit and not self._manual and not self._has_inner_hooks()
        self._step = TracedStep(engine, engine.module, "training_step", self._body, traced)
        self._update_alone = jit(self._update) if settings.jit else self._update
        self._validation = EvaluationLoop(engine, VALIDATION, val_loaders) if val_loaders else None
        engine.has_validation = self._validation is not None
        self._interval = self._checked_interval() if engine.has_validation else None

    def _checked_interval(self) -> int | None:
        """Batches after which there is a validation; None for the end of the epoch."""
        engine, interval = self._engine, self._engine.settings.val_check_interval
        if isinstance(interval, float):
            if interval == 1:
                return None
            if engine.batches is None:
                why = "val_check_interval is a share of an epoch whose number of batches is not known"
                raise UsageError("E-OPTION", None, why, hint="Give a number of batches")
            return max(1, math.floor(engine.batches * interval))
        in_epoch = engine.settings.check_val_every_n_epoch is not None
        if in_epoch and engine.batches is not None and interval > engine.batches and engine.settings.limit_val_batches:
            why = f"val_check_interval is {interval}, and an epoch has {engine.batches} batches"
            raise UsageError("E-OPTION", None, why, hint="Set check_val_every_n_epoch=None to count over epochs")
        return interval

    def _has_inner_hooks(self) -> bool:
        own = any(defines(self._engine.module, name) for name in HOOKS)
        return own or self._engine.defines_hook(HOOKS)

    def run(self) -> None:
        """Train until epochs or steps are done, or a callback says so."""
        engine, settings = self._engine, self._engine.settings
        if self._resumed is None and self._validation is not None and settings.num_sanity_val_steps:
            self._try_validation(settings.num_sanity_val_steps)
        engine.module.train()
        engine.call("on_train_start")
        while not self._is_done():
            if not self._ended:
                self._one_epoch()
            with deferred():
                self._step_schedules("epoch", engine.current_epoch + 1)
                self._ended = False
                engine.current_epoch += 1
        engine.call("on_train_end")

    def _try_validation(self, batches: int) -> None:
        """A few batches of validation, which show errors before training; nothing of it is kept."""
        engine = self._engine
        assert self._validation is not None
        before = self._random_before = random_state(self._loader)
        engine.sanity_checking = True
        try:
            engine.call("on_sanity_check_start")
            self._validation.run(None if batches < 0 else batches)
            engine.call("on_sanity_check_end")
        finally:
            engine.sanity_checking = False
            engine.callback_metrics = {}
        set_random_state(before, self._loader)
        self._random_before = None

    def _is_done(self) -> bool:
        engine = self._engine
        if self._ended:
            return False
        most = engine.epochs
        if (most is not None and engine.current_epoch >= most) or self._has_all_steps():
            return True
        return self._resumed is None and self._stops_early()

    def _stops_early(self) -> bool:
        engine, settings = self._engine, self._engine.settings
        least = settings.min_epochs if settings.min_epochs is not None else 1 if settings.min_steps else 0
        early = engine.current_epoch < least or engine.global_step < (settings.min_steps or 0)
        return engine.should_stop and not early

    def _has_all_steps(self) -> bool:
        return 0 <= self._engine.settings.max_steps <= self._engine.global_step

    def _one_epoch(self) -> None:
        engine, module = self._engine, self._engine.module
        is_new, is_whole = self._resumed is None, False
        with deferred():
            batches = self._begun()
        if engine.batch_count and self._validated_at != engine.batch_count and self._validates_after():
            self._validate()  # the checkpoint is of before it
        while not self._has_all_steps() and not self._stops_early():
            with deferred() if self._has_run else contextlib.nullcontext():  # the first step may take long to plan
                found = next(batches, None)
                if found is None:
                    if is_new and not engine.batch_count and engine.settings.limit_train_batches != 0:
                        why = "the data to train with is empty"
                        raise UsageError("E-TRAIN-DATA", None, why, hint="Pass a loader of batches")
                    is_whole = True
                    break
                number, batch = found[0], engine.converted(found[1])
                engine.is_last_batch = number + 1 == engine.batches
                if engine.call("on_train_batch_start", batch, number) == -1:
                    is_whole = True
                    break
                result = self._one_batch(batch, number)
                self._has_run, self._random_before = True, None
                engine.call("on_train_batch_end", result, batch, number)
            if self._validates_after():
                self._validate()
        is_whole = is_whole or engine.batch_count == engine.batches
        if is_whole and engine.batch_count % engine.settings.accumulate_grad_batches and _gradients(engine.optimizers):
            self._update_alone()
            engine.global_step += 1
        ends = (self._interval is None and is_whole) or self._stops_early()
        if ends and self._validates_in_epoch() and self._validated_at != engine.batch_count:
            self._validate()
        with deferred():
            module.train()
            self._ended = True
            engine.call("on_train_epoch_end", between=self._publish)

    def _publish(self) -> None:
        """Publish the values over the epoch, with those that hooks logged."""
        self._epoch.add(self._engine.collector.taken())
        self._engine.publish(self._epoch.end(), max(0, self._engine.global_step - 1))

    def _begun(self) -> Iterator[tuple[int, Any]]:
        """The numbered batches of an epoch, of one that was begun before those that are left."""
        engine, resumed = self._engine, self._resumed
        self._resumed = None
        if resumed is None:
            engine.batch_count = 0
            self._validated_at = -1
            self._epoch = Epoch()
            engine.call("on_train_epoch_start")
            self._epoch_random = random_state(self._loader)
            found = iter(self._loader)
        else:
            set_random_state(self._epoch_random, self._loader)
            found = _after(self._loader, engine.batch_count)
            set_random_state(resumed["random"], None)
        if not self._has_run:
            self._random_before = random_state(self._loader)
        stop = None if engine.batches is None else max(0, engine.batches - engine.batch_count)
        return zip(itertools.count(engine.batch_count), itertools.islice(found, stop))

    def _one_batch(self, batch: Any, number: int) -> Any:
        """The result of a step, after which the batch is counted."""
        engine = self._engine
        every = engine.settings.accumulate_grad_batches
        update = (number + 1) % every == 0
        logs_now = engine.logs_now
        rows = rows_of(batch)
        if engine.ranks is None:
            result, logged = self._step(batch, number, update, every)
        else:
            result, logged, rows = self._step_of_ranks(engine.ranks, batch, number, update)
        self._watch(result, number)
        found = self._epoch.add(logged, rows, on_step=True)
        step = engine.global_step
        if update and not self._manual and result is not None:
            engine.global_step += 1
        engine.batch_count = number + 1
        self._total += 1
        engine.callback_metrics.update(found.known)
        engine.progress_bar_metrics.update(found.shown)
        if found.to_write and logs_now:
            engine.write_metrics(found.to_write, step)
        if update:
            self._step_schedules("step", engine.global_step)
        return result

    def _step_of_ranks(self, ranks: Ranks, batch: Any, number: int, update: bool) -> tuple[Any, Logged, int]:
        """The result of a step, what all ranks logged, and their rows. Gradients are those of the rows of all ranks."""
        counts = getattr(self._loader, "counts", True)
        weights = ranks.gathered([(rows_of(batch) or 1) * counts])[:, 0]
        parameters = _parameters(self._engine.optimizers)
        held = [parameter.grad for parameter in parameters]
        for parameter in parameters:
            parameter.grad = None
        result, logged = self._step(batch, number, False, self._engine.settings.accumulate_grad_batches)
        ranks.average(parameters, weights)
        for parameter, before in zip(parameters, held, strict=True):
            if before is not None:
                parameter.grad = before if parameter.grad is None else (before + parameter.grad).realize()
        if update and result is not None:
            self._update_alone()
        return result, ranks.logged(logged, weights), int(weights.sum())

    def _watch(self, result: Any, number: int) -> None:
        """Tell of the first loss that is not finite."""
        loss = result.get("loss") if isinstance(result, Mapping) else result
        if not self._is_finite or self._manual or loss is None or math.isfinite(float(loss)):
            return
        self._is_finite = False
        why = f"the loss is {float(loss)} in epoch {self._engine.current_epoch}, batch {number}"
        hint = "Lower the learning rate, set gradient_clip_val, or look for nan and large numbers in the data"
        if self._engine.settings.detect_anomaly:
            raise UsageError("E-TRAIN-NAN", None, why, hint=hint)
        print(f"{why}: {hint[0].lower()}{hint[1:]}", file=sys.stderr)

    def _body(self, batch: Any, number: Any, check: Callable[[], None], update: bool, every: int) -> Any:
        engine, module = self._engine, self._engine.module
        with engine.autocast():
            result = module.training_step(*[batch, number][: positional(module.training_step, 2)])
        check()
        if self._manual:
            return mapped(result, detached)
        loss = result.get("loss") if isinstance(result, Mapping) else result
        if loss is None:
            return None
        if not isinstance(loss, Tensor):
            why = f"training_step() gives {type(loss).__name__}"
            raise UsageError("E-TRAIN-LOSS", None, why, expected='a loss, a dictionary with "loss", or None')
        scaled = loss / every if every > 1 else loss
        engine.call("on_before_backward", scaled)
        scaled.backward()
        engine.call("on_after_backward")
        if update:
            self._update()
        return mapped(result, detached)

    def _update(self) -> None:
        """A step of the optimizer with the gradients that there are, which are dropped then."""
        engine, settings = self._engine, self._engine.settings
        for optimizer in engine.optimizers:
            engine.call("on_before_optimizer_step", optimizer)
            limit = settings.gradient_clip_val
            if limit:
                parameters = [each for group in optimizer.param_groups for each in group["params"]]
                clip = clip_grad_norm_ if settings.gradient_clip_algorithm == "norm" else clip_grad_value_
                clip(parameters, limit)
            optimizer.step()
            engine.call("on_before_zero_grad", optimizer)
            optimizer.zero_grad()

    def _count_steps(self, optimizer: Any) -> None:
        """Let a step that `training_step` makes itself count."""
        step = optimizer.step

        def counted(*arguments: Any, **options: Any) -> Any:
            self._engine.global_step += 1
            return step(*arguments, **options)

        optimizer.step = counted

    def _step_schedules(self, interval: str, count: int) -> None:
        engine = self._engine
        if self._manual:
            return
        for schedule in engine.schedules:
            if schedule.interval != interval or count % schedule.frequency:
                continue
            if not schedule.needs_metric:
                schedule.scheduler.step()
            elif schedule.strict or schedule.monitor in engine.callback_metrics:
                schedule.scheduler.step(
                    metric(engine.callback_metrics, schedule.monitor, type(schedule.scheduler).__name__)
                )

    def _validates_in_epoch(self) -> bool:
        every = self._engine.settings.check_val_every_n_epoch
        return self._validation is not None and (every is None or (self._engine.current_epoch + 1) % every == 0)

    def _validates_after(self) -> bool:
        """Whether there is a validation after the batches that there were."""
        if self._interval is None or not self._validates_in_epoch():
            return False
        over_epochs = self._engine.settings.check_val_every_n_epoch is None
        return (self._total if over_epochs else self._engine.batch_count) % self._interval == 0

    def _validate(self) -> None:
        """Validate; a checkpoint that is written after an interrupt of it is of the state before it."""
        assert self._validation is not None
        self._random_before = random_state(self._loader)
        self._validation.run(when_done=self._validated)
        self._engine.module.train()

    def _validated(self) -> None:
        self._validated_at = self._engine.batch_count
        self._random_before = None if self._has_run else random_state(self._loader)

    def renew_statistics(self) -> None:
        """Recompute the running statistics of batch norms, by the steps of an epoch without gradients."""
        engine, step = self._engine, self._engine.module.training_step
        with renewed_statistics(engine.module) as is_needed, engine.collecting(), engine.autocast():
            batches = itertools.islice(self._loader, engine.batches) if is_needed else ()
            for number, batch in enumerate(batches):
                step(*[engine.converted(batch), number][: positional(step, 2)])

    def state(self) -> dict[str, Any]:
        """State of the loop, for checkpoints."""
        return {
            "batch_count": self._engine.batch_count,
            "validated_at": self._validated_at,
            "total_batches": self._total,
            "ended": self._ended,
            "epoch_random": dict(self._epoch_random),
            "random": self._random_before or random_state(self._loader),
            "logged": self._epoch.state(),
            "gradients": _gradients(self._engine.optimizers),
        }

    def checked(self, state: Mapping[str, Any]) -> dict[str, Any]:
        """A saved state for `resume`; UsageError, ValueError and the like for values that do not fit this run."""
        for each in (state["epoch_random"], state["random"]):
            if each or each is state["random"]:
                check_random_state(each)
        Epoch().restore(state["logged"])
        parameters = _parameters(self._engine.optimizers)
        gradients = list(state["gradients"])
        if gradients:
            wanted = [None if given is None else each for given, each in zip(gradients, parameters, strict=True)]
            gradients = checked("gradients", gradients, wanted)
        return {
            **state,
            "batch_count": count("batch_count", state["batch_count"]),
            "validated_at": count("validated_at", state["validated_at"], -1),
            "total_batches": count("total_batches", state.get("total_batches", 0)),
            "ended": checked("ended", state["ended"], False),
            "gradients": gradients,
        }

    def resume(self, state: Mapping[str, Any]) -> None:
        """Restore a state that `checked` returned."""
        self._resumed = state
        self._validated_at, self._ended = state["validated_at"], state["ended"]
        self._engine.batch_count, self._total = state["batch_count"], state["total_batches"]
        self._epoch_random = state["epoch_random"]
        self._epoch.restore(state["logged"])
        for each in (state["epoch_random"], state["random"]):
            if each:
                set_random_state(each, self._loader)
        if self._ended or not self._epoch_random:  # an epoch is over, or none was begun
            self._resumed = None
        for parameter, gradient in zip(_parameters(self._engine.optimizers), state["gradients"], strict=False):
            parameter.grad = None if gradient is None else Tensor(leaf(gradient))


def _after(loader: Iterable[Any], count: int) -> Iterator[Any]:
    """The batches of a loader after the first ones."""
    if isinstance(loader, DataLoader):
        return loader.after(count)
    return itertools.islice(iter(loader), count, None)


def _parameters(optimizers: Sequence[Any]) -> list[Tensor]:
    return [each for one in optimizers for group in one.param_groups for each in group["params"]]


def _gradients(optimizers: Sequence[Any]) -> list[Any]:
    """The gradients that wait for a step of the optimizer, None after the last; empty without any."""
    found = [None if each.grad is None else each.grad.array() for each in _parameters(optimizers)]
    return found if any(each is not None for each in found) else []
