"""Native movement of elements against the NumPy functions: every dtype's width, views, transposed and repeated axes;
threads change nothing."""

import itertools

import ml_dtypes
import numpy as np
import pytest
from candle_convert.runtime.ir.op import case
from candle_convert.tests.oracles.native_vs_numpy import natively

RNG = np.random.default_rng(23)
EXACT = {"rtol": 0, "atol": 0}


def values(*shape, dtype=np.float32):
    return RNG.integers(0, 100, shape).astype(dtype)


@pytest.mark.parametrize("dtype", [np.float32, np.uint8, np.float16, ml_dtypes.bfloat16, np.int64, np.bool_])
def test_transposed(dtype):
    orders = (
        ((70, 90), (1, 0)),
        ((3, 40, 50), (0, 2, 1)),
        ((2, 19, 5, 33), (0, 2, 3, 1)),
        ((4, 3, 2, 9), (3, 1, 0, 2)),
        ((17, 1, 16), (2, 1, 0)),
    )
    for shape, perm in orders:
        natively("Transpose", case(values(*shape, dtype=dtype), perm=perm), **EXACT)


def test_repeated():
    for shape, wanted in (((3, 1), (2, 1, 40)), ((1, 30, 1, 5), (4, 30, 6, 5)), ((7,), (9, 7))):
        natively("Expand", case(values(*shape), np.array(wanted)), constant=(1,), **EXACT)
    for shape, repeats in (((3, 20), (2, 3)), ((2, 3, 4), (1, 5, 1)), ((5,), (7,))):
        natively("Tile", case(values(*shape), np.array(repeats)), constant=(1,), **EXACT)


def test_parts():
    for axis in (1, 2):
        natively("Split", case(values(6, 9, 12), axis=axis, num_outputs=3, outputs=3), **EXACT)
    natively("Split", case(values(2, 12), np.array([5, 7]), axis=-1, outputs=2), constant=(1,), **EXACT)
    natively("Concat", case(values(2, 0, 4), values(2, 3, 4), values(2, 1, 4), axis=1), **EXACT)


def test_pads_of_long_rows():
    pads = np.array([0, 2, 0, 0, 1, 0])
    natively("Pad", case(values(2, 3, 9000), pads), constant=(1,), **EXACT)
    natively("Pad", case(values(1, 3, 9000), pads, mode="edge"), constant=(1,), **EXACT)


@pytest.mark.parametrize("mode", ["constant", "edge"])
def test_pads_around_axes_of_length_one(mode):
    for shape in itertools.product((1, 2), repeat=3):
        for pads in list(itertools.product(((0, 0), (1, 0), (1, 2)), repeat=3))[1:]:
            x = values(*shape) + 1
            (found,) = natively("Pad", case(x, np.transpose(pads).ravel(), mode=mode), constant=(1,), **EXACT)
            np.testing.assert_array_equal(found, np.pad(x, pads, mode))


@pytest.mark.parametrize("mode", ["DCR", "CRD"])
def test_blocks(mode):
    natively("DepthToSpace", case(values(2, 36, 7, 5), blocksize=3, mode=mode), **EXACT)
    natively("SpaceToDepth", case(values(2, 4, 14, 22), blocksize=2, mode=mode), **EXACT)
