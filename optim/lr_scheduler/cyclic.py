"""CyclicLR: up and down between two learning rates again and again (Smith 2015, arXiv:1506.01186)."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, TypedDict

from ..core.optimizer import Optimizer
from .momentum import MomentumScheduler
from .scheduler import per_group, require

if TYPE_CHECKING:
    from typing import Unpack

MODES = ("triangular", "triangular2", "exp_range")


class CyclicKeywords(TypedDict, total=False):
    """Options of CyclicLR.

    Attributes:
        gamma: base of mode "exp_range".
        scale_fn: what the height is multiplied by, in place of `mode`; it is not part of the state.
        scale_mode: what `scale_fn` is given: "cycle", the number of the cycle from 1 on, or "iterations", of the step.
        cycle_momentum: change the momentum, or the first of `betas`, too: from `max_momentum` to `base_momentum` and
            back.
    """

    gamma: float
    scale_fn: Callable[[float], float] | None
    scale_mode: str
    cycle_momentum: bool
    base_momentum: float | list[float]
    max_momentum: float | list[float]
    last_epoch: int


DEFAULTS: CyclicKeywords = {
    "gamma": 1.0, "scale_fn": None, "scale_mode": "cycle", "cycle_momentum": True, "base_momentum": 0.8,
    "max_momentum": 0.9, "last_epoch": -1,
}  # fmt: skip


class CyclicLR(MomentumScheduler):
    """From `base_lr` up to `max_lr` and back.

    Args:
        base_lr, max_lr: the ends, one for each group or one for all.
        step_size_up, step_size_down: steps of either half; as many down as up where those are not given.
        mode: the height of cycles: "triangular" is equal, "triangular2" halves with each, "exp_range" is
            ``gamma ** step``.
        options: the fields of `CyclicKeywords`.
    """

    external = MomentumScheduler.external | {"scale_fn"}

    def __init__(
        self,
        optimizer: Optimizer,
        base_lr: float | list[float],
        max_lr: float | list[float],
        step_size_up: int = 2000,
        step_size_down: int | None = None,
        mode: str = "triangular",
        **options: Unpack[CyclicKeywords],
    ) -> None:
        self._take(optimizer)
        unknown = set(options) - set(DEFAULTS)
        require(not unknown, f"unknown options {', '.join(sorted(unknown))}", ", ".join(DEFAULTS))
        given: CyclicKeywords = {**DEFAULTS, **options}
        require(mode in MODES or given["scale_fn"] is not None, f"mode is {mode!r}", ", ".join(MODES))
        require(
            given["scale_mode"] in ("cycle", "iterations"),
            f"scale_mode is {given['scale_mode']!r}",
            "cycle or iterations",
        )
        down = step_size_up if step_size_down is None else step_size_down
        require(step_size_up > 0 and down > 0, f"halves of {step_size_up} and {down} steps", "at least 1 each")
        self.total_size, self.step_ratio = float(step_size_up + down), step_size_up / (step_size_up + down)
        self.mode, self.gamma, self.scale_fn = mode, given["gamma"], given["scale_fn"]
        self.scale_mode = given["scale_mode"] if mode != "exp_range" or self.scale_fn is not None else "iterations"
        self.cycle_momentum = given["cycle_momentum"]
        self.max_lrs = per_group("max_lr", optimizer, max_lr)
        is_new = given["last_epoch"] == -1
        if is_new:
            for group, rate in zip(self.groups, per_group("base_lr", optimizer, base_lr), strict=True):
                group.update(lr=rate, initial_lr=rate)
        if self.cycle_momentum:
            self.begin_momentum(given["base_momentum"], given["max_momentum"], is_new)
        super().__init__(optimizer, given["last_epoch"])

    @property
    def has_functions(self) -> bool:
        """Whether the height of cycles is a function of the user."""
        return self.scale_fn is not None

    def _height(self, cycle: float) -> float:
        """The factor of a cycle's amplitude."""
        at = cycle if self.scale_mode == "cycle" else self.last_epoch
        if self.scale_fn is not None:
            return self.scale_fn(at)
        return {"triangular": 1.0, "triangular2": 0.5 ** (at - 1), "exp_range": self.gamma**at}[self.mode]

    def get_lr(self) -> list[float]:
        cycle = math.floor(1 + self.last_epoch / self.total_size)
        place = 1 + self.last_epoch / self.total_size - cycle
        rising = place <= self.step_ratio
        share = place / self.step_ratio if rising else (place - 1) / (self.step_ratio - 1)
        share *= self._height(cycle)
        if self.cycle_momentum:
            for group in self.groups:
                self.set_momentum(
                    group, group["max_momentum"] - (group["max_momentum"] - group["base_momentum"]) * share
                )
        return [low + (high - low) * share for low, high in zip(self.base_lrs, self.max_lrs, strict=True)]
