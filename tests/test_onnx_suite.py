"""The ONNX standard's own test suite through the public backend, compared strictly: same lengths, shapes and dtypes,
sequences included.

The six Bernoulli tests compare with one draw of NumPy's generator and are left out: no other implementation can agree
with them.
"""

import numpy as np
import onnx
import pytest
from candle_convert.onnx_backend import Backend
from candle_convert.tests.oracles.onnx_suite import CASES, RANDOM, loaded
from onnx.backend.test.runner import Runner

COUNT = 2033


RUN = [case for case in CASES if not RANDOM.match(case.name)]


def test_the_suite_is_whole():
    assert len(CASES) == COUNT or onnx.__version__ != "1.23.2"
    assert len(CASES) - len(RUN) == 6


def compare(expected, got, case):
    if isinstance(expected, list | tuple):
        assert isinstance(got, list | tuple), "a sequence was expected"
        assert len(got) == len(expected)
        for one, other in zip(expected, got, strict=True):
            compare(one, other, case)
    elif expected is None:
        assert got is None
    else:
        assert isinstance(got, np.ndarray)
        assert got.shape == np.shape(expected)
        Runner.assert_similar_outputs([expected], [got], rtol=case.rtol, atol=case.atol, model_dir=case.name)


@pytest.mark.parametrize("case", RUN, ids=[f"{case.kind}/{case.name.removeprefix('test_')}" for case in RUN])
def test_case(case):
    model, sets = loaded(case)
    prepared = Backend.prepare(model)
    assert sets
    for inputs, outputs in sets:
        compare(list(outputs), list(prepared.run(inputs)), case)
