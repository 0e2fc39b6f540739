"""Decibels of a signal over its noise, also where powers leave the range of floats."""

import math

import pytest
from candle_convert.runtime.base.units import signal_to_noise

CASES = [
    (1.0, 0.0, math.inf),
    (0.0, 0.0, math.inf),
    (0.0, 1.0, -math.inf),
    (100.0, 1.0, 20.0),
    (1e-300, 1e300, -6000.0),
    (1e300, 1e-300, 6000.0),
    (5e-324, 1.7e308, -6315.37),
    (1.0, math.inf, -math.inf),
    (math.inf, 1.0, math.inf),
]


@pytest.mark.parametrize(("signal", "noise", "decibels"), CASES)
def test_signal_to_noise(signal, noise, decibels):
    assert signal_to_noise(signal, noise) == pytest.approx(decibels, abs=0.01)


def test_two_infinite_powers_cannot_be_compared():
    assert math.isnan(signal_to_noise(math.inf, math.inf))
