"""DPM-Solver and DPM-Solver++ of first to third order from predictions inside a step: DPM++ 2S, 2S SDE, 3S."""

from __future__ import annotations

from ...runtime.base.errors import UsageError
from .dpmpp_2m import check_final
from .schedule.dpm_solver import SOLVERS, Solver, summed, with_noise
from .schedule.multistep import MULTISTEP_CHOICES, MULTISTEP_DEFAULTS, multistep_sigmas
from .scheduler import Array, Config, History, Rule, Trajectory, kept


def orders(options: Config, steps: int) -> list[int]:
    """The order of each of the model's runs: a step of order n ends n runs, of which those before it have lower orders.

    Steps at the end have lower orders where the number of runs is not a multiple of the order, or the final sigma is 0.
    """
    highest, zero = options["solver_order"], options["final_sigmas_type"] == "zero"
    cycle = list(range(1, highest + 1))
    if highest == 1 or (steps % highest == 0 and not options["lower_order_final"] and not zero):
        found = cycle * (steps // highest)
    elif highest == 2:
        found = [1, 2] * ((steps - 1) // 2) + [1] * (2 - steps % 2)
    else:
        found = [1, 2, 3] * (steps // 3 - (steps % 3 == 0)) + ([1, 2, 1], [1], [1, 2])[steps % 3]
    return [*found[:-1], 1] if zero else found


def _trajectory(options: Config, steps: int, mu: float | None) -> Trajectory:
    check_final(options)
    timesteps, sigmas = multistep_sigmas({**options, "timestep_spacing": "linspace"}, steps)
    solver, runs, kind = Solver(options, sigmas), orders(options, steps), options["solver_type"]
    if len(timesteps) < len(runs):
        raise UsageError("E-SCHEDULER", None, f"lambda_min_clipped leaves fewer than {steps} timesteps")

    def advance(
        model_output: Array, index: int, sample: Array, noise: Array | None, history: History
    ) -> tuple[Array, History]:
        order = runs[index]
        start = sample if order == 1 else kept(history, index)[0]
        values = (solver.converted(model_output, index, sample), *(history[1:] if order > 1 else ()))
        update = solver.update(index - order + 1, index + 1)
        terms = [(update.sample, start), (update.value, values[-1])]
        if order == 2:
            terms.append((update.slope(kind), _ratio(solver, index, 2) * (values[0] - values[1])))
        elif order == 3:
            slope, curvature, last = _third(solver, index, values)
            terms += [(update.heun, slope), (update.curvature, curvature)] if kind == "heun" else [(update.heun, last)]
        return with_noise(summed(*terms), update.noise, noise), (start, *values)

    return Trajectory(timesteps, advance, sigmas, noisy=solver.noisy)


def _ratio(solver: Solver, index: int, order: int, before: int = 0) -> float:
    """The length of a step over that of its part up to the run `before` the last one."""
    halves, start = solver.halves, index - order + 1
    ratio: float = (halves[index + 1] - halves[start]) / (halves[index - before] - halves[start])
    return ratio


def _third(solver: Solver, index: int, values: History) -> tuple[Array, Array, Array]:
    """The first and second derivative at the start of a step, and the first one up to its last run, times powers of the
    step's length."""
    late, early = 1 / _ratio(solver, index, 3), 1 / _ratio(solver, index, 3, 1)
    to_early, to_late = (values[1] - values[2]) / early, (values[0] - values[2]) / late
    slope = (late * to_early - early * to_late) / (late - early)
    return slope, 2 * (to_late - to_early) / (late - early), to_late


SCHEDULER = Rule(
    "DPMSolverSinglestepScheduler",
    MULTISTEP_DEFAULTS | {"lower_order_final": False, "lambda_min_clipped": float("-inf")},
    MULTISTEP_CHOICES
    | {
        "solver_order": (2, 1, 3),
        "algorithm_type": ("dpmsolver++", "sde-dpmsolver++", "dpmsolver"),
        "solver_type": SOLVERS,
        "variance_type": (None,),
        "rescale_betas_zero_snr": (False,),
    },
    _trajectory,
)
