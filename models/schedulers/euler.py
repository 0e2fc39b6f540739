"""Euler's method along sigmas."""

import numpy as np

from .schedule.noise_schedule import CHOICES, SPACINGS, spaced
from .schedule.sigma_schedule import SIGMA_DEFAULTS, initial_sigma, levels_at, original_at, scaled_by, sigma_schedule
from .scheduler import Array, Config, History, Rule, Trajectory


def _trajectory(options: Config, steps: int, mu: float | None) -> Trajectory:
    timesteps, sigmas = sigma_schedule(options, spaced(options, steps, whole=False))
    if options["timestep_type"] == "continuous" and options["prediction_type"] == "v_prediction":
        timesteps = np.log(sigmas[:-1]) / 4

    def advance(
        model_output: Array, index: int, sample: Array, noise: Array | None, history: History
    ) -> tuple[Array, History]:
        current, following = sigmas[index : index + 2].astype(np.float64)
        original = original_at(options, current, model_output, sample)
        return sample + (sample - original) / current * (following - current), ()

    return Trajectory(
        timesteps.astype(np.float32),
        advance,
        sigmas,
        initial_sigma(options, sigmas),
        scaled_by(sigmas),
        levels=levels_at(sigmas),
    )


SCHEDULER = Rule(
    "EulerDiscreteScheduler",
    SIGMA_DEFAULTS | {"rescale_betas_zero_snr": False, "sigma_min": None, "sigma_max": None},
    CHOICES
    | {
        "timestep_spacing": SPACINGS,
        "interpolation_type": ("linear",),
        "timestep_type": ("discrete", "continuous"),
        "final_sigmas_type": ("zero", "sigma_min"),
    },
    _trajectory,
)
