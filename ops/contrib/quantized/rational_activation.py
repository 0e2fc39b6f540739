"""Sigmoid and tanh as rational functions, rounded term for term as in onnxruntime.

States that are rounded to bytes at every time turn a last place into a whole step where a value lies between two of
them, so that the same approximations are what keeps results the same. Source: Eigen's rational approximations (odd and
even parts fitted on [-18, 18] and [-9, 9]).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

SIGMOID_REACH, TANH_REACH = 18.0, 9.0
"""Beyond these sizes both have reached their limits."""
SIGMOID_ABOVE = (
    4.37031012579801e-11,
    1.15627324459942e-07,
    6.08574864600143e-05,
    8.51377133304701e-03,
    2.48287947061529e-01,
)
SIGMOID_BELOW = (
    6.10247389755681e-13,
    5.76102136993427e-09,
    6.29106785017040e-06,
    1.70198817374094e-03,
    1.16817656904453e-01,
    9.93151921023180e-01,
)
TANH_ABOVE = (
    -2.76076847742355e-16,
    2.00018790482477e-13,
    -8.60467152213735e-11,
    5.12229709037114e-08,
    1.48572235717979e-05,
    6.37261928875436e-04,
    4.89352455891786e-03,
)
TANH_BELOW = (1.19825839466702e-06, 1.18534705686654e-04, 2.26843463243900e-03, 4.89352518554385e-03)
"""Coefficients of powers of the square, the highest first; those above the line are multiplied by the value itself."""


def _polynomial(square: np.ndarray, coefficients: Sequence[float]) -> np.ndarray:
    """Each product and sum rounded once: f64 holds products of two f32 exactly."""
    total = np.full_like(square, np.float32(coefficients[0]))
    for coefficient in coefficients[1:]:
        total = (total.astype(np.float64) * square + np.float64(np.float32(coefficient))).astype(np.float32)
    return total


def _quotient(x: np.ndarray, reach: float, above: Sequence[float], below: Sequence[float]) -> np.ndarray:
    bounded = np.clip(x, np.float32(-reach), np.float32(reach))
    square = bounded * bounded
    made: np.ndarray = bounded * _polynomial(square, above) / _polynomial(square, below)
    return made


def rational_sigmoid(x: np.ndarray) -> np.ndarray:
    """1 / (1 + e to the power -x) of f32, within 2e-7."""
    return np.maximum(_quotient(x, SIGMOID_REACH, SIGMOID_ABOVE, SIGMOID_BELOW) + np.float32(0.5), np.float32(0))


def rational_tanh(x: np.ndarray) -> np.ndarray:
    """Hyperbolic tangent of f32, within 4e-7."""
    return _quotient(x, TANH_REACH, TANH_ABOVE, TANH_BELOW)
