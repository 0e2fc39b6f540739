"""Flow matching by Euler's method, with sigmas shifted by a constant or by the size of the picture."""

import numpy as np

from ...runtime.base.errors import UsageError
from .schedule.sigma_schedule import SHAPES, shape_of
from .scheduler import Array, Config, History, Rule, Trajectory


def _trajectory(options: Config, steps: int, mu: float | None) -> Trajectory:
    with np.errstate(all="ignore"):
        levels = _levels(options, steps, mu)
    inverted = options["invert_sigmas"]
    sigmas = np.append(1 - levels if inverted else levels, 1.0 if inverted else 0.0).astype(np.float32)

    def advance(
        model_output: Array, index: int, sample: Array, noise: Array | None, history: History
    ) -> tuple[Array, History]:
        current, following = sigmas[index : index + 2]
        if not options["stochastic_sampling"]:
            return sample + (following - current) * model_output, ()
        original = (1 - following) * (sample - current * model_output)
        return (original if noise is None else original + following * noise), ()

    timesteps = sigmas[:-1] * options["num_train_timesteps"]
    return Trajectory(
        timesteps, advance, sigmas, noisy=options["stochastic_sampling"], levels=(1 - sigmas[:-1], sigmas[:-1])
    )


def _levels(options: Config, steps: int, mu: float | None) -> Array:
    """Sigmas of the steps, falling from at most 1.

    Raises:
        UsageError: without `mu` for dynamic shifting, and for sigmas that are not positive numbers.
    """
    dynamic, shift = options["use_dynamic_shifting"], options["shift"]
    ends = np.array([1, 1 / (steps if options["even_steps"] else options["num_train_timesteps"])])
    if not dynamic:
        ends = ends if options["even_steps"] else _shifted(ends, shift)
    elif mu is None:
        raise UsageError("E-SCHEDULER", None, "dynamic shifting needs mu", hint="Pass mu, of the picture's size.")
    else:
        shift = float(np.exp(mu)) if options["time_shift_type"] == "exponential" else mu
    levels = _shifted(np.linspace(float(ends[0]), float(ends[1]), steps), shift)
    if options["shift_terminal"]:
        levels = 1 - (1 - levels) * (1 - options["shift_terminal"]) / (1 - levels[-1])
    if not (np.isfinite(levels).all() and levels.min() > 0):
        raise UsageError("E-SCHEDULER", None, f"mu {mu} and {steps} steps lead to noise levels that are not positive")
    shape = shape_of(options)
    return SHAPES[shape](float(levels[0]), float(levels[-1]), steps) if shape else levels


def _shifted(sigmas: Array, factor: float) -> Array:
    """Sigmas shifted towards 1, by factors above 1."""
    shifted: Array = factor * sigmas / (1 + (factor - 1) * sigmas)
    return shifted


SCHEDULER = Rule(
    "FlowMatchEulerDiscreteScheduler",
    {
        "num_train_timesteps": 1000,
        "shift": 1.0,
        "use_dynamic_shifting": False,
        "base_shift": 0.5,
        "max_shift": 1.15,
        "base_image_seq_len": 256,
        "max_image_seq_len": 4096,
        "invert_sigmas": False,
        "shift_terminal": None,
        "stochastic_sampling": False,
        "use_karras_sigmas": False,
        "use_exponential_sigmas": False,
        "use_beta_sigmas": False,
    },
    {"time_shift_type": ("exponential", "linear")},
    _trajectory,
    {"even_steps": False},
)
