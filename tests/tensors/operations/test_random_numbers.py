"""Numbers of distributions follow from uniform ones by PyTorch's formulas.

PyTorch itself draws some of them by Intel's library on Intel's processors; uniform ones are compared with it elsewhere.
"""

import candle_convert as cc
import numpy as np
import pytest


def _uniform(shape, dtype):
    cc.manual_seed(3)
    return cc.rand(shape, dtype=dtype).numpy()


def test_formulas():
    x = _uniform(30, cc.float64)
    expected = {
        "exponential_": -np.log1p(-x) / 2, "cauchy_": 1 + 2 * np.tan(np.pi * (x - 0.5)),
        "geometric_": np.ceil(np.log(x) / np.log1p(-0.3)), "bernoulli_": x < 0.4,
    }  # fmt: skip
    for name, arguments in (
        ("exponential_", (2.0,)),
        ("cauchy_", (1, 2)),
        ("geometric_", (0.3,)),
        ("bernoulli_", (0.4,)),
    ):
        cc.manual_seed(3)
        found = getattr(cc.zeros(30), name)(*arguments)
        np.testing.assert_allclose(found.numpy(), expected[name], rtol=1e-6)


def test_bernoulli_of_probabilities():
    p = np.linspace(0, 1, 20, dtype=np.float32)
    expected = _uniform(20, cc.float32) < p
    cc.manual_seed(3)
    assert cc.bernoulli(cc.tensor(p)).tolist() == expected.tolist()


def test_indices_by_weights():
    weights = cc.tensor([[0.1, 0.0, 0.7], [0.3, 0.3, 0.4]])
    keys = weights.numpy() / -np.log1p(-_uniform((2, 3), cc.float64)).astype(np.float32)
    cc.manual_seed(3)
    assert cc.multinomial(weights, 1).tolist() == keys.argmax(-1, keepdims=True).tolist()
    cc.manual_seed(3)
    assert cc.multinomial(weights, 2).tolist() == np.argsort(-keys, -1)[:, :2].tolist()
    bounds = np.cumsum(weights.numpy() / weights.numpy().sum(-1, keepdims=True), -1)
    places = _uniform((2, 5), cc.float64)
    expected = [np.searchsorted(row, place).tolist() for row, place in zip(bounds, places, strict=True)]
    cc.manual_seed(3)
    assert cc.multinomial(weights, 5, replacement=True).tolist() == expected


@pytest.mark.parametrize(
    ("weights", "count", "why"),
    [([1.0, -1.0], 1, "finite"), ([0.0, 0.0], 1, "cannot be drawn"), ([1.0, 1.0], 3, "cannot be drawn")],
)
def test_weights_that_make_no_sense(weights, count, why):
    with pytest.raises(cc.UsageError, match=why):
        cc.multinomial(cc.tensor(weights), count)


def test_integers():
    cc.manual_seed(3)
    expected = cc.randint(2, 9, (4,)).tolist()
    cc.manual_seed(3)
    assert cc.zeros(4).random_(2, 9).tolist() == expected
    cc.manual_seed(3)
    assert cc.randint(low=2, high=9, size=(4,)).tolist() == expected
    assert cc.randint_like(cc.zeros(2, 3), 5).shape == (2, 3)
    with pytest.raises(cc.UsageError, match="randint takes"):
        cc.randint(3)
