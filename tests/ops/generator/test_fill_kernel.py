"""Native Pad, OneHot, Trilu, ConstantOfShape, CumSum and TopK against the NumPy functions; threads change nothing."""

import ml_dtypes
import numpy as np
import pytest
from candle_convert.runtime.ir.op import case
from candle_convert.tests.oracles.native_vs_numpy import natively

RNG = np.random.default_rng(31)
EXACT = {"rtol": 0, "atol": 0}


def values(*shape, dtype=np.float32):
    return RNG.integers(0, 100, shape).astype(dtype)


@pytest.mark.parametrize("mode", ["constant", "edge", "reflect", "wrap"])
@pytest.mark.parametrize("dtype", [np.float32, np.uint8, np.float16, np.int64])
def test_pads(mode, dtype):
    x = values(3, 4, 9, 20, dtype=dtype)
    for pads in (
        (0, 0, 2, 3, 0, 0, 1, 5),
        (1, 0, 0, 2, 0, 1, 3, 0),
        (0, 0, -2, 1, 0, 0, 3, -4),
        (0, 0, 1, 0, 0, 0, 1, 0),
    ):
        natively("Pad", case(x, np.array(pads), np.array(7, dtype), mode=mode), constant=(1,), **EXACT)
    natively("Pad", case(x, np.array([2, 1, 1, 0]), None, np.array([-2, 1]), mode=mode), constant=(1, 3), **EXACT)


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("dtype", [np.int64, np.int32])
def test_one_hot(axis, dtype):
    where = RNG.integers(-30, 30, (5, 40)).astype(dtype)
    for kind in (np.float32, np.int64, np.bool_):
        natively("OneHot", case(where, np.array(17), np.array([0, 1]).astype(kind), axis=axis), constant=(1,), **EXACT)


@pytest.mark.parametrize("upper", [0, 1])
def test_triangles(upper):
    for dtype in (np.float32, np.int64, np.bool_):
        for diagonal in (-3, 0, 2, 50):
            natively(
                "Trilu", case(values(2, 30, 21, dtype=dtype), np.array(diagonal), upper=upper), constant=(1,), **EXACT
            )
        natively("Trilu", case(values(8, 9, dtype=dtype), upper=upper), **EXACT)


@pytest.mark.sampled(9)
@pytest.mark.parametrize("name", ["CumSum", "CumProd"])
@pytest.mark.parametrize("exclusive", [0, 1])
@pytest.mark.parametrize("reverse", [0, 1])
@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(np.float32, 1e-5), (np.float64, 1e-12), (np.int64, 0), (np.int32, 0)]
)
def test_accumulated(dtype, tolerance, axis, reverse, exclusive, name):
    x = (RNG.normal(size=(3, 20, 30)) + 1.2).astype(dtype)
    made = case(x, np.array(axis), exclusive=exclusive, reverse=reverse)
    natively(name, made, 26, constant=(1,), rtol=tolerance, atol=tolerance)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("largest", [0, 1])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64, np.int32, np.float16, ml_dtypes.bfloat16])
def test_the_first(dtype, largest):
    x = values(4, 90, 7, dtype=dtype)
    for axis in (0, 1, 2):
        for k in (1, 3, x.shape[axis]):
            natively("TopK", case(x, np.array([k]), axis=axis, largest=largest, outputs=2), constant=(1,), **EXACT)


@pytest.mark.parametrize("largest", [0, 1])
def test_nan_among_the_first(largest):
    x = RNG.normal(size=(6, 50)).astype(np.float32)
    x[1, 3], x[1, 20], x[2], x[3, ::2], x[4, 5] = np.nan, np.nan, np.nan, -np.inf, np.inf
    natively("TopK", case(x, np.array([4]), largest=largest, outputs=2), constant=(1,), **EXACT)
    natively("TopK", case(x, np.array([40]), largest=largest, outputs=2), constant=(1,), **EXACT)
