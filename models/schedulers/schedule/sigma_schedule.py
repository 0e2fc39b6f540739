"""Sigma schedules: noise levels at timesteps, or between two ends by a rule of Karras, exponential or beta."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ....runtime.base.errors import UnsupportedError
from .noise_schedule import DEFAULTS, alphas_cumprod, denoised
from .option_kinds import Array, Config

SIGMA_DEFAULTS: dict[str, Any] = DEFAULTS | {
    "use_karras_sigmas": False,
    "use_exponential_sigmas": False,
    "use_beta_sigmas": False,
}
"""Options of schedulers along sigmas."""
KARRAS_RHO = 7.0
LEAST_PRODUCT = 2.0**-24
"""Last cumulative alpha in place of 0, whose sigma would be infinite."""
BETA = 0.6
"""Both parameters of the beta distribution."""
TERMS = 64
"""Terms of the series of the beta distribution up to 1 / 2, where each one is at most half of the one before."""
BISECTIONS = 60


def karras(high: float, low: float, count: int) -> Array:
    """Sigmas of Karras et al. 2022, arXiv:2206.00364."""
    first, last = high ** (1 / KARRAS_RHO), low ** (1 / KARRAS_RHO)
    sigmas: Array = (first + np.linspace(0, 1, count) * (last - first)) ** KARRAS_RHO
    return sigmas


def exponential(high: float, low: float, count: int) -> Array:
    """Sigmas with constant ratios."""
    return np.exp(np.linspace(math.log(high), math.log(low), count))


def beta(high: float, low: float, count: int) -> Array:
    """Sigmas at even quantiles of a beta distribution (Lee et al. 2024, arXiv:2407.12173)."""
    return low + beta_quantiles(1 - np.linspace(0, 1, count)) * (high - low)


def beta_quantiles(probabilities: Array) -> Array:
    """Quantiles of the symmetric beta distribution with the parameters `BETA`, by bisection."""
    norm = math.gamma(2 * BETA) / math.gamma(BETA) ** 2
    terms = np.arange(TERMS)
    ratios = np.concatenate([[1.0], (terms[:-1] + 1 - BETA) / (terms[:-1] + 1)])
    weights = norm * np.cumprod(ratios) / (BETA + terms)
    tails = np.minimum(probabilities, 1 - probabilities)
    low, high = np.zeros_like(tails), np.full_like(tails, 0.5)
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        below = middle**BETA * (middle[:, None] ** terms @ weights) < tails
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    found = np.where(tails > 0, (low + high) / 2, 0.0)
    return np.where(probabilities > 0.5, 1 - found, found)


SHAPES: dict[str, Callable[[float, float, int], Array]] = {
    "use_karras_sigmas": karras,
    "use_exponential_sigmas": exponential,
    "use_beta_sigmas": beta,
    "use_lu_lambdas": exponential,
}
"""Sigmas from the highest to the lowest, by the option that asks for them; Lu's lambdas are logarithms of sigmas."""


def shape_of(options: Config) -> str | None:
    """The option of `SHAPES` that is set, None where sigmas are those of timesteps. UnsupportedError for several."""
    chosen = [name for name in SHAPES if options.get(name)]
    if len(chosen) > 1:
        raise UnsupportedError("E-SCHEDULER", None, f"{' and '.join(chosen)} exclude each other")
    return chosen[0] if chosen else None


def trained_sigmas(options: Config) -> Array:
    """Sigmas of all timesteps of training, rising, float32. UnsupportedError where one is 0 or not finite."""
    products = alphas_cumprod(options)
    if options.get("rescale_betas_zero_snr"):
        products[-1] = LEAST_PRODUCT
    with np.errstate(all="ignore"):
        products = products.astype(np.float32)
        sigmas: Array = np.sqrt((1 - products) / products)
    if not (np.isfinite(sigmas).all() and sigmas[0] > 0):
        why = "the betas lead to noise levels that are 0 or not finite"
        raise UnsupportedError("E-SCHEDULER", None, why, hint="Check beta_start, beta_end and trained_betas")
    return sigmas


def sigma_schedule(
    options: Config, timesteps: Array, *, all_trained: bool = False, repeats_last: bool = False
) -> tuple[Array, Array]:
    """Timesteps, float64, and sigmas with a final one, float32, of the timesteps or of the option of `SHAPES`.

    Sigmas of such an option lie between `sigma_max` and `sigma_min` where these are given, otherwise between those of
    the first and the last timestep, or of all of training if `all_trained`. The final one of `final_sigmas_type` =
    "sigma_min" is the least of training, or with `repeats_last` the last one of such an option.
    """
    trained = trained_sigmas(options)
    sigmas = np.interp(timesteps, np.arange(len(trained)), trained)
    shape = shape_of(options)
    if shape:
        ends = trained[::-1] if all_trained else sigmas
        high, low = (options.get(name) or ends[end] for name, end in (("sigma_max", 0), ("sigma_min", -1)))
        sigmas = SHAPES[shape](float(high), float(low), len(sigmas))
        timesteps = timesteps_of(sigmas, trained)
    least = sigmas[-1] if shape and repeats_last else trained[0]
    final = least if options.get("final_sigmas_type") == "sigma_min" else 0.0
    return timesteps, np.append(sigmas, final).astype(np.float32)


def timesteps_of(sigmas: Array, trained: Array) -> Array:
    """Timesteps of sigmas, float64, between the trained ones by logarithms, which are f32."""
    levels, logs = np.log(sigmas.astype(np.float64)), np.log(trained)
    if len(logs) == 1:
        return np.zeros(len(levels))
    low = np.clip(np.searchsorted(logs, levels, side="right") - 1, 0, len(logs) - 2)
    weights = np.clip((logs[low] - levels) / (logs[low] - logs[low + 1]), 0, 1)
    timesteps: Array = (1 - weights) * low + weights * (low + 1)
    return timesteps


def initial_sigma(options: Config, sigmas: Array) -> float:
    """The factor of the unit noise that sampling begins with."""
    largest = float(sigmas.max())
    return float(np.hypot(largest, 1)) if options["timestep_spacing"] == "leading" else largest


def levels_at(sigmas: Array) -> tuple[Array, Array]:
    """Factors of an original sample and of noise where noise is added to the sample as it is."""
    return np.ones(len(sigmas) - 1), sigmas[:-1].astype(np.float64)


def scaled_by(sigmas: Array) -> Callable[[Array, int], Array]:
    """The factor of the denoiser's input, which has variance 1 + sigma^2, by the index of its sigma."""

    def scale_input(sample: Array, index: int) -> Array:
        scaled: Array = sample / np.hypot(sigmas[index], np.float32(1))
        return scaled

    return scale_input


def original_at(options: Config, sigma: Any, model_output: Array, sample: Array) -> Array:
    """The predicted original sample, of sample = original + sigma * noise."""
    norm = np.hypot(sigma, 1)
    return denoised(options, 1 / norm, sigma / norm, model_output, sample / norm)
