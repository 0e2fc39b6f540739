"""The contract of schedulers: a rule makes a trajectory, whose steps lead from noise to a sample."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from ...runtime.base.errors import FormatError, UnsupportedError, UsageError
from ...runtime.contract.hyperparameter import checked
from .schedule.option_kinds import KINDS, MAX_TRAINED
from .schedule.option_kinds import Array as Array
from .schedule.option_kinds import Config as Config

History: TypeAlias = tuple[Array, ...]
"""History that a multistep solver keeps; () at the first step."""
Step: TypeAlias = Callable[[Array, int, Array, Array | None, History], tuple[Array, History]]
SHOWN = 60
"""Characters of a value that a message repeats."""


def kept(history: History, index: int) -> History:
    """The history, at a step that needs one. UsageError where it is empty."""
    if not history:
        why = f"step {index} needs the history that step {index - 1} returned"
        raise UsageError("E-SCHEDULER", None, why, hint="Pass history")
    return history


def _unscaled(sample: Array, index: int) -> Array:
    return sample


@dataclass(frozen=True)
class Trajectory:
    """The steps of one sampling run.

    Attributes:
        timesteps: (steps,), what the denoiser takes at each step.
        sigmas: (steps + 1,) noise levels, None for rules of alphas alone.
        initial_noise_sigma: factor of the unit noise that sampling begins with.
        advance: `step` without its checks.
        scale_input: what the denoiser takes of a sample, at the index of a step.
        noisy: whether `step` takes noise.
        levels: factors (steps,) of an original sample and of noise that make the sample at each step; None for rules
            that begin with noise alone.
        order: how many timesteps, each a run of the denoiser, a step of the schedule has.
        restarted: the trajectory from a timestep on, for rules whose steps depend on where they begin.
    """

    timesteps: Array
    advance: Step
    sigmas: Array | None = None
    initial_noise_sigma: float = 1.0
    scale_input: Callable[[Array, int], Array] = field(default=_unscaled)
    noisy: bool = False
    levels: tuple[Array, Array] | None = None
    order: int = 1
    restarted: Callable[[int], Trajectory] | None = None

    def noised(self, original: Array, noise: Array, index: int) -> Array:
        """Add unit noise to an original sample for a timestep, in the dtype of the original.

        Raises:
            UsageError: for rules that begin with noise alone.
        """
        if self.levels is None:
            why = "this scheduler begins with noise alone"
            raise UsageError("E-SCHEDULER", None, why, hint="Choose another scheduler, such as ddim or euler")
        signal, scale = (float(factors[index]) for factors in self.levels)
        return (signal * original + scale * noise).astype(original.dtype)

    def after(self, index: int) -> Trajectory:
        """The trajectory from the timestep `index` on, which begins without a history."""
        if self.restarted is not None:
            return self.restarted(index)
        return Trajectory(
            self.timesteps[index:],
            lambda output, at, sample, noise, history: self.advance(output, at + index, sample, noise, history),
            None if self.sigmas is None else self.sigmas[index:],
            1.0,
            lambda sample, at: self.scale_input(sample, at + index),
            self.noisy,
            None if self.levels is None else (self.levels[0][index:], self.levels[1][index:]),
            self.order,
        )

    def step(
        self, model_output: Array, index: int, sample: Array, noise: Array | None = None, history: History = ()
    ) -> tuple[Array, History]:
        """The next sample, in the dtype and shape of `sample`, and the history for the next step.

        Raises:
            UsageError: for an index outside the trajectory, noise that is missing, or a sample that is not finite, as
                of a model that predicts noise where the schedule leaves nothing else.
        """
        if not 0 <= index < len(self.timesteps):
            raise UsageError("E-SCHEDULER", None, f"step {index} is outside the {len(self.timesteps)} timesteps")
        if self.noisy and noise is None:
            raise UsageError("E-SCHEDULER", None, "this scheduler adds noise", hint="Pass noise shaped as the sample.")
        with np.errstate(all="ignore"):
            following, history = self.advance(model_output, index, sample, noise, history)
            stored = following.astype(sample.dtype)
        if not np.isfinite(stored).all():
            why = f"step {index} gives numbers that are not finite"
            raise UsageError("E-SCHEDULER", None, why, hint="Check prediction_type and the options of the schedule")
        return stored, history


@dataclass(frozen=True)
class Rule:
    """A scheduler by name: its options with their defaults, and how they make a trajectory.

    Attributes:
        name: `_class_name` of the configuration.
        defaults: every option that the rule reads.
        choices: of options with few values, those the rule computes.
        trajectory: from options and steps, and `mu` of dynamic shifting.
        settings: what a run may choose, with the values it has otherwise; no options of configurations.
    """

    name: str
    defaults: Config
    choices: Mapping[str, tuple[Any, ...]]
    trajectory: Callable[[Config, int, float | None], Trajectory]
    settings: Config = field(default_factory=dict)

    def options(self, config: Config) -> dict[str, Any]:
        """The configuration with defaults.

        Raises:
            UnsupportedError: for an option or a choice that the rule does not have.
            FormatError: for a number or switch of another type or range.
        """
        options = {key: values[0] for key, values in self.choices.items()} | dict(self.defaults)
        for key, value in config.items():
            if key.startswith("_"):
                continue
            if key not in options:
                raise UnsupportedError("E-SCHEDULER", None, f"{self.name} has no option {key}")
            if key in self.choices:
                options[key] = _chosen(self, key, value)
            elif value is not None or options[key] is not None:
                options[key] = _checked(key, False if value is None and options[key] is False else value)
        return options


def _chosen(rule: Rule, key: str, value: Any) -> Any:
    """One of the choices of an option. UnsupportedError for other values."""
    for choice in rule.choices[key]:
        if isinstance(choice, bool) == isinstance(value, bool) and choice == value:
            return choice
    raise UnsupportedError("E-SCHEDULER", None, f"{rule.name} does not support {key} = {str(value)[:SHOWN]}")


def _checked(key: str, value: Any) -> Any:
    """An option in its type. FormatError for a value outside of its range."""
    kind = KINDS.get(key)
    try:
        return value if kind is None else checked(key, value, kind)
    except ValueError as error:
        raise FormatError("E-SCHEDULER", None, f"invalid option {key} of a scheduler: {error}") from error


@dataclass(frozen=True)
class Scheduler:
    """A rule with the options of a checkpoint."""

    rule: Rule
    options: Config

    def trajectory(self, steps: int, *, mu: float | None = None, **settings: float) -> Trajectory:
        """The trajectory of `steps` steps, which may run the denoiser more often.

        Args:
            mu: shifts sigmas dynamically.
            settings: such as DDIM's ``eta``, the part of DDPM's noise that each step adds, and ``even_steps`` of flow
                matching, whether sigmas fall from 1 to 1 / steps before they are shifted, as FLUX's do.

        Raises:
            UsageError: unless 1 <= steps <= num_train_timesteps and mu is finite, and for settings that the rule does
                not have.
        """
        most = self.options.get("num_train_timesteps", MAX_TRAINED)
        if isinstance(steps, bool) or not isinstance(steps, int | np.integer) or not 1 <= steps <= most:
            raise UsageError("E-SCHEDULER", None, f"steps must be a whole number from 1 to {most}, not {steps}")
        if mu is not None and (not isinstance(mu, int | float | np.number) or not np.isfinite(mu)):
            raise UsageError("E-SCHEDULER", None, f"mu must be finite, not {mu}")
        for name in settings:
            if name not in self.rule.settings:
                raise UsageError("E-SCHEDULER", None, f"{self.rule.name} has no setting {name}")
        try:
            chosen = {name: checked(name, value, KINDS[name]) for name, value in settings.items()}
        except ValueError as error:
            raise UsageError("E-SCHEDULER", None, f"invalid setting of a scheduler: {error}") from error
        return self.rule.trajectory({**self.options, **self.rule.settings, **chosen}, int(steps), mu)
