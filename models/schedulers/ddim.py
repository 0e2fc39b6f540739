"""DDIM (Song et al. 2021, arXiv:2010.02502): steps along the predicted noise, deterministic unless eta is set."""

import numpy as np

from .schedule.noise_schedule import (
    CHOICES,
    DEFAULTS,
    SPACINGS,
    alphas_cumprod,
    clipped,
    denoised,
    inside,
    levels_of,
    spaced,
)
from .scheduler import Array, Config, History, Rule, Trajectory


def _trajectory(options: Config, steps: int, mu: float | None) -> Trajectory:
    products, timesteps = alphas_cumprod(options), inside(spaced(options, steps), options)
    final = 1.0 if options["set_alpha_to_one"] else products[0]
    stride, eta = options["num_train_timesteps"] // steps, options["eta"]

    def advance(
        model_output: Array, index: int, sample: Array, noise: Array | None, history: History
    ) -> tuple[Array, History]:
        current = products[timesteps[index]]
        before = timesteps[index] - stride
        previous = products[before] if before >= 0 else final
        alpha, sigma = np.sqrt(current), np.sqrt(1 - current)
        original = denoised(options, alpha, sigma, model_output, sample)
        match options["prediction_type"]:
            case "epsilon":
                epsilon = model_output
            case "v_prediction":
                epsilon = alpha * model_output + sigma * sample
            case _:
                epsilon = (sample - alpha * original) / sigma
        variance = eta**2 * (1 - previous) / (1 - current) * (1 - current / previous)
        following = np.sqrt(previous) * clipped(options, original) + np.sqrt(1 - previous - variance) * epsilon
        return following if noise is None or not eta else following + np.sqrt(variance) * noise, ()

    return Trajectory(timesteps, advance, noisy=eta > 0, levels=levels_of(products[timesteps]))


SCHEDULER = Rule(
    "DDIMScheduler",
    DEFAULTS
    | {"clip_sample": True, "clip_sample_range": 1.0, "set_alpha_to_one": True, "rescale_betas_zero_snr": False},
    CHOICES | {"timestep_spacing": ("leading", *SPACINGS)},
    _trajectory,
    {"eta": 0.0},
)
