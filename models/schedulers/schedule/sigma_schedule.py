"""Sigma schedules: of the timesteps, or Karras' between the same ends."""

import numpy as np

from .noise_schedule import alphas_cumprod
from .scheduler import Array, Config

KARRAS_RHO = 7.0


def sigma_schedule(options: Config, timesteps: Array, *, all_trained: bool = False) -> tuple[Array, Array]:
    """Timesteps, float64, and sigmas with a final zero, float32; both of Karras where `use_karras_sigmas` is set.

    Karras' sigmas lie between those of the first and the last timestep, or of all of training if `all_trained`.
    """
    products = alphas_cumprod(options)
    trained = np.sqrt((1 - products) / products)
    sigmas = np.interp(timesteps, np.arange(len(trained)), trained)
    if options.get("use_karras_sigmas"):
        ends = trained[::-1] if all_trained else sigmas
        first, last = (ends[end] ** (1 / KARRAS_RHO) for end in (0, -1))
        sigmas = (first + np.linspace(0, 1, len(sigmas)) * (last - first)) ** KARRAS_RHO
        timesteps = np.interp(np.log(sigmas), np.log(trained), np.arange(len(trained)))
    return timesteps, np.append(sigmas, 0.0).astype(np.float32)
