"""Linear multistep along sigmas: up to four derivatives, weighted by the integrals of their Lagrange polynomials."""

import numpy as np

from .schedule.noise_schedule import CHOICES, SPACINGS, spaced
from .schedule.sigma_schedule import SIGMA_DEFAULTS, initial_sigma, levels_at, original_at, scaled_by, sigma_schedule
from .scheduler import Array, Config, History, Rule, Trajectory

ORDER = 4


def _trajectory(options: Config, steps: int, mu: float | None) -> Trajectory:
    timesteps, sigmas = sigma_schedule(options, spaced(options, steps, whole=False))
    exact = sigmas.astype(np.float64)

    def advance(
        model_output: Array, index: int, sample: Array, noise: Array | None, history: History
    ) -> tuple[Array, History]:
        original = original_at(options, exact[index], model_output, sample)
        slopes = ((sample - original) / exact[index], *history)[:ORDER]
        nodes = exact[index + 1 - len(slopes) : index + 1][::-1]
        weights = lagrange_integrals(nodes, float(exact[index + 1]))
        return sum((w * slope for w, slope in zip(weights, slopes, strict=True)), sample), slopes

    return Trajectory(
        timesteps.astype(np.float32),
        advance,
        sigmas,
        initial_sigma(options, sigmas),
        scaled_by(sigmas),
        levels=levels_at(sigmas),
    )


def lagrange_integrals(nodes: Array, end: float) -> Array:
    """Integrals from the first node to `end` of the polynomials that are 1 at one node and 0 at the others."""
    points, weights = np.polynomial.legendre.leggauss(ORDER)
    half = (end - nodes[0]) / 2
    at = nodes[0] + half * (points + 1)
    values = [
        np.prod([(at - other) / (node - other) for j, other in enumerate(nodes) if j != i] or [np.ones(ORDER)], axis=0)
        for i, node in enumerate(nodes)
    ]
    return half * (np.array(values) @ weights)


SCHEDULER = Rule("LMSDiscreteScheduler", SIGMA_DEFAULTS, CHOICES | {"timestep_spacing": SPACINGS}, _trajectory)
