"""Means, deviations and mean squares of rows, which the normalizations share."""

from __future__ import annotations

import math

from ...runtime.plan.rows import Fold, add, element, square
from ..reduce.reduce import mean_of


def _deviation(x: float, mean: float) -> float:
    return (x - mean) * (x - mean)


def inverse_root(total: float, count: int, epsilon: float) -> float:
    """The reciprocal root of a mean."""
    return 1 / math.sqrt(total / count + epsilon)


def _inverse_above(total: float, count: int) -> float:
    return 1 / (math.sqrt(total / count) + 1e-9)


def shifted(x: float, mean: float, inverse: float, scale: float, bias: float) -> float:
    """An element, normalized, scaled and shifted."""
    return (x - mean) * inverse * scale + bias


def scaled(x: float, mean: float, inverse: float, scale: float) -> float:
    """An element, normalized and scaled."""
    return (x - mean) * inverse * scale


def normal(x: float, mean: float, inverse: float) -> float:
    """An element, normalized."""
    return (x - mean) * inverse


def rooted(x: float, inverse: float, scale: float) -> float:
    """An element over the root of the mean square, scaled."""
    return x * inverse * scale


def the_mean(mean: float) -> float:
    """The mean of a row."""
    return mean


def the_inverse(inverse: float) -> float:
    """The reciprocal deviation of a row."""
    return inverse


MEAN = Fold("mean", element, add, mean_of)
MOMENTS = (MEAN, Fold("inverse", _deviation, add, inverse_root))
"""The mean, and the reciprocal of the deviation; `epsilon` is given."""
MOMENTS_ABOVE = (MEAN, Fold("inverse", _deviation, add, _inverse_above))
"""The same with a small number added to the deviation."""
VARIANCE = (MEAN, Fold("variance", _deviation, add, mean_of))
ROOT = (Fold("inverse", square, add, inverse_root),)
"""The reciprocal of the root mean square; `epsilon` is given."""
