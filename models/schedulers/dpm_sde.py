"""DPM++ SDE: steps of second order with noise, which run the denoiser a second time halfway in log sigma."""

import numpy as np

from .schedule.noise_schedule import CHOICES, SPACINGS, spaced
from .schedule.sigma_schedule import (
    SIGMA_DEFAULTS,
    initial_sigma,
    original_at,
    scaled_by,
    sigma_schedule,
    timesteps_of,
    trained_sigmas,
)
from .scheduler import Array, Config, History, Rule, Trajectory, kept


def _trajectory(options: Config, steps: int, mu: float | None) -> Trajectory:
    whole, levels = sigma_schedule(options, spaced(options, steps, whole=False))
    middles = np.sqrt(levels[:-2].astype(np.float64) * levels[1:-1])
    inputs = interleaved(levels[:-1].astype(np.float64), middles)
    timesteps = interleaved(whole, timesteps_of(middles, trained_sigmas(options)))
    sigmas = np.concatenate([levels[:1], levels[1:-1].repeat(2), levels[-1:]])

    def advance(
        model_output: Array, index: int, sample: Array, noise: Array | None, history: History
    ) -> tuple[Array, History]:
        second = index % 2
        original = original_at(options, inputs[index], model_output, sample)
        if index + 1 == len(inputs):
            return original, ()
        start = kept(history, index)[0] if second else sample
        current, target = inputs[index - second], inputs[index + 1]
        up = min(target, np.sqrt(target**2 * (current**2 - target**2) / current**2))
        ratio = np.sqrt(target**2 - up**2) / current
        following = ratio * start + (1 - ratio) * original
        return (following if noise is None else following + up * noise), () if second else (sample,)

    return Trajectory(
        timesteps,
        advance,
        sigmas,
        initial_sigma(options, sigmas),
        scaled_by(inputs),
        noisy=True,
        levels=(np.ones(len(inputs)), inputs),
        order=2,
    )


def interleaved(ends: Array, middles: Array) -> Array:
    """Each of n elements, followed by one of n - 1 others."""
    result = np.empty(len(ends) + len(middles))
    result[::2], result[1::2] = ends, middles
    return result


SCHEDULER = Rule(
    "DPMSolverSDEScheduler",
    SIGMA_DEFAULTS | {"beta_start": 0.00085, "beta_end": 0.012, "noise_sampler_seed": None},
    CHOICES | {"prediction_type": ("epsilon", "v_prediction"), "timestep_spacing": SPACINGS},
    _trajectory,
)
