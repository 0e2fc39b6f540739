"""PNDM without Runge-Kutta steps: linear multistep of up to four model outputs."""

import numpy as np

from .noise_schedule import CHOICES, DEFAULTS, SPACINGS, alphas_cumprod, spaced
from .scheduler import Array, Config, History, Rule, Trajectory

ADAMS_BASHFORTH = ((1.0,), (1.5, -0.5), (23 / 12, -16 / 12, 5 / 12), (55 / 24, -59 / 24, 37 / 24, -9 / 24))
"""Weights of the model outputs, newest first."""


def _trajectory(options: Config, steps: int, mu: float | None) -> Trajectory:
    products, single = alphas_cumprod(options), spaced(options, steps).astype(np.int64)
    final = 1.0 if options["set_alpha_to_one"] else products[0]
    timesteps = np.concatenate([single[:1], single[1:2], single[1:]])
    stride = options["num_train_timesteps"] // steps

    def advance(
        model_output: Array, index: int, sample: Array, noise: Array | None, history: History
    ) -> tuple[Array, History]:
        timestep = timesteps[index] + (stride if index == 1 else 0)
        if index == 1:
            output, sample = (model_output + history[0]) / 2, history[-1]
            kept: History = history[:1]
        else:
            outputs = (model_output, *(history if index > 2 else history[:1]))[:4]
            output = sum(
                (w * item for w, item in zip(ADAMS_BASHFORTH[len(outputs) - 1], outputs, strict=True)), 0.0 * sample
            )
            kept = (model_output, sample) if index == 0 else outputs
        before = timestep - stride
        current, previous = products[timestep], products[before] if before >= 0 else final
        if options["prediction_type"] == "v_prediction":
            output = np.sqrt(current) * output + np.sqrt(1 - current) * sample
        divisor = current * np.sqrt(1 - previous) + np.sqrt(current * (1 - current) * previous)
        return np.sqrt(previous / current) * sample - (previous - current) / divisor * output, kept

    return Trajectory(timesteps, advance)


SCHEDULER = Rule(
    "PNDMScheduler",
    DEFAULTS | {"set_alpha_to_one": False},
    CHOICES
    | {
        "skip_prk_steps": (True,),
        "prediction_type": ("epsilon", "v_prediction"),
        "timestep_spacing": ("leading", *SPACINGS),
    },
    _trajectory,
)
