"""MomentumScheduler: base of schedules that change the momentum, too."""

from __future__ import annotations

from ..core.optimizer import Group
from .scheduler import LRScheduler, per_group, require


class MomentumScheduler(LRScheduler):
    """Sets ``momentum``, or the first of ``betas``, of an optimizer's groups.

    Attributes:
        use_beta1: whether it is the first of ``betas``.
    """

    use_beta1: bool

    def begin_momentum(self, low: float | list[float], high: float | list[float], is_new: bool) -> None:
        """Find out what the optimizer has; a new schedule starts with the largest momentum.

        Args:
            low, high: between which it goes, one for each group or one for all.

        Raises UsageError for optimizers without momentum.
        """
        names = {"momentum", "betas"} & set(self.optimizer.defaults)
        require(bool(names), f"{type(self.optimizer).__name__} does not have momentum", "cycle_momentum=False")
        self.use_beta1 = "betas" in names
        if is_new:
            ends = (
                per_group(f"{name}_momentum", self.optimizer, each) for name, each in (("base", low), ("max", high))
            )
            for group, least, most in zip(self.groups, *ends, strict=True):
                group.update(max_momentum=most, base_momentum=least)
                self.set_momentum(group, most)

    def set_momentum(self, group: Group, value: float) -> None:
        """Give a group its momentum."""
        if self.use_beta1:
            group["betas"] = (value, *group["betas"][1:])
        else:
            group["momentum"] = value
