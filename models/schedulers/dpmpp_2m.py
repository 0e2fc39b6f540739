"""DPM-Solver++ of first and second order (2M), midpoint."""

import numpy as np

from .multistep import MULTISTEP_CHOICES, MULTISTEP_DEFAULTS, multistep_sigmas, scales
from .noise_schedule import denoised
from .scheduler import Array, Config, History, Rule, Trajectory


def _trajectory(options: Config, steps: int, mu: float | None) -> Trajectory:
    timesteps, sigmas = multistep_sigmas(options, steps)
    alphas, noises, halves = scales(sigmas)

    def advance(
        model_output: Array, index: int, sample: Array, noise: Array | None, history: History
    ) -> tuple[Array, History]:
        original = denoised(options, alphas[index], noises[index], model_output, sample)
        width = halves[index + 1] - halves[index]
        estimate = original
        if history and options["solver_order"] == 2 and index + 1 < len(timesteps):
            ratio = (halves[index] - halves[index - 1]) / width
            estimate = original + (original - history[0]) / (2 * ratio)
        following = noises[index + 1] / noises[index] * sample - alphas[index + 1] * np.expm1(-width) * estimate
        return following, (original,)

    return Trajectory(timesteps, advance, sigmas)


SCHEDULER = Rule(
    "DPMSolverMultistepScheduler",
    MULTISTEP_DEFAULTS | {"euler_at_final": False},
    MULTISTEP_CHOICES
    | {
        "algorithm_type": ("dpmsolver++",),
        "solver_type": ("midpoint",),
        "use_lu_lambdas": (False, None),
        "variance_type": (None,),
    },
    _trajectory,
)
