"""The noise schedule of training: betas, cumulative alphas, and timesteps of a run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ....runtime.base.errors import UnsupportedError
from .option_kinds import Array, Config

INERT: dict[str, Any] = {
    "clip_sample": False,
    "clip_sample_range": 1.0,
    "thresholding": False,
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
    "trained_betas": None,
    "steps_offset": 0,
}
CHOICES: dict[str, tuple[Any, ...]] = {
    "beta_schedule": ("linear", "scaled_linear", "squaredcos_cap_v2"),
    "prediction_type": ("epsilon", "v_prediction", "sample"),
}
SPACINGS = ("linspace", "leading", "trailing")
MAX_BETA = 0.999


def _even(start: float, end: float, count: int) -> Array:
    """Numbers from `start` to `end` with steps of f32, from the nearer end as in torch, whose sums are rounded once."""
    first, last = np.float32(start), np.float32(end)
    step = float((last - first) / np.float32(max(count - 1, 1)))
    indices = np.arange(count)
    rising, falling = float(first) + step * indices, float(last) - step * (count - 1 - indices)
    return np.where(indices < count // 2, rising, falling).astype(np.float32)


def _of_levels(levels: Array) -> Array:
    """Betas of cumulative alphas at 0, 1 / count, .. 1."""
    return np.minimum(1 - levels[1:] / levels[:-1], MAX_BETA)


def _sigmoid(count: int, start: float, end: float) -> Array:
    betas: Array = start + (end - start) / (1 + np.exp(-np.linspace(-6, 6, count)))
    return betas


BETAS: dict[str, Callable[[int, float, float], Array]] = {
    "linear": lambda count, start, end: _even(start, end, count),
    "scaled_linear": lambda count, start, end: _even(start**0.5, end**0.5, count) ** 2,
    "squaredcos_cap_v2": lambda count, start, end: _of_levels(
        np.cos((np.arange(count + 1) / count + 0.008) / 1.008 * np.pi / 2) ** 2
    ),
    "exp": lambda count, start, end: _of_levels(np.exp(-12.0 * np.arange(count + 1) / count)),
    "sigmoid": _sigmoid,
}
"""Betas by `beta_schedule`, of the timesteps of training, `beta_start` and `beta_end`."""


def alphas_cumprod(options: Config) -> Array:
    """Products of 1 - beta up to each timestep of training, float64, rounded to f32 as those that models are trained
    with.

    Raises:
        UnsupportedError: for `trained_betas` of another number than the timesteps.
    """
    count, betas = options["num_train_timesteps"], options.get("trained_betas")
    if betas is None:
        betas = BETAS[options["beta_schedule"]](count, options["beta_start"], options["beta_end"])
    elif len(betas) != count:
        why = f"{len(betas):,} trained_betas for {count:,} num_train_timesteps are not supported"
        raise UnsupportedError("E-SCHEDULER", None, why)
    products = _products(1 - np.asarray(betas, np.float32))
    if options.get("rescale_betas_zero_snr"):
        with np.errstate(all="ignore"):
            roots = np.sqrt(products)
            rescaled = ((roots - roots[-1]) * (roots[0] / (roots[0] - roots[-1]))) ** 2
            products = _products(np.append(rescaled[:1], rescaled[1:] / rescaled[:-1]))
    return products.astype(np.float64)


def _products(alphas: Array) -> Array:
    """Cumulative products, float32, of which each one is rounded by itself."""
    return np.cumprod(alphas.astype(np.float64)).astype(np.float32)


def spaced(options: Config, steps: int, *, whole: bool = True, last: int | None = None) -> Array:
    """Timesteps in falling order by `timestep_spacing`, float64, below `last` (all of training if None); linspace is
    rounded if `whole`."""
    count = options["num_train_timesteps"]
    last = count if last is None else last
    if options["timestep_spacing"] == "linspace":
        even = np.linspace(0, last - 1, steps)[::-1]
        return even.round() if whole else even
    if options["timestep_spacing"] == "leading":
        return (np.arange(steps) * (last // steps))[::-1] + float(options["steps_offset"])
    return np.arange(last, 0, -count / steps)[:steps].round() - 1


def inside(timesteps: Array, options: Config) -> Array:
    """Timesteps as int64, the indices of cumulative alphas.

    Raises:
        UnsupportedError: for a `steps_offset` that leads past the timesteps of training.
    """
    indices: Array = timesteps.astype(np.int64)
    if len(indices) and not 0 <= indices.min() <= indices.max() < options["num_train_timesteps"]:
        why = f"steps_offset {options['steps_offset']:,} leads past the timesteps of training"
        raise UnsupportedError("E-SCHEDULER", None, why)
    return indices


def levels_of(products: Array) -> tuple[Array, Array]:
    """Factors of an original sample and of noise from cumulative alphas."""
    return np.sqrt(products), np.sqrt(1 - products)


def denoised(options: Config, alpha: Any, sigma: Any, model_output: Array, sample: Array) -> Array:
    """The predicted original sample, of sample = alpha * original + sigma * noise."""
    if options["prediction_type"] == "sample":
        return model_output
    if options["prediction_type"] == "v_prediction":
        return alpha * sample - sigma * model_output
    return (sample - sigma * model_output) / alpha


def clipped(options: Config, original: Array) -> Array:
    """The original sample after dynamic thresholding (Saharia et al. 2022, arXiv:2205.11487) where `thresholding` is
    set, otherwise after `cut`."""
    return thresholded(options, original) if options["thresholding"] else cut(options, original)


def cut(options: Config, original: Array) -> Array:
    """The original sample within `clip_sample_range` where `clip_sample` is set."""
    limit = options["clip_sample_range"]
    return np.clip(original, -limit, limit) if options["clip_sample"] else original


def thresholded(options: Config, original: Array) -> Array:
    """Each sample of a batch cut off at a quantile of its absolute values and divided by it; the quantile is taken as 1
    at least and `sample_max_value` at most."""
    flat = np.abs(original.reshape(len(original), -1))
    limit = np.quantile(flat, options["dynamic_thresholding_ratio"], axis=1)
    limit = np.clip(limit, 1, options["sample_max_value"]).reshape(-1, *[1] * (original.ndim - 1))
    return np.clip(original, -limit, limit) / limit
