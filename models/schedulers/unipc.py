"""UniPC (Zhao et al. 2023, arXiv:2302.04867): a predictor of first to third order, corrected by the model output of the
next step."""

from __future__ import annotations

import numpy as np

from .schedule.multistep import MULTISTEP_CHOICES, MULTISTEP_DEFAULTS, multistep_sigmas, scales
from .schedule.noise_schedule import denoised, thresholded
from .scheduler import Array, Config, History, Rule, Trajectory


def _trajectory(options: Config, steps: int, mu: float | None) -> Trajectory:
    timesteps, sigmas = multistep_sigmas(options, steps, repeats_last=True)
    alphas, noises, halves = scales(sigmas)
    count, kind, highest = len(timesteps), options["solver_type"], options["solver_order"]
    orders = [min(highest, index + 1) for index in range(count)]
    if options["lower_order_final"]:
        orders = [min(order, count - index) for index, order in enumerate(orders)]

    def step_from(start: int, sample: Array, originals: History, order: int, newest: Array | None) -> Array:
        """The sample one step after the index `start`, predicted from the original samples up to there, newest first;
        corrected by `newest`, the one after the step, if it is given."""
        length = halves[start + 1] - halves[start]
        plain = noises[start + 1] / noises[start] * sample - alphas[start + 1] * np.expm1(-length) * originals[0]
        ratios = [(halves[start - i] - halves[start]) / length for i in range(1, order)]
        derivatives = [(originals[i] - originals[0]) / ratio for i, ratio in enumerate(ratios, 1)]
        if newest is not None:
            ratios, derivatives = [*ratios, 1.0], [*derivatives, newest - originals[0]]
        if not derivatives:
            return plain
        weights, bound = _weights(ratios, -length, kind)
        return plain - alphas[start + 1] * bound * sum(
            (w * s for w, s in zip(weights, derivatives, strict=True)), 0 * plain
        )

    def advance(
        model_output: Array, index: int, sample: Array, noise: Array | None, history: History
    ) -> tuple[Array, History]:
        original = denoised(options, alphas[index], noises[index], model_output, sample)
        if options["thresholding"]:
            original = thresholded(options, original)
        if index and history:
            order = min(orders[index - 1], len(history) - 1)
            sample = step_from(index - 1, history[0], history[1:], order, original)
        originals = (original, *history[1:])[:highest]
        order = min(orders[index], len(originals))
        return step_from(index, sample, originals, order, None), (sample, *originals)

    return Trajectory(timesteps, advance, sigmas, levels=(alphas[:-1], noises[:-1]))


def _weights(ratios: list[float], length: float, kind: str) -> tuple[Array, float]:
    """Weights of derivatives at the ratios of a step's length, and the factor B(h) of their sum."""
    first = np.expm1(length)
    bound = length if kind == "bh1" else first
    moments, phi, factorial = [], first / length - 1, 1
    for i in range(len(ratios)):
        moments.append(phi * factorial / bound)
        factorial *= i + 2
        phi = phi / length - 1 / factorial
    if len(ratios) == 1:
        return np.array([0.5]), bound
    return np.linalg.solve(np.power(np.array(ratios), np.arange(len(ratios))[:, None]), np.array(moments)), bound


SCHEDULER = Rule(
    "UniPCMultistepScheduler",
    MULTISTEP_DEFAULTS,
    MULTISTEP_CHOICES
    | {
        "solver_order": (2, 1, 3),
        "solver_type": ("bh2", "bh1"),
        "predict_x0": (True,),
        "disable_corrector": ([],),
        "solver_p": (None,),
        "sigma_min": (None,),
        "sigma_max": (None,),
        "shift_terminal": (None,),
    },
    _trajectory,
)
