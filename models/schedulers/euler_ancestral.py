"""Euler's method along sigmas with ancestral noise."""

import numpy as np

from .euler import SCHEDULER as EULER
from .schedule.noise_schedule import CHOICES, DEFAULTS, SPACINGS
from .schedule.sigma_schedule import original_at
from .scheduler import Array, Config, History, Rule, Trajectory


def _trajectory(options: Config, steps: int, mu: float | None) -> Trajectory:
    plain = EULER.trajectory({**EULER.options({}), **options}, steps, mu)
    sigmas = np.asarray(plain.sigmas, np.float64)

    def advance(
        model_output: Array, index: int, sample: Array, noise: Array | None, history: History
    ) -> tuple[Array, History]:
        current, following = sigmas[index : index + 2]
        original = original_at(options, current, model_output, sample)
        up = following * np.sqrt(current**2 - following**2) / current
        down = following**2 / current
        stepped = sample + (sample - original) / current * (down - current)
        return (stepped if noise is None else stepped + noise * up), ()

    return Trajectory(
        plain.timesteps,
        advance,
        plain.sigmas,
        plain.initial_noise_sigma,
        plain.scale_input,
        noisy=True,
        levels=plain.levels,
    )


SCHEDULER = Rule(
    "EulerAncestralDiscreteScheduler",
    DEFAULTS | {"rescale_betas_zero_snr": False},
    CHOICES | {"prediction_type": ("epsilon", "v_prediction"), "timestep_spacing": SPACINGS},
    _trajectory,
)
