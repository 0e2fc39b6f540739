"""Modes after `fit`, layers in lists and dictionaries, and names of layers, as in Keras."""

import candle_convert as cc
import numpy as np
import pytest
from candle_convert import keras as ours
from candle_convert.tests.oracles.real_keras import copy_weights, keras, twins

X = np.random.default_rng(0).normal(size=(32, 3)).astype(np.float32)


def test_models_are_in_inference_mode_after_fit():
    """Keras' model(x) drops nothing and leaves running statistics, before and after training."""

    def build(k):
        model = k.Sequential([k.Input((3,)), k.layers.BatchNormalization(), k.layers.Dropout(0.0), k.layers.Dense(2)])
        model.compile("sgd", "mse")
        return model

    mine, theirs = twins(build)
    outputs = []
    for model in (mine, theirs):
        model.fit(X, X[:, :2], epochs=2, shuffle=False, verbose=0)
        model(X * 3 + 1)
        outputs.append(model(X).detach().numpy())
    np.testing.assert_allclose(*outputs, rtol=1e-4, atol=1e-5)
    dropping = ours.Sequential([ours.Input((3,)), ours.layers.Dropout(0.9), ours.layers.Dense(1)])
    dropping.compile("sgd", "mse")
    dropping.fit(X, X[:, :1], verbose=0)
    np.testing.assert_allclose(dropping(X).detach().numpy(), dropping.predict(X), rtol=1e-5, atol=1e-6)


def net(k):
    class Net(k.Model):
        def __init__(self):
            super().__init__()
            self.hidden, self.heads = [], {}
            for _ in range(2):
                self.hidden.append(k.layers.Dense(4, activation="tanh"))
            self.out = k.layers.Dense(1)
            self.heads["a"] = k.layers.Dense(4, name="a")

        def call(self, x):
            for layer in self.hidden:
                x = layer(x)
            return self.out(self.heads["a"](x))

    model = Net()
    model.compile("sgd", "mse")
    return model


def test_layers_appended_to_lists_and_dictionaries():
    mine, theirs = net(ours), net(keras)
    mine.build((None, 3))
    theirs(X)
    assert mine.count_params() == theirs.count_params() == 61
    copy_weights(theirs, mine)
    losses = [model.fit(X, X[:, :1], epochs=3, shuffle=False, verbose=0).history["loss"] for model in (mine, theirs)]
    np.testing.assert_allclose(*losses, rtol=1e-4)


def test_weights_of_build_stay():
    layer = ours.layers.Dense(2)
    layer.build((None, 3))
    before = layer.get_weights()
    layer(X)
    np.testing.assert_array_equal(before[0], layer.get_weights()[0])


def test_two_layers_of_one_name():
    """Refused, as in Keras; automatic names skip those of layers that have been named."""
    for k, error in ((ours, cc.UsageError), (keras, ValueError)):
        named = [k.layers.Dense(3, name="twice"), k.layers.Dense(3, name="twice")]
        with pytest.raises(error):
            k.Sequential([k.Input((3,)), *named])
        x = k.Input((3,))
        with pytest.raises(error):
            k.Model(x, named[1](named[0](x)))
    number = int(ours.layers.Dense(3).name.partition("_")[2] or 0) + 1
    taken = ours.layers.Dense(3, name=f"dense_{number}").name
    assert ours.layers.Dense(3).name == f"dense_{number + 1}" != taken


def test_names_begin_anew():
    ours.backend.clear_session()
    names = [ours.layers.Dense(2).name, ours.layers.Dense(2).name]
    ours.utils.clear_session()
    assert [*names, ours.layers.Dense(2).name] == ["dense", "dense_1", "dense"]
