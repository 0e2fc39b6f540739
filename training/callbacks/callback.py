"""Callback: what a trainer calls around each part of its work. Methods do nothing unless a subclass defines them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

HOOKS = (
    "setup", "teardown", "on_fit_start", "on_fit_end", "on_sanity_check_start", "on_sanity_check_end",
    "on_train_start", "on_train_end", "on_train_epoch_start", "on_train_epoch_end", "on_train_batch_start",
    "on_train_batch_end", "on_before_zero_grad", "on_before_backward", "on_after_backward", "on_before_optimizer_step",
    "on_validation_start", "on_validation_end", "on_validation_epoch_start", "on_validation_epoch_end",
    "on_validation_batch_start", "on_validation_batch_end",
    "on_test_start", "on_test_end", "on_test_epoch_start", "on_test_epoch_end", "on_test_batch_start",
    "on_test_batch_end",
    "on_predict_start", "on_predict_end", "on_predict_epoch_start", "on_predict_epoch_end", "on_predict_batch_start",
    "on_predict_batch_end", "on_exception", "on_save_checkpoint", "on_load_checkpoint",
)  # fmt: skip
"""Names of the hooks. Each is called with the trainer, the module, and what a module's hook of this name is given."""


class Callback:
    """Base of callbacks. A subclass defines hooks by name: ``on_train_epoch_end(self, trainer, module)`` and others."""

    order: ClassVar[int] = 0
    """Callbacks above 0 are called after the module's hook, when values over the epoch are known, lower ones first."""

    @property
    def state_key(self) -> str:
        """Under which a checkpoint has the state."""
        return type(self).__qualname__

    def state_dict(self) -> dict[str, Any]:
        """State for a checkpoint."""
        return {}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Restore a state."""


def _nothing(self: Callback, *arguments: Any) -> None:
    """Do nothing."""


for _name in HOOKS:
    setattr(Callback, _name, _nothing)


class LambdaCallback(Callback):
    """A callback of functions by the names of hooks."""

    def __init__(self, **functions: Callable[..., Any]) -> None:
        for name, function in functions.items():
            if name not in HOOKS:
                raise TypeError(f"{name!r} is not a hook of callbacks")
            setattr(self, name, function)
