"""DDPM: samples of the posterior, with the small fixed variance."""

import numpy as np

from .noise_schedule import CHOICES, DEFAULTS, SPACINGS, alphas_cumprod, clipped, denoised, spaced
from .scheduler import Array, Config, History, Rule, Trajectory


def _trajectory(options: Config, steps: int, mu: float | None) -> Trajectory:
    timesteps = spaced(options, steps).astype(np.int64)
    products = np.append(alphas_cumprod(options)[timesteps], 1.0)

    def advance(
        model_output: Array, index: int, sample: Array, noise: Array | None, history: History
    ) -> tuple[Array, History]:
        current, previous = products[index : index + 2]
        alpha = current / previous
        original = denoised(options, np.sqrt(current), np.sqrt(1 - current), model_output, sample)
        mean = np.sqrt(previous) * (1 - alpha) * clipped(options, original)
        mean = (mean + np.sqrt(alpha) * (1 - previous) * sample) / (1 - current)
        if noise is None or timesteps[index] == 0:
            return mean, ()
        variance = max((1 - previous) / (1 - current) * (1 - alpha), 1e-20)
        return mean + np.sqrt(variance) * noise, ()

    return Trajectory(timesteps, advance, noisy=True)


SCHEDULER = Rule(
    "DDPMScheduler",
    DEFAULTS | {"clip_sample": True, "clip_sample_range": 1.0, "rescale_betas_zero_snr": False},
    CHOICES | {"timestep_spacing": ("leading", *SPACINGS), "thresholding": (False,), "variance_type": ("fixed_small",)},
    _trajectory,
)
