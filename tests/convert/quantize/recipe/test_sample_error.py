"""The error of sampled rows: what NumPy computes of them, by one encoding where matrices do not differ."""

import numpy as np
import pytest
from candle_convert.convert.quantize.recipe import sample_error
from candle_convert.runtime.tensor.dtype import DTYPES, F16
from candle_convert.runtime.tensor.stored_tensor import StoredTensor


@pytest.fixture
def encodings(monkeypatch):
    """The shapes that were encoded."""
    seen = []
    encode = sample_error._there_and_back

    def noted(rows, *arguments):
        seen.append(rows.shape)
        return encode(rows, *arguments)

    monkeypatch.setattr(sample_error, "_there_and_back", noted)
    return seen


def test_kernels_of_a_convolution_are_encoded_at_once(encodings):
    """Rows of three elements belong to as many matrices as the convolution has kernels."""
    array = np.random.default_rng(1).standard_normal((64, 16, 3, 3)).astype(np.float32)
    rows = sample_error.sample(StoredTensor.of(array))
    found = sample_error.errors(rows, F16, None)
    gap = array.astype(np.float64) - array.astype(np.float16)
    assert encodings == [(64 * 16 * 3, 3)]
    assert found.error == pytest.approx((gap**2).sum(), rel=1e-12)
    assert (found.count, found.largest) == (array.size, pytest.approx(np.abs(gap).max()))


def test_importance_is_that_of_each_matrix(encodings):
    """Experts have an importance each, which weighs the squares of their rows."""
    random = np.random.default_rng(2)
    array = random.standard_normal((3, 8, 64)).astype(np.float32)
    importance = random.random((3, 64)).astype(np.float32)
    rows = sample_error.sample(StoredTensor.of(array))
    found = sample_error.errors(rows, F16, importance, weighted=True)
    gap = array.astype(np.float64) - array.astype(np.float16)
    assert encodings == [(8, 64)] * 3
    assert found.error == pytest.approx((gap**2 * importance[:, None]).sum(), rel=1e-6)
    sample_error.errors(rows, DTYPES["q8_0"], importance)
    assert len(encodings) == 6
