"""StochasticWeightAveraging: the weights of the last epochs are averaged (Izmailov et al. 2018, arXiv:1803.05407)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ...optim.core.saved_value import arrays, checked, count, mismatch
from ...optim.lr_scheduler.averaging import SWALR
from ...runtime.base.errors import UsageError
from ...tensors.core.expression import leaf
from ...tensors.core.grad_mode import no_grad
from ...tensors.core.tensor import Tensor
from ..averaging import get_swa_avg_fn
from ..loop.schedule import Schedule
from .callback import Callback

if TYPE_CHECKING:
    from ..loop.run import Run


class StochasticWeightAveraging(Callback):
    """Gives a module, when training ends, the mean of its weights at the starts of the last epochs.

    From then on the learning rate is that of `SWALR`. Running statistics of batch norms are computed again, by one more
    pass over the batches of training.

    Args:
        swa_lrs: the learning rate, or one for each group.
        swa_epoch_start: from which epoch weights are averaged, from 1 on (int), or after which share of them (float).
        annealing_epochs: in which the learning rate goes to `swa_lrs`; annealing_strategy: cos or linear.
        avg_fn: the average of a parameter, from the average so far, the parameter and the number of weights.
        device: Lightning's choice, without effect.

    Raises UsageError for options out of range, and for more than one optimizer or schedule.
    """

    def __init__(
        self, swa_lrs: float | Sequence[float], swa_epoch_start: int | float = 0.8, annealing_epochs: int = 10,
        annealing_strategy: str = "cos", avg_fn: Callable[..., Any] | None = None, device: Any = None,
    ) -> None:  # fmt: skip
        is_share = isinstance(swa_epoch_start, float)
        if swa_epoch_start < (0 if is_share else 1) or (is_share and swa_epoch_start > 1):
            why = f"swa_epoch_start is {swa_epoch_start!r}"
            raise UsageError("E-OPTION", None, why, expected="an epoch from 1 on, or a share from 0 to 1")
        rates = swa_lrs if isinstance(swa_lrs, list | tuple) else [swa_lrs]
        if not rates or not all(isinstance(rate, float) and rate > 0 for rate in rates):
            raise UsageError("E-OPTION", None, f"swa_lrs is {swa_lrs!r}", expected="floats above 0")
        self.swa_lrs, self.swa_epoch_start = swa_lrs, swa_epoch_start
        self.annealing_epochs, self.annealing_strategy = annealing_epochs, annealing_strategy
        self._average = avg_fn or get_swa_avg_fn()
        self._means: list[Tensor] = []
        self._count, self._latest_epoch = 0, -1
        self._schedule: SWALR | None = None
        self._saved_schedule: Mapping[str, Any] | None = None
        self._replaced: list[Schedule] = []

    def state_dict(self) -> dict[str, Any]:
        """The averages, and the learning rate's schedule."""
        return {
            "n_averaged": self._count,
            "latest_update_epoch": self._latest_epoch,
            "scheduler_state": None if self._schedule is None else self._schedule.state_dict(),
            "average_model_state": {str(number): each for number, each in enumerate(self._means)},
        }

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Restore a state; UsageError for values of another kind."""
        saved, schedule = (
            arrays("average_model_state", state_dict["average_model_state"]),
            state_dict["scheduler_state"],
        )
        if not isinstance(schedule, Mapping | None):
            raise mismatch("scheduler_state", "a dictionary", repr(schedule))
        averaged = count("n_averaged", state_dict["n_averaged"])
        self._latest_epoch = count("latest_update_epoch", state_dict["latest_update_epoch"], -1)
        self._means = [Tensor(leaf(each)) for each in saved.values()]
        self._count, self._saved_schedule = averaged, schedule

    def on_fit_start(self, trainer: Run, module: Any) -> None:
        """Find the first and the last epoch; go on with the schedule of a checkpoint."""
        if len(trainer.optimizers) != 1 or len(trainer.schedules) > 1:
            found = f"{len(trainer.optimizers)} and {len(trainer.schedules)}"
            why = "weights are averaged with one optimizer and at most one schedule"
            raise UsageError("E-TRAIN-OPTIMIZER", None, why, found=found)
        start = self.swa_epoch_start
        if isinstance(start, float):
            if trainer.epochs is None:
                why = "swa_epoch_start is a share of epochs without an end"
                raise UsageError("E-OPTION", None, why, hint="Give the number of the epoch")
            start = int(trainer.epochs * start)
        self._first, self._last = max(start - 1, 0), None if trainer.epochs is None else trainer.epochs - 1
        if self._means:
            checked("average_model_state", [each.array() for each in self._means], list(module.parameters()))
        if self._saved_schedule is not None:
            rates = [group["lr"] for group in trainer.optimizers[0].param_groups]
            self._begin(trainer)
            assert self._schedule is not None
            self._schedule.load_state_dict(self._saved_schedule)
            for group, rate in zip(trainer.optimizers[0].param_groups, rates, strict=True):
                group["lr"] = rate

    def on_train_epoch_start(self, trainer: Run, module: Any) -> None:
        """Take the weights into the average, if it is time."""
        epoch = trainer.current_epoch
        if epoch < self._first or (self._last is not None and epoch > self._last):
            return
        if self._schedule is None:
            self._begin(trainer)
        if epoch > self._latest_epoch:
            self._update(module)
            self._latest_epoch = epoch

    def _begin(self, trainer: Run) -> None:
        optimizer = trainer.optimizers[0]
        count_of_groups = len(optimizer.param_groups)
        rates = list(self.swa_lrs) if isinstance(self.swa_lrs, list | tuple) else [self.swa_lrs] * count_of_groups
        self._schedule = SWALR(optimizer, rates, self.annealing_epochs, self.annealing_strategy)
        self._replaced = list(trainer.schedules)
        trainer.schedules[:] = [Schedule(self._schedule)]

    @no_grad()
    def _update(self, module: Any) -> None:
        parameters = [Tensor(leaf(each.array())) for each in module.parameters()]
        if self._count == 0:
            self._means = parameters
        else:
            pairs = zip(self._means, parameters, strict=True)
            self._means = [self._average(mean, each, self._count).realize() for mean, each in pairs]
        self._count += 1

    def on_save_checkpoint(self, trainer: Run, module: Any, checkpoint: dict[str, Any]) -> None:
        """Write the state of the schedule that was replaced, which a run begins with."""
        if self._schedule is not None and "lr_schedulers" in checkpoint:
            checkpoint["lr_schedulers"] = [each.scheduler.state_dict() for each in self._replaced]

    def on_train_end(self, trainer: Run, module: Any) -> None:
        """Give the module the averages."""
        is_over = self._last is None or trainer.current_epoch - 1 == self._last
        if not is_over or not self._means:
            return
        with no_grad():
            for parameter, mean in zip(module.parameters(), self._means, strict=True):
                parameter.become(mean)
        trainer.renew_statistics()
