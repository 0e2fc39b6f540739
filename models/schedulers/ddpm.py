"""DDPM (Ho et al. 2020, arXiv:2006.11239): samples of the posterior, with a fixed or a learned variance."""

from typing import Any

import numpy as np

from ...runtime.base.errors import UsageError
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

LEAST_VARIANCE = 1e-20


def _trajectory(options: Config, steps: int, mu: float | None) -> Trajectory:
    timesteps = inside(spaced(options, steps), options)
    products, kind = np.append(alphas_cumprod(options)[timesteps], 1.0), options["variance_type"]

    def advance(
        model_output: Array, index: int, sample: Array, noise: Array | None, history: History
    ) -> tuple[Array, History]:
        predicted, learned = _parts(model_output, sample, kind)
        current, previous = products[index : index + 2]
        alpha = current / previous
        original = denoised(options, np.sqrt(current), np.sqrt(1 - current), predicted, sample)
        mean = np.sqrt(previous) * (1 - alpha) * clipped(options, original)
        mean = (mean + np.sqrt(alpha) * (1 - previous) * sample) / (1 - current)
        if noise is None or timesteps[index] == 0:
            return mean, ()
        small = max((1 - previous) / (1 - current) * (1 - alpha), LEAST_VARIANCE)
        return mean + np.sqrt(_variance(kind, small, 1 - alpha, learned)) * noise, ()

    return Trajectory(timesteps, advance, noisy=True, levels=levels_of(products[:-1]))


def _parts(model_output: Array, sample: Array, kind: str) -> tuple[Array, Array]:
    """The prediction, and what is predicted of the variance; UsageError unless learned variances have channels of their
    own."""
    if not kind.startswith("learned"):
        return model_output, model_output
    channels = sample.shape[1]
    if model_output.shape[1] != 2 * channels:
        why = f"a model of learned variances gives {2 * channels} channels, not {model_output.shape[1]}"
        raise UsageError("E-SCHEDULER", None, why)
    return model_output[:, :channels], model_output[:, channels:]


def _variance(kind: str, small: float, large: float, learned: Array) -> Any:
    """The variance of the noise: that of the posterior, that of a step of training, or learned between both."""
    if kind == "learned":
        return learned
    if kind == "learned_range":
        part = (learned + 1) / 2
        return np.exp(part * np.log(large) + (1 - part) * np.log(small))
    return large if kind == "fixed_large" else small


SCHEDULER = Rule(
    "DDPMScheduler",
    DEFAULTS | {"clip_sample": True, "clip_sample_range": 1.0, "rescale_betas_zero_snr": False},
    CHOICES
    | {
        "beta_schedule": (*CHOICES["beta_schedule"], "sigmoid"),
        "timestep_spacing": ("leading", *SPACINGS),
        "variance_type": ("fixed_small", "fixed_small_log", "fixed_large", "learned", "learned_range"),
    },
    _trajectory,
)
