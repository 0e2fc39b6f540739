"""Euler's method along sigmas."""

import numpy as np

from .noise_schedule import CHOICES, DEFAULTS, SPACINGS, denoised, spaced
from .scheduler import Array, Config, History, Rule, Trajectory
from .sigma_schedule import sigma_schedule


def _trajectory(options: Config, steps: int, mu: float | None) -> Trajectory:
    timesteps, sigmas = sigma_schedule(options, spaced(options, steps, whole=False))
    largest = float(sigmas.max())
    initial = float(np.hypot(largest, 1)) if options["timestep_spacing"] == "leading" else largest

    def scale_input(sample: Array, index: int) -> Array:
        return sample / np.hypot(sigmas[index], np.float32(1))

    def advance(
        model_output: Array, index: int, sample: Array, noise: Array | None, history: History
    ) -> tuple[Array, History]:
        current, following = sigmas[index : index + 2]
        norm = np.hypot(current, np.float32(1))
        original = denoised(options, 1 / norm, current / norm, model_output, sample / norm)
        return sample + (sample - original) / current * (following - current), ()

    return Trajectory(timesteps.astype(np.float32), advance, sigmas, initial, scale_input)


SCHEDULER = Rule(
    "EulerDiscreteScheduler",
    DEFAULTS | {"use_karras_sigmas": False},
    CHOICES
    | {
        "prediction_type": ("epsilon", "v_prediction"),
        "timestep_spacing": SPACINGS,
        "interpolation_type": ("linear",),
        "timestep_type": ("discrete",),
        "final_sigmas_type": ("zero",),
        "rescale_betas_zero_snr": (False,),
        "sigma_min": (None,),
        "sigma_max": (None,),
        "use_exponential_sigmas": (False, None),
        "use_beta_sigmas": (False, None),
    },
    _trajectory,
)
