"""Euler's method along sigmas with ancestral noise."""

import numpy as np

from .euler import SCHEDULER as EULER
from .noise_schedule import CHOICES, DEFAULTS, SPACINGS, denoised
from .scheduler import Array, Config, History, Rule, Trajectory


def _trajectory(options: Config, steps: int, mu: float | None) -> Trajectory:
    plain = EULER.trajectory(options, steps, mu)
    sigmas = np.asarray(plain.sigmas, np.float64)

    def advance(
        model_output: Array, index: int, sample: Array, noise: Array | None, history: History
    ) -> tuple[Array, History]:
        current, following = sigmas[index : index + 2]
        norm = np.hypot(current, 1)
        original = denoised(options, 1 / norm, current / norm, model_output, sample / norm)
        up = following * np.sqrt(current**2 - following**2) / current
        down = following**2 / current
        stepped = sample + (sample - original) / current * (down - current)
        return (stepped if noise is None else stepped + noise * up), ()

    return Trajectory(plain.timesteps, advance, plain.sigmas, plain.initial_noise_sigma, plain.scale_input, noisy=True)


SCHEDULER = Rule(
    "EulerAncestralDiscreteScheduler",
    DEFAULTS,
    CHOICES
    | {
        "prediction_type": ("epsilon", "v_prediction"),
        "timestep_spacing": SPACINGS,
        "rescale_betas_zero_snr": (False,),
    },
    _trajectory,
)
