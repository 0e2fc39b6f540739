"""Constraints of weights against Keras on torch."""

import numpy as np
import pytest
from candle_convert import keras as ours
from candle_convert.tests.oracles.real_keras import keras, same_losses, twins

RNG = np.random.default_rng(0)
WEIGHT = RNG.normal(size=(3, 4, 5)).astype(np.float32)
CONSTRAINTS = {
    "MaxNorm": lambda k: k.MaxNorm(1.5, axis=[0, 1]),
    "MinMaxNorm": lambda k: k.MinMaxNorm(0.5, 1.2, rate=0.7, axis=1),
    "UnitNorm": lambda k: k.UnitNorm(axis=2),
    "NonNeg": lambda k: k.NonNeg(),
    "get": lambda k: k.get("max_norm"),
    "description": lambda k: k.get({"class_name": "MaxNorm", "config": {"max_value": 0.5, "axis": 0}}),
}


@pytest.mark.parametrize("name", CONSTRAINTS)
def test_weights_that_fit(name):
    mine, theirs = CONSTRAINTS[name](ours.constraints), CONSTRAINTS[name](keras.constraints)
    np.testing.assert_allclose(mine(WEIGHT).numpy(), theirs(WEIGHT).numpy(), rtol=1e-5, atol=1e-6)
    assert mine.get_config() == theirs.get_config()


def test_losses_with_constraints():
    """Of each kind of layer, by a name, an object and a function."""

    def build(k):
        layers = k.layers
        model = k.Sequential([
            k.Input((6,), dtype="int32"),
            layers.Embedding(9, 4, embeddings_constraint=k.constraints.UnitNorm(axis=1)),
            layers.Conv1D(5, 3, kernel_constraint="max_norm", bias_constraint=k.constraints.NonNeg()),
            layers.SeparableConv1D(5, 2, pointwise_constraint="unit_norm", depthwise_constraint="non_neg"),
            layers.LayerNormalization(gamma_constraint=k.constraints.MinMaxNorm(0.2, 0.9, axis=0)),
            layers.LSTM(4, recurrent_constraint=k.constraints.MaxNorm(0.3), kernel_constraint="non_neg",
                        bias_constraint=lambda w: w * 0.5, return_sequences=True),
            layers.GRU(4, recurrent_constraint="unit_norm"),
            layers.Dense(1, kernel_constraint="NonNeg"),
        ])  # fmt: skip
        model.compile(k.optimizers.Adam(0.05), "mse")
        return model

    mine, theirs = twins(build)
    x, y = RNG.integers(0, 9, (24, 6)).astype(np.int32), RNG.normal(size=(24, 1)).astype(np.float32)
    same_losses(mine, theirs, x, y, rtol=2e-4)
    assert mine.layers[-1].get_weights()[0].min() >= 0
    mine.fit(x, y, epochs=2, verbose=0)
    assert mine.layers[-1].get_weights()[0].min() >= 0
    np.testing.assert_allclose(np.linalg.norm(mine.layers[0].get_weights()[0], axis=1), 1, rtol=1e-4)


def test_weights_of_ones_own():
    def build(k):
        class Scale(k.layers.Layer):
            def build(self, input_shape):
                self.factor = self.add_weight(shape=(input_shape[-1],), initializer="ones", constraint="non_neg")

            def call(self, inputs):
                return inputs * self.factor

        model = k.Sequential([k.Input((3,)), Scale(), k.layers.Dense(1)])
        model.compile(k.optimizers.SGD(0.05), "mse")
        return model

    mine, theirs = twins(build)
    x, y = RNG.normal(size=(16, 3)).astype(np.float32), RNG.normal(size=(16, 1)).astype(np.float32) * 3
    same_losses(mine, theirs, x, y)
    np.testing.assert_allclose(mine.get_weights()[0], theirs.get_weights()[0], atol=1e-5)


def test_in_files(tmp_path):
    layers = ours.layers
    model = ours.Sequential([ours.Input((3,)), layers.Dense(2, kernel_constraint=ours.constraints.MaxNorm(1.5))])
    model.save(tmp_path / "m.keras")
    for k in (keras, ours):
        found = k.models.load_model(tmp_path / "m.keras").layers[-1]
        limit = found.get_config()["kernel_constraint"]
        assert (limit["config"] if isinstance(limit, dict) else limit.get_config())["max_value"] == 1.5
