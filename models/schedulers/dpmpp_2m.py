"""DPM-Solver and DPM-Solver++ of first to third order from the predictions of earlier steps: DPM++ 2M, 2M SDE, 3M."""

from __future__ import annotations

from ...runtime.base.errors import UnsupportedError
from .schedule.dpm_solver import ALGORITHMS, SOLVERS, Solver, summed, with_noise
from .schedule.multistep import MULTISTEP_CHOICES, MULTISTEP_DEFAULTS, multistep_sigmas
from .scheduler import Array, Config, History, Rule, Trajectory

FEW = 15
"""Steps below which `lower_order_final` matters."""


def _trajectory(options: Config, steps: int, mu: float | None) -> Trajectory:
    check_final(options)
    timesteps, sigmas = multistep_sigmas(options, steps, cut_cosine=True)
    solver, highest, kind = Solver(options, sigmas), options["solver_order"], options["solver_type"]
    if highest == 3 and options["algorithm_type"] == "sde-dpmsolver":
        raise UnsupportedError("E-SCHEDULER", None, "sde-dpmsolver has no third order", hint="Set solver_order to 2.")

    def advance(
        model_output: Array, index: int, sample: Array, noise: Array | None, history: History
    ) -> tuple[Array, History]:
        values = (solver.converted(model_output, index, sample), *history)[:highest]
        order = min(len(values), _order(options, index, len(timesteps)))
        update = solver.update(index, index + 1)
        terms = [(update.sample, sample), (update.value, values[0])]
        if order > 1:
            slope, curvature = _differences(solver, index, values[:order])
            terms.append((update.slope(kind) if order == 2 else update.heun, slope))
            if order == 3:
                terms.append((update.curvature, curvature))
        return with_noise(summed(*terms), update.noise, noise), values[: highest - 1]

    levels = solver.alphas[:-1], solver.noises[:-1]
    return Trajectory(timesteps, advance, sigmas, noisy=solver.noisy, levels=levels)


def check_final(options: Config) -> None:
    """UnsupportedError for a final sigma of 0, at which the predicted noise cannot be integrated."""
    if not options["algorithm_type"].endswith("++") and options["final_sigmas_type"] == "zero":
        why = f"{options['algorithm_type']} needs final_sigmas_type = 'sigma_min'"
        raise UnsupportedError("E-SCHEDULER", None, why)


def _order(options: Config, index: int, count: int) -> int:
    """The highest order of a step, which is lower at the end."""
    lower = options["lower_order_final"] and count < FEW
    if index == count - 1 and (lower or options["euler_at_final"] or options["final_sigmas_type"] == "zero"):
        return 1
    return 2 if index == count - 2 and lower else 3


def _differences(solver: Solver, index: int, values: History) -> tuple[Array, Array]:
    """The first and second derivative of the newest prediction, times the step's length and the square of it."""
    halves = solver.halves
    length = halves[index + 1] - halves[index]
    newest = (values[0] - values[1]) / ((halves[index] - halves[index - 1]) / length)
    if len(values) < 3:
        return newest, 0 * newest
    before = (halves[index - 1] - halves[index - 2]) / length
    last = (halves[index] - halves[index - 1]) / length
    change = newest - (values[1] - values[2]) / before
    return newest + last / (last + before) * change, change / (last + before)


SCHEDULER = Rule(
    "DPMSolverMultistepScheduler",
    MULTISTEP_DEFAULTS | {"euler_at_final": False, "use_lu_lambdas": False, "lambda_min_clipped": float("-inf")},
    MULTISTEP_CHOICES
    | {"solver_order": (2, 1, 3), "algorithm_type": ALGORITHMS, "solver_type": SOLVERS, "variance_type": (None,)},
    _trajectory,
)
