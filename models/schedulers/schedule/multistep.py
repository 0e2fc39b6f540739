"""What multistep solvers in log signal-to-noise share: their timesteps, sigmas and scales."""

from typing import Any

import numpy as np

from .noise_schedule import CHOICES, DEFAULTS, SPACINGS, spaced
from .scheduler import Array, Config
from .sigma_schedule import sigma_schedule

MULTISTEP_DEFAULTS: dict[str, Any] = DEFAULTS | {"use_karras_sigmas": False, "lower_order_final": True}
MULTISTEP_CHOICES: dict[str, tuple[Any, ...]] = CHOICES | {
    "timestep_spacing": SPACINGS,
    "solver_order": (2, 1),
    "thresholding": (False,),
    "final_sigmas_type": ("zero",),
    "rescale_betas_zero_snr": (False,),
    "use_exponential_sigmas": (False, None),
    "use_beta_sigmas": (False, None),
    "use_flow_sigmas": (False, None),
}


def multistep_sigmas(options: Config, steps: int) -> tuple[Array, Array]:
    """Timesteps, int64, and sigmas, float32; linspace and leading leave out the last of one step more."""
    more = 0 if options["timestep_spacing"] == "trailing" else 1
    timesteps, sigmas = sigma_schedule(options, spaced(options, steps + more)[:steps], all_trained=True)
    return timesteps.round().astype(np.int64), sigmas


def scales(sigmas: Array) -> tuple[Array, Array, Array]:
    """Scales of the original sample and of noise, and half the log signal-to-noise; infinite at sigma 0."""
    wide = sigmas.astype(np.float64)
    alphas = 1 / np.hypot(wide, 1)
    with np.errstate(divide="ignore"):
        return alphas, wide * alphas, -np.log(wide)
