"""Wuerstchen's DDPM: continuous timesteps from 1 to 0, cosine noise levels that may be shifted."""

import numpy as np

from .scheduler import Array, Config, History, Rule, Trajectory

LEAST, MOST = 0.0001, 0.9999
"""Bounds of cumulative alphas."""


def _trajectory(options: Config, steps: int, mu: float | None) -> Trajectory:
    times = np.linspace(1, 0, steps + 1).astype(np.float32)
    scaler, shift = options["scaler"], options["s"]
    shifted = 1 - (1 - times) ** scaler if scaler > 1 else times**scaler
    levels = np.cos((shifted + shift) / (1 + shift) * np.pi / 2) ** 2 / np.cos(shift / (1 + shift) * np.pi / 2) ** 2
    products = np.clip(levels, LEAST, MOST)

    def advance(
        model_output: Array, index: int, sample: Array, noise: Array | None, history: History
    ) -> tuple[Array, History]:
        current, previous = products[index : index + 2]
        alpha = current / previous
        mean = (sample - (1 - alpha) * model_output / np.sqrt(1 - current)) / np.sqrt(alpha)
        if noise is None or index + 1 == steps:
            return mean, ()
        return mean + np.sqrt((1 - alpha) * (1 - previous) / (1 - current)) * noise, ()

    return Trajectory(times[:-1], advance, noisy=True)


SCHEDULER = Rule("DDPMWuerstchenScheduler", {"scaler": 1.0, "s": 0.008}, {}, _trajectory)
