"""Types and ranges of the options in scheduler_config.json."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, TypeAlias

from numpy.typing import NDArray

from ....runtime.contract.hyperparameter import POSITIVE, Integer, Kind, Listed, Real, flag

Array: TypeAlias = NDArray[Any]
Config: TypeAlias = Mapping[str, Any]
"""Options by name."""
MAX_TRAINED = 100_000
"""Timesteps of training; the published schedules have 1,000, those of distilled ones 50."""
BETA = Real(0, 1)
LEVEL = Real(1e-6, 1e6)
"""A noise level."""


def log_ratio(value: Any) -> float:
    """A finite number or minus infinity."""
    return value if isinstance(value, float) and value == -math.inf else Real()(value)


KINDS: Mapping[str, Kind] = {
    "num_train_timesteps": Integer(1, MAX_TRAINED),
    "original_inference_steps": Integer(1, MAX_TRAINED),
    "steps_offset": Integer(0, MAX_TRAINED),
    "beta_start": BETA,
    "beta_end": BETA,
    "trained_betas": Listed(BETA, 1, MAX_TRAINED),
    "sigma_min": LEVEL,
    "sigma_max": LEVEL,
    "lambda_min_clipped": log_ratio,
    "timestep_scaling": POSITIVE,
    "clip_sample": flag,
    "clip_sample_range": POSITIVE,
    "thresholding": flag,
    "dynamic_thresholding_ratio": Real(0, 1),
    "sample_max_value": Real(1),
    "set_alpha_to_one": flag,
    "skip_prk_steps": flag,
    "rescale_betas_zero_snr": flag,
    "use_karras_sigmas": flag,
    "use_exponential_sigmas": flag,
    "use_beta_sigmas": flag,
    "use_lu_lambdas": flag,
    "use_dynamic_shifting": flag,
    "lower_order_final": flag,
    "euler_at_final": flag,
    "even_steps": flag,
    "shift": POSITIVE,
    "flow_shift": POSITIVE,
    "shift_terminal": Real(0, 0.999),
    "invert_sigmas": flag,
    "stochastic_sampling": flag,
    "base_shift": Real(),
    "max_shift": Real(),
    "base_image_seq_len": Integer(1),
    "max_image_seq_len": Integer(1),
    "scaler": POSITIVE,
    "s": POSITIVE,
    "eta": Real(0, 1),
}
"""Name of an option -> its kind, for options that are not a choice among words."""
