"""GradientAccumulationScheduler: how many batches a step is made of, by the epoch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ...runtime.base.errors import UsageError
from .callback import Callback

if TYPE_CHECKING:
    from ..loop.run import Run


class GradientAccumulationScheduler(Callback):
    """Changes the number of batches whose gradients one step of the optimizer is made of.

    Args:
        scheduling: that number by the epoch, from 0 on, from which it counts; before, it is 1.

    Raises UsageError for epochs below 0 and numbers below 1.
    """

    def __init__(self, scheduling: Mapping[int, int]) -> None:
        pairs = list(scheduling.items())
        if not pairs or not all(isinstance(a, int) and isinstance(b, int) and a >= 0 and b > 0 for a, b in pairs):
            expected = "numbers of batches, from 1 on, by epochs, from 0 on"
            raise UsageError("E-OPTION", None, f"scheduling is {scheduling!r}", expected=expected)
        self.scheduling = dict(scheduling)

    def on_fit_start(self, trainer: Run, module: Any) -> None:
        """Set it for the epoch that a checkpoint goes on with."""
        self.on_train_epoch_start(trainer, module)

    def on_train_epoch_start(self, trainer: Run, module: Any) -> None:
        """Set it."""
        begun = [epoch for epoch in self.scheduling if epoch <= trainer.current_epoch]
        trainer.accumulate_grad_batches = self.scheduling[max(begun)] if begun else 1
