"""NaN and infinity among results are an error; masked scores are not."""

import candle_convert as cc
import numpy as np
import pytest
from candle_convert.models.postprocess.finite_results import finite

FINE = [np.ones(3, np.float32), np.array([-np.inf, 1.0]), np.array([2**31 - 1]), np.zeros(0), np.array(["a"])]


def test_finite_results_come_back():
    assert all(one is other for one, other in zip(FINE, finite(FINE), strict=True))


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_others_are_named(bad, dtype):
    array = np.array([[0.5, bad], [1.0, -2.0]], dtype)
    with pytest.raises(cc.UnsupportedError, match=f"the model computes {bad} in logits") as caught:
        finite([np.ones(2), array], ["hidden", "logits"])
    assert caught.value.exit_code == 4


def test_nothing_but_minus_infinity_and_vectors_with_it():
    with pytest.raises(cc.UnsupportedError, match="E-MODEL-NAN"):
        finite([np.full(2, -np.inf)])
    with pytest.raises(cc.UnsupportedError, match="E-MODEL-NAN"):
        finite([np.array([-np.inf, 1.0])], masked=False)
