"""Calibration against the values themselves: what a histogram says must be what all values together would say."""

import numpy as np
import pytest
from candle_convert.convert.quantize.calibration.activation_range import (
    BINS,
    METHODS,
    Observed,
    entropy,
    mse,
    percentile,
)

SAMPLES = {
    "normal": lambda rng: rng.normal(size=20000),
    "heavy": lambda rng: rng.standard_t(2, size=20000),
    "positive": lambda rng: np.maximum(rng.normal(size=20000), 0),
    "shifted": lambda rng: rng.normal(3, 0.5, size=20000),
    "constant": lambda rng: np.full(100, 2.5),
    "zero": lambda rng: np.zeros(10),
}


def observed(values, parts=7):
    seen = Observed()
    for part in np.array_split(values.astype(np.float32), parts):
        seen.add(part)
    return seen


@pytest.mark.parametrize("sample", SAMPLES)
@pytest.mark.parametrize("method", METHODS)
def test_ranges_hold_zero_and_stay_inside_the_extremes(sample, method):
    values = SAMPLES[sample](np.random.default_rng(1)).astype(np.float32)
    low, high = METHODS[method](observed(values))
    assert min(0, values.min()) <= low <= 0 <= high <= max(0, values.max())


@pytest.mark.parametrize("sample", SAMPLES)
def test_the_histogram_counts_every_value_whatever_the_order(sample):
    values = SAMPLES[sample](np.random.default_rng(2)).astype(np.float32)
    for order in (values, np.sort(values), np.sort(values)[::-1]):
        seen = observed(order)
        assert seen.counts.sum() == values.size
        if values.any():
            expected = np.histogram(values, BINS, (-seen.reach, seen.reach))[0]
            assert np.abs(np.cumsum(expected) - np.cumsum(seen.counts)).max() <= values.size // 200


def test_nan_and_infinity_are_counted_and_left_out():
    seen = observed(np.array([1, np.nan, -2, np.inf, 3]), 1)
    assert (seen.odd, seen.low, seen.high) == (2, -2, 3)


def test_percentile_is_numpys():
    values = np.random.default_rng(3).standard_t(2, size=100_000).astype(np.float32)
    seen = observed(values)
    low, high = percentile(seen)
    bin_width = 2 * seen.reach / BINS
    assert abs(low - np.percentile(values, 0.01)) <= 2 * bin_width
    assert abs(high - np.percentile(values, 99.99)) <= 2 * bin_width


def test_mse_loses_less_than_any_other_shrinking():
    values = np.random.default_rng(4).standard_t(2, size=50_000).astype(np.float32)
    seen = observed(values)

    def loss(low, high):
        step = (high - low) / 255
        return ((values - (np.clip(np.rint((values - low) / step), 0, 255) * step + low)) ** 2).mean()

    found = loss(*mse(seen))
    assert found <= 1.1 * min(loss(seen.low * part, seen.high * part) for part in np.linspace(0.25, 1, 50))


def test_entropy_agrees_with_onnxruntimes_calibration():
    calibrate = pytest.importorskip("onnxruntime.quantization.calibrate")
    values = np.random.default_rng(5).standard_t(4, size=200_000).astype(np.float32)
    collector = calibrate.HistogramCollector("entropy", True, 4096, 128, 99.99, "same")
    collector.collect({"x": [values]})
    high = float(np.ravel(collector.compute_collection_result()["x"][1])[0])
    assert 0.6 * high <= entropy(observed(values))[1] <= 1.6 * high
