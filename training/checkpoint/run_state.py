"""The state of a run as a nested dictionary, under Lightning's names such as ``optimizer_states``."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ...optim.core.saved_value import arrays
from ...runtime.base.errors import FormatError, UsageError

VERSION = 1
"""Of the layout."""
HINT = "Take a checkpoint of this run"
NEEDED = ("state_dict", "optimizer_states", "lr_schedulers", "callbacks", "loop", "epoch", "global_step")


@contextlib.contextmanager
def taken_from(path: str) -> Iterator[None]:
    """FormatError where a state that is read in the block lacks something, or has another kind of value."""
    try:
        yield
    except UsageError as error:
        sides = {"expected": error.expected, "found": error.found}
        raise FormatError("E-CHECKPOINT", path, error.why, hint=HINT, **sides) from error
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        why = f"does not hold the state of a run ({type(error).__name__}: {error})"
        raise FormatError("E-CHECKPOINT", path, why, hint=HINT) from error


def weights(checkpoint: Mapping[str, Any], path: str) -> dict[str, np.ndarray]:
    """The parameters and buffers of a checkpoint by name."""
    with taken_from(path):
        return arrays("state_dict", checkpoint["state_dict"])


def hyper_parameters(checkpoint: Mapping[str, Any], path: str) -> dict[str, Any]:
    """The hyper-parameters of a checkpoint by name, which may lack them."""
    with taken_from(path):
        return {str(name): value for name, value in checkpoint.get("hyper_parameters", {}).items()}


@contextlib.contextmanager
def made_with(settings: Mapping[str, Any], path: str) -> Iterator[None]:
    """FormatError where a module cannot be made in the block, with hyper-parameters of a file."""
    try:
        yield
    except (ArithmeticError, AttributeError, LookupError, MemoryError, TypeError, ValueError) as error:
        if not settings:
            raise
        why = f"holds hyper-parameters with which the module cannot be made ({type(error).__name__}: {error})"
        raise FormatError("E-CHECKPOINT", path, why, hint=f"Pass {', '.join(settings)} as arguments") from error


def stateful(callbacks: Sequence[Any]) -> dict[str, Any]:
    """The callbacks that have a state, by their keys."""
    return {
        _key(callback): callback
        for callback in callbacks
        if hasattr(callback, "state_dict") and hasattr(callback, "load_state_dict")
    }


def _key(callback: Any) -> str:
    return str(getattr(callback, "state_key", type(callback).__qualname__))


def optimizer_states(optimizers: Sequence[Any], schedules: Sequence[Any]) -> dict[str, Any]:
    """The states of optimizers and schedules."""
    return {
        "optimizer_states": [optimizer.state_dict() for optimizer in optimizers],
        "lr_schedulers": [schedule.scheduler.state_dict() for schedule in schedules],
    }


def load_optimizer_states(checkpoint: Mapping[str, Any], optimizers: Sequence[Any], schedules: Sequence[Any]) -> None:
    """Restore the states of a checkpoint."""
    for optimizer, state in zip(optimizers, checkpoint["optimizer_states"], strict=True):
        optimizer.load_state_dict(state)
    for schedule, state in zip(schedules, checkpoint["lr_schedulers"], strict=True):
        own = schedule.scheduler.state_dict()
        missing = sorted(own.keys() - dict(state).keys())
        if missing:
            raise LookupError(f"the state of {type(schedule.scheduler).__name__} does not have {missing[0]}")
        schedule.scheduler.load_state_dict(state)


def load_callbacks(states: Mapping[str, Any], callbacks: Sequence[Any]) -> None:
    """Restore the states of callbacks; if one refuses its own, all keep their previous ones."""
    found = stateful(callbacks)
    before = {key: each.state_dict() for key, each in found.items() if key in states}
    try:
        for key in before:
            found[key].load_state_dict(states[key])
    except BaseException:
        for key, state in before.items():
            found[key].load_state_dict(state)
        raise


def check(checkpoint: Mapping[str, Any], path: str, optimizers: int, schedules: int) -> None:
    """FormatError for a checkpoint that a run cannot go on from."""
    missing = [name for name in NEEDED if name not in checkpoint]
    if missing or checkpoint.get("version") != VERSION:
        what = f"does not have {missing[0]}" if missing else f"is of version {checkpoint.get('version')}"
        hint = "It holds weights only; load it with load_from_checkpoint" if missing else "Train again"
        raise FormatError("E-CHECKPOINT", path, what, hint=hint)
    counts = len(checkpoint["optimizer_states"]), len(checkpoint["lr_schedulers"])
    if counts != (optimizers, schedules):
        why = "is of other optimizers or schedules"
        found = f"{counts[0]} and {counts[1]}"
        raise FormatError("E-CHECKPOINT", path, why, expected=f"{optimizers} and {schedules}", found=found)
