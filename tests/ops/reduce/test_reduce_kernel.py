"""Native reductions against the NumPy functions: every operator, dtype and pattern of axes; threads change nothing."""

import numpy as np
import pytest
from candle_convert.ops.reduce import reduce
from candle_convert.runtime.ir.op import Op, case
from candle_convert.tests.oracles.native_vs_numpy import natively

NAMES = sorted(item.name for item in vars(reduce).values() if isinstance(item, Op))
AXES = [(0,), (1,), (3,), (0, 2), (1, 3), (2, 3), (0, 1, 2), (0, 1, 2, 3)]


def values(dtype, shape, name=""):
    rng = np.random.default_rng(3)
    if np.dtype(dtype).kind in "iu":
        return rng.integers(-3 if dtype().dtype.kind == "i" else 0, 4, shape).astype(dtype)
    x = rng.normal(size=shape)
    return (1 + 0.2 * x if name == "ReduceProd" else np.abs(x) if "Log" in name else x).astype(dtype)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", NAMES)
def test_patterns_of_axes(name):
    for axes in AXES:
        x = values(np.float32, (3, 5, 4, 67), name)
        natively(name, case(x, np.array(axes), keepdims=int(len(axes) != 2)), constant=(1,), rtol=2e-5)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("dtype", [np.float64, np.int64, np.int32])
@pytest.mark.parametrize("name", ["ReduceSum", "ReduceMean", "ReduceMax", "ReduceL2", "ReduceProd"])
def test_dtypes(name, dtype):
    for axes in ((1,), (2,), (0, 2)):
        natively(name, case(values(dtype, (3, 70, 9), name), np.array(axes)), constant=(1,))


@pytest.mark.parametrize("dtype", [np.float16])
def test_narrow_floats_are_rounded_once(dtype):
    for axes in ((1,), (2,)):
        natively("ReduceMean", case(values(dtype, (3, 70, 130)), np.array(axes)), constant=(1,), rtol=1e-3)


def test_extremes_of_bytes_and_truth_values():
    x = values(np.uint8, (4, 300, 3))
    for axes in ((1,), (2,)):
        natively("ReduceMax", case(x, np.array(axes)), constant=(1,))
        natively("ReduceMin", case(x > 2, np.array(axes)), constant=(1,))


@pytest.mark.parametrize("name", ["ReduceMax", "ReduceMin", "ReduceSum", "ReduceLogSumExp"])
@pytest.mark.parametrize("axis", [0, 1])
def test_nan_and_infinities_stay(name, axis):
    x = values(np.float32, (140, 140))
    x[3, 5], x[7, 100], x[100, 7], x[130] = np.nan, np.inf, -np.inf, -np.inf
    natively(name, case(x, np.array([axis])), constant=(1,), rtol=2e-5)


def test_long_sums_keep_their_precision():
    x = np.abs(values(np.float32, (2, 300_000)))
    (found,) = natively("ReduceMean", case(x, np.array([1])), constant=(1,), rtol=1e-4)
    np.testing.assert_allclose(found, x.astype(np.float64).mean(1, keepdims=True), rtol=3e-7)
    (found,) = natively("ReduceMean", case(np.ascontiguousarray(x.T), np.array([0])), constant=(1,), rtol=1e-4)
    np.testing.assert_allclose(found, x.astype(np.float64).mean(1)[None], rtol=3e-7)


def test_axes_that_are_not_there():
    natively("ReduceSum", case("f32[4,5]"))
    natively("ReduceMean", case("f32[4,5]", noop_with_empty_axes=1))
