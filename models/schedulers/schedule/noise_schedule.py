"""The noise schedule of training: betas, cumulative alphas, and sigmas at timesteps."""

from typing import Any

import numpy as np

from .scheduler import Array, Config

INERT: dict[str, Any] = {
    "clip_sample": False,
    "clip_sample_range": 1.0,
    "dynamic_thresholding_ratio": 0.995,
    "sample_max_value": 1.0,
    "set_alpha_to_one": False,
    "skip_prk_steps": False,
}
"""Options that published configurations keep of the scheduler they had before, for rules that do not read them."""
DEFAULTS: dict[str, Any] = INERT | {
    "num_train_timesteps": 1000,
    "beta_start": 0.0001,
    "beta_end": 0.02,
    "steps_offset": 0,
}
CHOICES: dict[str, tuple[Any, ...]] = {
    "beta_schedule": ("linear", "scaled_linear", "squaredcos_cap_v2"),
    "trained_betas": (None,),
    "prediction_type": ("epsilon", "v_prediction", "sample"),
}
SPACINGS = ("linspace", "leading", "trailing")


def alphas_cumprod(options: Config) -> Array:
    """Products of 1 - beta up to each timestep of training, float64."""
    count, start, end = options["num_train_timesteps"], options["beta_start"], options["beta_end"]
    if options["beta_schedule"] == "squaredcos_cap_v2":
        bars = np.cos((np.arange(count + 1) / count + 0.008) / 1.008 * np.pi / 2) ** 2
        betas = np.minimum(1 - bars[1:] / bars[:-1], 0.999)
    elif options["beta_schedule"] == "scaled_linear":
        betas = np.linspace(start**0.5, end**0.5, count) ** 2
    else:
        betas = np.linspace(start, end, count)
    products: Array = np.cumprod(1 - betas)
    if options.get("rescale_betas_zero_snr"):
        roots = np.sqrt(products)
        products = ((roots - roots[-1]) * roots[0] / (roots[0] - roots[-1])) ** 2
    return products


def spaced(options: Config, steps: int, *, whole: bool = True) -> Array:
    """Timesteps in falling order by `timestep_spacing`, float64; linspace is rounded if `whole`."""
    count = options["num_train_timesteps"]
    if options["timestep_spacing"] == "linspace":
        even = np.linspace(0, count - 1, steps)[::-1]
        return even.round() if whole else even
    if options["timestep_spacing"] == "leading":
        return (np.arange(steps) * (count // steps))[::-1] + float(options["steps_offset"])
    return np.arange(count, 0, -count / steps).round() - 1


def denoised(options: Config, alpha: Any, sigma: Any, model_output: Array, sample: Array) -> Array:
    """The predicted original sample, of sample = alpha * original + sigma * noise."""
    if options["prediction_type"] == "sample":
        return model_output
    if options["prediction_type"] == "v_prediction":
        return alpha * sample - sigma * model_output
    return (sample - sigma * model_output) / alpha


def clipped(options: Config, original: Array) -> Array:
    """The original sample within `clip_sample_range`, where `clip_sample` is set."""
    limit = options["clip_sample_range"]
    return np.clip(original, -limit, limit) if options["clip_sample"] else original
