"""The contract of schedulers: a rule makes a trajectory, whose steps lead from noise to a sample."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ...runtime.base.errors import UnsupportedError, UsageError

Array: TypeAlias = NDArray[Any]
History: TypeAlias = tuple[Array, ...]
"""What a multistep solver keeps of the steps before; () at the first step."""
Step: TypeAlias = Callable[[Array, int, Array, Array | None, History], tuple[Array, History]]
Config: TypeAlias = Mapping[str, Any]


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
    """

    timesteps: Array
    advance: Step
    sigmas: Array | None = None
    initial_noise_sigma: float = 1.0
    scale_input: Callable[[Array, int], Array] = field(default=_unscaled)
    noisy: bool = False

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
        if not np.isfinite(following).all():
            why = f"step {index} gives numbers that are not finite"
            raise UsageError("E-SCHEDULER", None, why, hint="Check prediction_type and the options of the schedule")
        return following.astype(sample.dtype), history


@dataclass(frozen=True)
class Rule:
    """A scheduler by name: its options with their defaults, and how they make a trajectory.

    Attributes:
        name: `_class_name` of the configuration.
        defaults: every option that the rule reads.
        choices: of options with few values, those the rule computes.
        trajectory: from options and steps, and `mu` of dynamic shifting.
    """

    name: str
    defaults: Config
    choices: Mapping[str, tuple[Any, ...]]
    trajectory: Callable[[Config, int, float | None], Trajectory]

    def options(self, config: Config) -> dict[str, Any]:
        """The configuration with defaults.

        Raises:
            UnsupportedError: for an option or a value that the rule does not have.
        """
        given = {key: value for key, value in config.items() if not key.startswith("_")}
        for key in given:
            if key not in self.defaults and key not in self.choices:
                raise UnsupportedError("E-SCHEDULER", None, f"{self.name} has no option {key}")
        options = {key: values[0] for key, values in self.choices.items()} | dict(self.defaults) | given
        for key, values in self.choices.items():
            if options[key] not in values:
                raise UnsupportedError("E-SCHEDULER", None, f"{self.name} does not support {key} = {options[key]!r}")
        return options


@dataclass(frozen=True)
class Scheduler:
    """A rule with the options of a checkpoint."""

    rule: Rule
    options: Config

    def trajectory(self, steps: int, *, mu: float | None = None) -> Trajectory:
        """The trajectory of `steps` steps; `mu` shifts sigmas dynamically.

        Raises:
            UsageError: unless 1 <= steps <= num_train_timesteps and mu is finite.
        """
        most = self.options["num_train_timesteps"]
        if isinstance(steps, bool) or not isinstance(steps, int | np.integer) or not 1 <= steps <= most:
            raise UsageError("E-SCHEDULER", None, f"steps must be a whole number from 1 to {most}, not {steps}")
        if mu is not None and not np.isfinite(mu):
            raise UsageError("E-SCHEDULER", None, f"mu must be finite, not {mu}")
        return self.rule.trajectory(self.options, int(steps), mu)
