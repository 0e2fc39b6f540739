"""Heun's method along sigmas: the derivative of each step is the mean of those at its ends, but for the last step."""

import numpy as np

from .schedule.noise_schedule import CHOICES, SPACINGS, cut, spaced
from .schedule.sigma_schedule import SIGMA_DEFAULTS, initial_sigma, levels_at, original_at, scaled_by, sigma_schedule
from .scheduler import Array, Config, History, Rule, Trajectory, kept


def _trajectory(options: Config, steps: int, mu: float | None) -> Trajectory:
    whole, levels = sigma_schedule(options, spaced(options, steps, whole=False))
    timesteps = np.concatenate([whole[:1], whole[1:].repeat(2)]).astype(np.float32)
    sigmas = np.concatenate([levels[:1], levels[1:-1].repeat(2), levels[-1:]])
    exact = sigmas.astype(np.float64)

    def advance(
        model_output: Array, index: int, sample: Array, noise: Array | None, history: History
    ) -> tuple[Array, History]:
        current = exact[index]
        slope = (sample - cut(options, original_at(options, current, model_output, sample))) / current
        if index % 2 == 0:
            return sample + slope * (exact[index + 1] - current), (slope, sample)
        first, start = kept(history, index)
        return start + (first + slope) / 2 * (current - exact[index - 1]), ()

    return Trajectory(
        timesteps, advance, sigmas, initial_sigma(options, sigmas), scaled_by(sigmas), levels=levels_at(sigmas), order=2
    )


SCHEDULER = Rule(
    "HeunDiscreteScheduler",
    SIGMA_DEFAULTS | {"beta_start": 0.00085, "beta_end": 0.012},
    CHOICES | {"beta_schedule": (*CHOICES["beta_schedule"], "exp"), "timestep_spacing": SPACINGS},
    _trajectory,
)
