"""LRScheduler: sets the learning rates of an optimizer's groups from step to step."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from ...runtime.base.errors import UsageError
from ...runtime.base.units import counted
from ...tensors.core.grad_mode import no_grad
from ...tensors.core.tensor import Tensor
from ..core.optimizer import Group, Optimizer
from ..core.saved_value import MOST, checked, mismatch
from ..core.step_numbers import plain

COUNTS = ("last_epoch", "_step_count")
OF_ALL = frozenset({*COUNTS, "base_lrs", "_last_lr"})
"""Attributes of all schedules."""


class LRScheduler:
    """Base of schedules: subclasses compute the next learning rate of each group. The first one is set at once.

    Args:
        last_epoch: how many steps were made before; -1 starts with the learning rates of the groups.

    Attributes:
        base_lrs: the learning rates that the groups started with.
        last_epoch: number of steps so far.
    """

    external: ClassVar[frozenset[str]] = frozenset({"optimizer"})
    """Attributes that are not state."""
    of_a_try: ClassVar[Mapping[str, Any]] = {}
    """Arguments of `step` with which a saved state is tried."""

    def __init__(self, optimizer: Optimizer, last_epoch: int = -1) -> None:
        self._take(optimizer)
        for number, group in enumerate(optimizer.param_groups):
            if last_epoch == -1:
                group.setdefault("initial_lr", plain(group)["lr"])
            elif "initial_lr" not in group:
                why = f"group {number} does not have initial_lr, which a schedule of last_epoch {last_epoch} needs"
                raise UsageError("E-OPTIM-SCHEDULE", None, why, hint="Load the state of the optimizer first")
        self.base_lrs: list[float] = [group["initial_lr"] for group in optimizer.param_groups]
        self.last_epoch = last_epoch
        self.begin()

    def _take(self, optimizer: Any) -> None:
        if not isinstance(optimizer, Optimizer):
            why = f"a schedule takes an optimizer, not {type(optimizer).__name__}"
            raise UsageError("E-OPTIM-SCHEDULE", None, why)
        self.optimizer = optimizer

    def begin(self) -> None:
        """Set the first learning rates."""
        self._step_count = 0
        self._is_initial = True
        self.step()
        self._is_initial = False

    @property
    def has_functions(self) -> bool:
        """Whether a step calls functions of the user, which are not called to try a saved state."""
        return False

    @property
    def groups(self) -> list[Group]:
        """The groups of the optimizer."""
        return self.optimizer.param_groups

    def current(self) -> list[float]:
        """The learning rates that the groups have."""
        return [plain(group)["lr"] for group in self.groups]

    def get_lr(self) -> list[float]:
        """The learning rates of step `last_epoch`, from those of the step before."""
        raise NotImplementedError

    def lr_at(self, epoch: int) -> list[float]:
        """The learning rates of any step."""
        return self.get_lr()

    def step(self, epoch: int | None = None) -> None:
        """Set the learning rates of the next step, or of step `epoch`."""
        self._step_count += 1
        self.move(epoch)

    def move(self, epoch: int | None) -> None:
        """Set the learning rates of the next step, or of step `epoch`."""
        self.last_epoch = self.last_epoch + 1 if epoch is None else epoch
        self.set(self.get_lr() if epoch is None else self.lr_at(epoch))

    def set(self, rates: Sequence[float]) -> None:
        """Give each group its learning rate."""
        for group, rate in zip(self.groups, rates, strict=True):
            if isinstance(group["lr"], Tensor):
                with no_grad():
                    group["lr"].fill_(rate)
            else:
                group["lr"] = rate
        self._last_lr = self.current()

    def get_last_lr(self) -> list[float]:
        """The learning rates that were set last."""
        return self._last_lr

    def state_dict(self) -> dict[str, Any]:
        """All attributes but the optimizer."""
        return {name: value for name, value in vars(self).items() if name not in self.external}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Take what `state_dict`, or that of PyTorch's schedule of the same name, returned.

        Raises UsageError for values that do not fit this schedule, and takes none then.
        """
        vars(self).update(self.fitting(state_dict))

    def fitting(self, state_dict: Mapping[str, Any]) -> dict[str, Any]:
        """The attributes of a saved state; UsageError for values that do not fit this schedule."""
        name = type(self).__name__
        if not isinstance(state_dict, Mapping):
            raise mismatch(name, "a dictionary", type(state_dict).__name__)
        own, found = vars(self), {}
        if "last_epoch" in own.keys() - state_dict.keys():
            raise mismatch(name, "the key last_epoch", ", ".join(map(str, state_dict)))
        known = own if type(self).__module__.startswith(__package__) else OF_ALL
        for key, value in state_dict.items():
            if not isinstance(key, str) or key in self.external or callable(getattr(type(self), key, None)):
                continue
            is_known = key in known and key in own
            found[key] = checked(f"{name}.{key}", value, own[key]) if is_known else value
        for key in [each for each in COUNTS if each in found and each in own]:
            if not -1 <= found[key] <= MOST:
                raise mismatch(f"{name}.{key}", "a number of at least -1", repr(found[key]))
        self._try(found)
        return found

    def _try(self, attributes: Mapping[str, Any]) -> None:
        """Raise UsageError where the next step would fail with these attributes."""
        if self.has_functions or not type(self).__module__.startswith(__package__):
            return
        tried = copy.copy(self)
        vars(tried).update(copy.deepcopy(dict(attributes)))
        tried.optimizer = copy.copy(self.optimizer)
        tried.optimizer.param_groups = [dict(group) for group in self.groups]
        try:
            tried.step(**tried.of_a_try)
        except UsageError:
            """The schedule is over."""
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            why = f"the saved state of {type(self).__name__} does not fit ({type(error).__name__}: {error})"
            raise UsageError("E-OPTIM-STATE", None, why, hint="Take the state of this schedule") from error


def per_group(name: str, optimizer: Optimizer, value: Any) -> list[Any]:
    """One value for each group of an optimizer.

    Raises UsageError if a list is of another length.
    """
    count = len(optimizer.param_groups)
    if not isinstance(value, list | tuple):
        return [value] * count
    if len(value) != count:
        why = f"{name} has {counted(len(value), 'entry', 'entries')}"
        raise UsageError("E-OPTIM-SCHEDULE", None, why, expected=f"{count}, one a group")
    return list(value)


def require(is_valid: bool, why: str, expected: str) -> None:
    """Raise UsageError unless an option is valid."""
    if not is_valid:
        raise UsageError("E-OPTIM-SCHEDULE", None, why, expected=expected)
