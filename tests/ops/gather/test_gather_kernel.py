"""Native gathering and scattering against the NumPy functions: axes, widths, indices that are known or not, and those
that are outside."""

import candle_convert as cc
import ml_dtypes
import numpy as np
import pytest
from candle_convert.formats.containers.onnx.reader import graph_of
from candle_convert.runtime.ir.op import case
from candle_convert.runtime.ir.registry import operator
from candle_convert.runtime.session import Session
from candle_convert.tests.builders.single_node import model
from candle_convert.tests.oracles.native_vs_numpy import natively

RNG = np.random.default_rng(29)
EXACT = {"rtol": 0, "atol": 0}


def values(*shape, dtype=np.float32):
    return RNG.integers(0, 100, shape).astype(dtype)


def indices(length, *shape, dtype=np.int64):
    return RNG.integers(-length, length, shape).astype(dtype)


@pytest.mark.parametrize("dtype", [np.float32, np.int64, np.float16, ml_dtypes.bfloat16, np.bool_])
def test_entries(dtype):
    x = values(9, 8, 70, dtype=dtype)
    for axis, length in enumerate(x.shape):
        natively("Gather", case(x, indices(length, 5, 11), axis=axis), **EXACT)
        natively("Gather", case(x, indices(length, 7, dtype=np.int32), axis=axis), **EXACT)


def test_entries_that_are_known():
    x = values(9, 8, 70)
    for axis in (1, 2):
        natively("Gather", case(x, np.array([2, 3, 4]), axis=axis), constant=(1,), **EXACT)
        natively("Gather", case(x, np.array(-1), axis=axis), constant=(1,), **EXACT)
        natively("Gather", case(x, np.array([[5, 1], [0, -2]]), axis=axis), constant=(1,), **EXACT)


@pytest.mark.parametrize("dtype", [np.float32, np.uint8])
def test_elements(dtype):
    x = values(6, 7, 40, dtype=dtype)
    for axis, length in enumerate(x.shape):
        shape = [3, 4, 20]
        shape[axis] = 11
        where = indices(length, *shape)
        natively("GatherElements", case(x, where, axis=axis), **EXACT)
        shape[axis] = 5
        unique = np.broadcast_to(
            RNG.permutation(length)[:5].reshape([-1 if at == axis else 1 for at in range(3)]), shape
        )
        natively("ScatterElements", case(x, unique.astype(np.int64), values(*shape, dtype=dtype), axis=axis), **EXACT)


def test_tuples():
    x = values(6, 7, 40)
    natively("GatherND", case(x, indices(6, 3, 5, 2)), **EXACT)
    natively("GatherND", case(x, indices(6, 5, 1)), **EXACT)
    natively("GatherND", case(x, indices(7, 6, 4, 1), batch_dims=1), **EXACT)
    natively("GatherND", case(x, indices(40, 6, 7, 1), batch_dims=2), **EXACT)
    natively("ScatterND", case(x, np.array([[1, 2], [-1, 0]]), values(2, 40)), **EXACT)
    natively("ScatterND", case(x, np.array([[1], [1]]), values(2, 7, 40)), **EXACT)


def test_of_several_the_last_one_stays():
    where = np.zeros((50, 30), np.int64)
    natively("ScatterElements", case(values(50, 30), where, values(50, 30), axis=1), **EXACT)


OUTSIDE = [
    ("Gather", case(values(4, 3), np.array([0, 4]))),
    ("Gather", case(values(4, 3), np.array([-4, 1]), axis=1)),
    ("GatherElements", case(values(4, 3), np.array([[0, 4, 1]]))),
    ("GatherND", case(values(4, 3), np.array([[0, 3]]))),
    ("ScatterElements", case(values(4, 3), np.array([[9, 0, 0]]), values(1, 3))),
    ("ScatterND", case(values(4, 3), np.array([[-5]]), values(1, 3))),
]


@pytest.mark.parametrize(("name", "example"), OUTSIDE)
def test_indices_outside_are_refused(name, example):
    made, feeds = model(operator(name), example)
    with pytest.raises(cc.UsageError) as caught:
        Session(graph_of(made), native=True).run(None, feeds)
    assert caught.value.code == "E-OP-INDEX"
