"""Flow matching by Euler's method, with sigmas shifted by a constant or by the size of the picture."""

import numpy as np

from ...runtime.base.errors import UsageError
from .scheduler import Array, Config, History, Rule, Trajectory


def _trajectory(options: Config, steps: int, mu: float | None) -> Trajectory:
    count, shift, dynamic = options["num_train_timesteps"], options["shift"], options["use_dynamic_shifting"]
    if dynamic and mu is None:
        raise UsageError("E-SCHEDULER", None, "dynamic shifting needs mu", hint="Pass mu, of the picture's size.")

    def shifted(sigmas: Array, factor: float) -> Array:
        return factor * sigmas / (1 + (factor - 1) * sigmas)

    ends = np.array([1, 1 / count])
    ends = ends if dynamic else shifted(ends, shift)
    exponential = options["time_shift_type"] == "exponential"
    factor = (float(np.exp(mu)) if exponential else mu) if dynamic and mu is not None else shift
    levels = shifted(np.linspace(float(ends[0]), float(ends[1]), steps), factor)
    sigmas = np.append(levels, 0.0).astype(np.float32)

    def advance(
        model_output: Array, index: int, sample: Array, noise: Array | None, history: History
    ) -> tuple[Array, History]:
        return sample + (sigmas[index + 1] - sigmas[index]) * model_output, ()

    return Trajectory((levels * count).astype(np.float32), advance, sigmas)


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
    },
    {
        "time_shift_type": ("exponential", "linear"),
        "invert_sigmas": (False,),
        "shift_terminal": (None,),
        "stochastic_sampling": (False,),
        "use_karras_sigmas": (False, None),
        "use_exponential_sigmas": (False, None),
        "use_beta_sigmas": (False, None),
    },
    _trajectory,
)
