"""Timesteps, sigmas and scales of solvers in log signal-to-noise ratio."""

from __future__ import annotations

from typing import Any

import numpy as np

from ....runtime.base.errors import UnsupportedError
from .noise_schedule import CHOICES, DEFAULTS, SPACINGS, spaced
from .option_kinds import Array, Config
from .sigma_schedule import shape_of, sigma_schedule, trained_sigmas

MULTISTEP_DEFAULTS: dict[str, Any] = DEFAULTS | {
    "use_karras_sigmas": False,
    "use_exponential_sigmas": False,
    "use_beta_sigmas": False,
    "lower_order_final": True,
    "rescale_betas_zero_snr": False,
    "flow_shift": 1.0,
}
MULTISTEP_CHOICES: dict[str, tuple[Any, ...]] = CHOICES | {
    "timestep_spacing": SPACINGS,
    "final_sigmas_type": ("zero", "sigma_min"),
    "use_flow_sigmas": (False, None),
    "use_dynamic_shifting": (False,),
    "time_shift_type": ("exponential",),
}
ROUNDED = (None, "use_karras_sigmas", "use_lu_lambdas")
"""Options whose timesteps are rounded; those of others are cut off."""


def multistep_sigmas(
    options: Config, steps: int, *, cut_cosine: bool = False, repeats_last: bool = False
) -> tuple[Array, Array]:
    """Timesteps, int64, and sigmas, float32; linspace and leading leave out the last of one step more.

    Args:
        cut_cosine: whether timesteps of sigmas are cut off, not rounded, for the cosine schedule.
        repeats_last: as of `sigma_schedule`.
    """
    more = 0 if options["timestep_spacing"] == "trailing" else 1
    even = spaced(options, steps + more, last=_last(options))
    timesteps, sigmas = sigma_schedule(options, even[:steps], all_trained=True, repeats_last=repeats_last)
    cut = cut_cosine and options["beta_schedule"] == "squaredcos_cap_v2"
    rounded = shape_of(options) in ROUNDED and not cut
    return (timesteps.round() if rounded else timesteps).astype(np.int64), sigmas


def _last(options: Config) -> int:
    """The number of timesteps whose half log signal-to-noise is at least `lambda_min_clipped`."""
    least = options.get("lambda_min_clipped", -np.inf)
    count = int(np.count_nonzero(-np.log(trained_sigmas(options)) >= least))
    if not count:
        raise UnsupportedError("E-SCHEDULER", None, f"lambda_min_clipped {least:g} leaves no timesteps")
    return count


def scales(sigmas: Array) -> tuple[Array, Array, Array]:
    """Scales of the original sample and of noise, and half the log signal-to-noise; infinite at sigma 0."""
    wide = sigmas.astype(np.float64)
    alphas = 1 / np.hypot(wide, 1)
    with np.errstate(divide="ignore"):
        return alphas, wide * alphas, -np.log(wide)
