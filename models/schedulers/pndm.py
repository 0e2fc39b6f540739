"""PNDM (Liu et al. 2022, arXiv:2202.09778): linear multistep of up to four model outputs, after Runge-Kutta steps or
without them."""

from collections.abc import Callable

import numpy as np

from ...runtime.base.errors import UsageError
from .schedule.noise_schedule import CHOICES, DEFAULTS, SPACINGS, alphas_cumprod, inside, levels_of, spaced
from .scheduler import Array, Config, History, Rule, Trajectory, kept

ORDER = 4
RUNGE_KUTTA = (1 / 6, 1 / 3, 1 / 3, 1 / 6)
"""Weights of the outputs of a Runge-Kutta step."""
ADAMS_BASHFORTH = ((1.0,), (1.5, -0.5), (23 / 12, -16 / 12, 5 / 12), (55 / 24, -59 / 24, 37 / 24, -9 / 24))
"""Weights of the model outputs, newest first."""


def _trajectory(options: Config, steps: int, mu: float | None) -> Trajectory:
    products, single = alphas_cumprod(options), inside(spaced(options, steps), options)
    final = 1.0 if options["set_alpha_to_one"] else products[0]
    stride = options["num_train_timesteps"] // steps

    def moved(sample: Array, timestep: int, before: int, output: Array) -> Array:
        """The sample at the timestep `before`, by formula 9 of the paper."""
        current, previous = products[timestep], products[before] if before >= 0 else final
        if options["prediction_type"] == "v_prediction":
            output = np.sqrt(current) * output + np.sqrt(1 - current) * sample
        divisor = current * np.sqrt(1 - previous) + np.sqrt(current * (1 - current) * previous)
        following: Array = np.sqrt(previous / current) * sample - (previous - current) / divisor * output
        return following

    if not options["skip_prk_steps"]:
        return _runge_kutta(single, stride, moved)
    return _multistep(np.concatenate([single[:1], single[1:2], single[1:]]), stride, moved, products)


Move = Callable[[Array, int, int, Array], Array]


def _multistep(timesteps: Array, stride: int, moved: Move, products: Array) -> Trajectory:
    """Multistep from the beginning: the first step is repeated with the mean of two outputs."""

    def advance(
        model_output: Array, index: int, sample: Array, noise: Array | None, history: History
    ) -> tuple[Array, History]:
        timestep = timesteps[index]
        if index == 1:
            output, sample = (model_output + kept(history, index)[0]) / 2, history[-1]
            return moved(sample, timestep + stride, timestep, output), history[:1]
        outputs = (model_output, *(history if index > 2 else history[:1]))[:ORDER]
        following = moved(sample, timestep, timestep - stride, _extrapolated(outputs))
        return following, (model_output, sample) if index == 0 else outputs

    return Trajectory(
        timesteps,
        advance,
        levels=levels_of(products[timesteps]),
        restarted=lambda index: _multistep(timesteps[index:], stride, moved, products),
    )


def _runge_kutta(single: Array, stride: int, moved: Move) -> Trajectory:
    """Three steps of Runge and Kutta with four outputs each, then multistep."""
    if len(single) < ORDER:
        why = f"Runge-Kutta steps need {ORDER} steps or more, not {len(single)}"
        raise UsageError("E-SCHEDULER", None, why, hint="Set skip_prk_steps, or take more steps")
    starts, half = single[: ORDER - 1], stride // 2
    middles = np.append(starts[1:], single[ORDER - 1]) + half
    first = np.stack([starts, middles, middles, np.append(starts[1:], single[ORDER - 1])], axis=1).reshape(-1)
    timesteps = np.concatenate([first, single[ORDER - 1 :]])

    def advance(
        model_output: Array, index: int, sample: Array, noise: Array | None, history: History
    ) -> tuple[Array, History]:
        if index >= len(first):
            outputs = (model_output, *kept(history, index))[:ORDER]
            return moved(sample, timesteps[index], timesteps[index] - stride, _extrapolated(outputs)), outputs
        part = index % ORDER
        if part == 0:
            total, start, outputs = 0 * model_output, sample, (model_output, *history)
        else:
            total, start, *rest = kept(history, index)
            outputs = tuple(rest)
        total = total + model_output * RUNGE_KUTTA[part]
        before = timesteps[index] - (0 if index % 2 else half)
        following = moved(start, starts[index // ORDER], before, total if part == ORDER - 1 else model_output)
        return following, outputs if part == ORDER - 1 else (total, start, *outputs)

    return Trajectory(timesteps, advance)


def _extrapolated(outputs: History) -> Array:
    """The weighted sum of model outputs, newest first."""
    total: Array = sum(
        (w * item for w, item in zip(ADAMS_BASHFORTH[len(outputs) - 1], outputs, strict=True)), 0.0 * outputs[0]
    )
    return total


SCHEDULER = Rule(
    "PNDMScheduler",
    DEFAULTS | {"set_alpha_to_one": False, "skip_prk_steps": False},
    CHOICES | {"prediction_type": ("epsilon", "v_prediction"), "timestep_spacing": ("leading", *SPACINGS)},
    _trajectory,
)
