"""Native softmax and positions of extremes against the NumPy functions: axes, dtypes, ties, NaN; threads change
nothing."""

import ml_dtypes
import numpy as np
import pytest
from candle_convert.runtime.ir.op import case
from candle_convert.tests.oracles.native_vs_numpy import natively

RNG = np.random.default_rng(5)


def floats(*shape, dtype=np.float32):
    return RNG.normal(size=shape).astype(dtype)


@pytest.mark.parametrize("name", ["Softmax", "LogSoftmax"])
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_axes(name, axis):
    for shape in ((3, 4, 5), (2, 70, 300), (90, 3, 1)):
        x = floats(*shape) * 5
        x.reshape(-1)[::11] = -np.inf
        natively(name, case(x, axis=axis), rtol=2e-5)


@pytest.mark.sampled(5)
@pytest.mark.parametrize("name", ["Softmax", "LogSoftmax"])
@pytest.mark.parametrize(("dtype", "rtol"), [(np.float64, 1e-12), (np.float16, 4e-3), (ml_dtypes.bfloat16, 3e-2)])
def test_dtypes(name, dtype, rtol):
    for axis in (0, 1):
        natively(name, case(floats(70, 80, dtype=dtype), axis=axis), rtol=rtol, atol=rtol / 10)


@pytest.mark.parametrize("axis", [0, 1])
def test_nan_spreads_over_its_own(axis):
    x = floats(40, 90)
    x[3, 5] = np.nan
    natively("Softmax", case(x, axis=axis))


@pytest.mark.sampled(13)
@pytest.mark.parametrize("name", ["ArgMax", "ArgMin"])
@pytest.mark.parametrize("last", [0, 1])
@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64, np.int32, np.float16, np.uint8])
def test_extremes(dtype, axis, last, name):
    x = (floats(3, 80, 70) * 3).astype(np.int64).astype(np.float64)
    x = (np.abs(x) if dtype is np.uint8 else x).astype(dtype)
    natively(name, case(x, axis=axis, select_last_index=last, keepdims=last), rtol=0, atol=0)


@pytest.mark.parametrize("axis", [0, 1])
def test_nan_is_the_extreme(axis):
    x = floats(70, 90)
    x[5, 7] = x[8, 7] = x[5, 30] = np.nan
    x[:, 2] = -np.inf
    for last in (0, 1):
        natively("ArgMax", case(x, axis=axis, select_last_index=last), rtol=0, atol=0)
