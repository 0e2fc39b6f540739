"""Updates of DPM-Solver (Lu et al. 2022, arXiv:2206.00927) and DPM-Solver++ (arXiv:2211.01095), which integrate the
predicted noise or the predicted sample over half the log signal-to-noise, without and with noise of their own (SDE)."""

from __future__ import annotations

from typing import Any

import numpy as np

from ....runtime.base.dataclass import dataclass
from .multistep import scales
from .noise_schedule import denoised, thresholded
from .option_kinds import Array, Config

ALGORITHMS = ("dpmsolver++", "sde-dpmsolver++", "dpmsolver", "sde-dpmsolver")
SOLVERS = ("midpoint", "heun")


@dataclass(frozen=True)
class Update:
    """Factors of a step's terms.

    Attributes:
        sample, value, noise: of the sample, of the prediction, and of the step's own noise.
        midpoint, heun: of the prediction's derivative, times the step's length, by `solver_type`.
        curvature: of its second derivative, times the square of the length.
    """

    sample: float
    value: float
    midpoint: float
    heun: float
    curvature: float
    noise: float

    def slope(self, solver_type: str) -> float:
        """The factor of the derivative."""
        return self.midpoint if solver_type == "midpoint" else self.heun


class Solver:
    """The updates of one algorithm between the noise levels of a run.

    Args:
        options: with `algorithm_type`, `prediction_type` and those of thresholding.
        sigmas: noise levels, (steps + 1,).
    """

    def __init__(self, options: Config, sigmas: Array) -> None:
        self.options = options
        self.alphas, self.noises, self.halves = scales(sigmas)
        self.predicts_samples = options["algorithm_type"].endswith("++")
        self.noisy = options["algorithm_type"].startswith("sde-")

    def converted(self, model_output: Array, index: int, sample: Array) -> Array:
        """The quantity that the algorithm integrates: the predicted sample or the predicted noise, after
        thresholding."""
        alpha, sigma = self.alphas[index], self.noises[index]
        original = denoised(self.options, alpha, sigma, model_output, sample)
        if self.options["thresholding"]:
            original = thresholded(self.options, original)
        return original if self.predicts_samples else (sample - alpha * original) / sigma

    def update(self, start: int, end: int) -> Update:
        """The factors of the step from one index to another."""
        length = self.halves[end] - self.halves[start]
        if self.predicts_samples:
            factor = self.alphas[end]
            sample, grown = self.noises[end] / self.noises[start], -length
        else:
            factor = -self.noises[end]
            sample, grown = self.alphas[end] / self.alphas[start], length
        if self.noisy:
            return self._noisy_update(sample, factor, length, end)
        first = np.expm1(grown)
        sign = -1 if self.predicts_samples else 1
        return Update(
            sample,
            sign * factor * first,
            sign * factor * first / 2,
            factor * (first / length + (1 if self.predicts_samples else -1)),
            sign * factor * ((first - grown) / length**2 - 0.5),
            0.0,
        )

    def _noisy_update(self, sample: float, factor: float, length: float, end: int) -> Update:
        level = self.noises[end]
        if not self.predicts_samples:
            first = np.expm1(length)
            return Update(
                sample,
                2 * factor * first,
                factor * first,
                2 * factor * (first / length - 1),
                np.nan,
                level * np.sqrt(np.expm1(2 * length)),
            )
        gone = -np.expm1(-2 * length)
        return Update(
            sample * np.exp(-length),
            factor * gone,
            factor * gone / 2,
            factor * (gone / (-2 * length) + 1),
            factor * ((gone - 2 * length) / (2 * length) ** 2 - 0.5),
            level * np.sqrt(gone),
        )


def with_noise(following: Array, factor: float, noise: Array | None) -> Array:
    """A sample with noise added, where there is any."""
    return following + factor * noise if noise is not None and factor else following


def summed(*terms: tuple[float, Array]) -> Array:
    """The sum of factors times arrays."""
    total: Any = 0.0
    for factor, array in terms:
        total = total + factor * array
    result: Array = total
    return result
