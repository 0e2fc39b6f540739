"""Latent consistency: each step predicts the original sample and adds noise of the next level."""

import numpy as np

from ...runtime.base.errors import UsageError
from .schedule.noise_schedule import CHOICES, DEFAULTS, alphas_cumprod, clipped, denoised, levels_of
from .scheduler import Array, Config, History, Rule, Trajectory

SIGMA_DATA = 0.5


def _trajectory(options: Config, steps: int, mu: float | None) -> Trajectory:
    products, original_steps = alphas_cumprod(options), options["original_inference_steps"]
    if steps > original_steps:
        raise UsageError("E-SCHEDULER", None, f"steps must be at most {original_steps}, not {steps}")
    stride = options["num_train_timesteps"] // original_steps
    if not stride:
        raise UsageError("E-SCHEDULER", None, "original_inference_steps is more than num_train_timesteps")
    distilled = np.arange(original_steps, 0, -1) * stride - 1
    timesteps = distilled[np.floor(np.linspace(0, original_steps, steps, endpoint=False)).astype(np.int64)]

    def advance(
        model_output: Array, index: int, sample: Array, noise: Array | None, history: History
    ) -> tuple[Array, History]:
        current = products[timesteps[index]]
        scaled = float(timesteps[index]) * options["timestep_scaling"]
        variance = scaled**2 + SIGMA_DATA**2
        original = denoised(options, np.sqrt(current), np.sqrt(1 - current), model_output, sample)
        skip, out = SIGMA_DATA**2 / variance, scaled / np.sqrt(variance)
        result = out * clipped(options, original) + skip * sample
        if noise is None or index + 1 == len(timesteps):
            return result, ()
        following = products[timesteps[index + 1]]
        return np.sqrt(following) * result + np.sqrt(1 - following) * noise, ()

    return Trajectory(timesteps, advance, noisy=True, levels=levels_of(products[timesteps]))


SCHEDULER = Rule(
    "LCMScheduler",
    DEFAULTS
    | {
        "beta_start": 0.00085,
        "beta_end": 0.012,
        "original_inference_steps": 50,
        "timestep_scaling": 10.0,
        "clip_sample": False,
        "clip_sample_range": 1.0,
        "set_alpha_to_one": True,
        "rescale_betas_zero_snr": False,
    },
    CHOICES | {"beta_schedule": ("scaled_linear", "linear", "squaredcos_cap_v2"), "timestep_spacing": ("leading",)},
    _trajectory,
)
