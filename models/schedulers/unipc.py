"""UniPC of second order: a predictor, corrected by the model output of the next step."""

import numpy as np

from .multistep import MULTISTEP_CHOICES, MULTISTEP_DEFAULTS, multistep_sigmas, scales
from .noise_schedule import denoised
from .scheduler import Array, Config, History, Rule, Trajectory


def _trajectory(options: Config, steps: int, mu: float | None) -> Trajectory:
    timesteps, sigmas = multistep_sigmas(options, steps)
    alphas, noises, halves = scales(sigmas)
    orders = [min(options["solver_order"], index + 1) for index in range(steps)]
    if options["lower_order_final"]:
        orders = [min(order, steps - index) for index, order in enumerate(orders)]

    def corrected(index: int, original: Array, previous: Array, older: Array | None, start: Array) -> Array:
        width = halves[index] - halves[index - 1]
        bound = np.expm1(-width)
        plain = noises[index] / noises[index - 1] * start - alphas[index] * bound * previous
        newest = original - previous
        if orders[index - 1] == 1 or older is None:
            return plain - alphas[index] * bound * newest / 2
        ratio = (halves[index - 2] - halves[index - 1]) / width
        first_phi = bound / -width - 1
        second_phi = first_phi / -width - 0.5
        moments = np.array([first_phi / bound, 2 * second_phi / bound])
        weights = np.linalg.solve(np.array([[1, 1], [ratio, 1]]), moments)
        return plain - alphas[index] * bound * (weights[0] * (older - previous) / ratio + weights[1] * newest)

    def advance(
        model_output: Array, index: int, sample: Array, noise: Array | None, history: History
    ) -> tuple[Array, History]:
        original = denoised(options, alphas[index], noises[index], model_output, sample)
        if index and history:
            previous, start = history[:2]
            sample = corrected(index, original, previous, history[2] if len(history) > 2 else None, start)
        width = halves[index + 1] - halves[index]
        bound = np.expm1(-width)
        following = noises[index + 1] / noises[index] * sample - alphas[index + 1] * bound * original
        if orders[index] == 2 and history:
            ratio = (halves[index - 1] - halves[index]) / width
            following = following - alphas[index + 1] * bound * (history[0] - original) / ratio / 2
        return following, (original, sample, *history[:1])

    return Trajectory(timesteps, advance, sigmas)


SCHEDULER = Rule(
    "UniPCMultistepScheduler",
    MULTISTEP_DEFAULTS,
    MULTISTEP_CHOICES
    | {
        "solver_type": ("bh2",),
        "predict_x0": (True,),
        "disable_corrector": ([],),
        "solver_p": (None,),
        "use_dynamic_shifting": (False,),
    },
    _trajectory,
)
