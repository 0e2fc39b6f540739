"""Losses, metrics and weights of each output, by names and positions, against Keras."""

import candle_convert as cc
import numpy as np
import pytest
from candle_convert import keras as ours
from candle_convert.tests.oracles.real_keras import twins

RNG = np.random.default_rng(0)
X = RNG.normal(size=(24, 3)).astype(np.float32)
Y = X[:, :1] * 2
WEIGHTS = RNG.uniform(0.5, 2, 24).astype(np.float32)


def single(k):
    inputs = k.Input((3,))
    return k.Model(inputs, k.layers.Dense(1, name="main")(inputs))


def double(k):
    inputs = k.Input((3,))
    return k.Model(inputs, [k.layers.Dense(1, name=name)(inputs) for name in ("first", "second")])


def histories(build, y, settings, **options):
    found = []
    for model in twins(build):
        model.compile("sgd", **settings)
        found.append(model.fit(X, y, epochs=2, batch_size=8, shuffle=False, verbose=0, **options).history)
    mine, theirs = found
    assert {*mine} == {*theirs}
    for name, values in theirs.items():
        np.testing.assert_allclose(mine[name], values, rtol=1e-4, err_msg=name)


@pytest.mark.parametrize(
    "settings",
    [
        {"loss": {"main": "mse"}, "metrics": {"main": ["mae"]}},
        {"loss": ["mse"], "metrics": [["mae"]]},
        {"loss": "mse", "metrics": ["mae"], "loss_weights": [0.5]},
    ],
)
def test_one_output(settings):
    histories(single, Y, settings)


@pytest.mark.parametrize(
    "settings",
    [
        {"loss": ["mse", "mae"], "loss_weights": [2.0, 0.25], "metrics": [["mae"], ["mse"]]},
        {"loss": {"first": "mse", "second": "mae"}, "loss_weights": {"first": 3.0, "second": 0.5}},
    ],
)
@pytest.mark.parametrize("weights", [None, WEIGHTS, [WEIGHTS, WEIGHTS[::-1].copy()]], ids=["none", "one", "two"])
def test_two_outputs(settings, weights):
    """The losses of outputs are recorded without their shares in the loss."""
    histories(double, [Y, Y + 1], settings, sample_weight=weights)


@pytest.mark.parametrize(
    ("settings", "y", "options", "why"),
    [
        ({"loss": {"main": "mse"}}, [Y, Y], {}, "names the output 'main'"),
        ({"loss": ["mse"]}, [Y, Y], {}, "a list of 1 item for 2 outputs"),
        ({"loss": "mse", "metrics": ["mae"]}, [Y, Y], {}, "metrics is a list of 1 item"),
        ({"loss": "mse"}, {"first": Y}, {}, "targets of the output 'second' are missing"),
        ({"loss": "mse"}, [Y, Y], {"class_weight": {0: 1.0}}, "class_weight is given for 2 outputs"),
    ],
)
def test_what_does_not_fit(settings, y, options, why):
    model = double(ours)
    model.compile("sgd", **settings)
    with pytest.raises(cc.UsageError, match=why):
        model.fit(X, y, verbose=0, **options)
