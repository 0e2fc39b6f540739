"""Signal-to-noise ratio in decibels."""

from __future__ import annotations

import math


def signal_to_noise(signal: float, noise: float) -> float:
    """``10 log10(signal / noise)`` of two powers: infinite without noise, minus infinity without a signal, NaN where
    both are infinite.

    Powers whose quotient is too large or too small for a float are compared by their logarithms.
    """
    if not noise or not signal:
        return math.inf if not noise else -math.inf
    ratio = signal / noise
    return 10 * (math.log10(ratio) if 0 < ratio < math.inf else math.log10(signal) - math.log10(noise))
