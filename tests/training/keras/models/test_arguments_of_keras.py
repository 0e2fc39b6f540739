"""Arguments of Keras' methods that are used or refused, and data of other kinds than arrays."""

import subprocess
import sys

import candle_convert as cc
import numpy as np
import pytest
import torch
from candle_convert import keras as ours
from candle_convert.tests.oracles.real_keras import copy_weights, keras, twins

X = np.random.default_rng(0).normal(size=(24, 3)).astype(np.float32)
Y = X[:, :1] * 2


def line(k):
    model = k.Sequential([k.Input((3,)), k.layers.Dense(1)])
    model.compile("sgd", "mse")
    return model


def batches():
    """Pairs without end."""
    while True:
        yield X[:8], Y[:8]


def own_step(name):
    model = type("Own", (ours.Model,), {name: lambda self, *given: None, "call": lambda self, x: x})()
    model.compile("sgd", "mse")


@pytest.mark.parametrize(
    ("call", "error", "why"),
    [
        (lambda: line(ours).compile("sgd", "mse", metric=["mae"]), TypeError, "metric"),
        (lambda: line(ours).compile("sgd", "mse", weighted_metrics=["mae"]), cc.UsageError, "weighted_metrics"),
        (lambda: line(ours).predict(X, callbacks=[print]), cc.UsageError, "callbacks"),
        (lambda: line(ours).predict(X, step=1), TypeError, "step"),
        (lambda: line(ours).evaluate(X, Y, step=1), TypeError, "step"),
        (lambda: line(ours).load_weights("a.weights.h5", skip_mismatch=True), cc.UsageError, "skip_mismatch"),
        (lambda: line(ours).summary(expand_nested=True), cc.UsageError, "expand_nested"),
        (lambda: ours.layers.Layer().add_weight((2,), constraint="non_neg_"), cc.UsageError, "no constraint"),
        (lambda: ours.layers.LSTM(4, stateful=True), cc.UsageError, "stateful"),
        (lambda: ours.layers.Flatten(kernel_constraint="non_neg"), cc.UsageError, "kernel_constraint"),
        (lambda: ours.layers.RNN(ours.layers.Dense(3)), cc.UsageError, "state_size"),
        (lambda: ours.layers.Layer().add_loss(1.0), cc.UsageError, "add_loss"),
        (lambda: ours.layers.LSTM(4, time_major=True), cc.UsageError, "time_major"),
        (lambda: ours.layers.ZeroPadding1D(data_format="channels_first"), cc.UsageError, "data_format"),
        (lambda: ours.layers.ZeroPadding2D(data_format="channels_first"), cc.UsageError, "data_format"),
        (lambda: ours.layers.Cropping2D(data_format="channels_first"), cc.UsageError, "data_format"),
        *((lambda name=name: own_step(name), cc.UsageError, name) for name in
          ("train_step", "test_step", "compute_loss", "compute_metrics")),
        *((lambda option=option: line(ours).fit(batches(), steps_per_epoch=1, verbose=0, **option), cc.UsageError,
           next(iter(option))) for option in
          ({"y": Y}, {"sample_weight": X[:, 0]}, {"class_weight": {0: 1.0}}, {"validation_split": 0.5})),
        (lambda: line(ours).evaluate(batches(), Y, steps=1), cc.UsageError, "y is given"),
    ],
)  # fmt: skip
def test_refused(call, error, why):
    with pytest.raises(error, match=why):
        call()


def test_files_that_exist_stay(tmp_path):
    for name in ("model.keras", "model.weights.h5"):
        path = tmp_path / name
        path.write_text("mine")
        save = line(ours).save if name == "model.keras" else line(ours).save_weights
        with pytest.raises(cc.UnsafeFileError, match="already exists"):
            save(path, overwrite=False)
        assert path.read_text() == "mine"


def test_summary_as_text():
    found = []
    line(ours).summary(print_fn=found.append)
    assert "Total params: 4" in "".join(found)


def test_predictions_of_generators():
    mine, theirs = twins(line)
    outputs = [model.predict(batches(), steps=2, verbose=0) for model in (mine, theirs)]
    assert outputs[0].shape == (16, 1)
    np.testing.assert_allclose(*outputs, rtol=1e-5)


def test_no_batch_of_a_generator_is_lost():
    model = ours.Sequential([ours.layers.Dense(1)])
    model.compile("sgd", "mse")
    assert model.predict((X[each : each + 8], Y[:8]) for each in (0, 8, 16)).shape == (24, 1)


def test_loaders_of_torch_build_models():
    """The losses of a model whose weights the first batch makes."""
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.tensor(X), torch.tensor(Y)), 8)

    def build(k):
        model = k.Sequential([k.layers.Dense(1, kernel_initializer="ones")])
        model.compile("sgd", "mse")
        return model.fit(loader, epochs=2, verbose=0).history["loss"]

    np.testing.assert_allclose(build(ours), build(keras), rtol=1e-4)


def test_tables_are_arrays():
    class Table:
        def __init__(self, values):
            self.values = values

        def to_numpy(self):
            return self.values

    model = line(ours)
    assert len(model.fit(Table(X), Table(Y), validation_split=0.5, verbose=0).history["val_loss"]) == 1


@pytest.mark.parametrize(
    "program",
    [
        "keras.losses.MeanSquaredError()(np.ones((2, 2), 'f'), np.zeros((2, 2), 'f'))",
        "keras.metrics.MeanAbsoluteError()(np.ones((2, 2), 'f'), np.zeros((2, 2), 'f'))",
        "keras.initializers.GlorotUniform()((2, 2)) * 2",
        "keras.regularizers.L2()(cc.tensor([1.0]))",
    ],
)
def test_first_use_in_a_process(program):
    text = f"import numpy as np, candle_convert as cc; from candle_convert import keras; {program}"
    subprocess.run([sys.executable, "-c", text], check=True, timeout=120)


def test_calls_by_keywords():
    def build(k):
        inputs = k.Input((4, 3))
        return k.Model(inputs, k.layers.MultiHeadAttention(2, 4)(query=inputs, value=inputs, key=inputs))

    mine, theirs = twins(build)
    x = X.reshape(6, 4, 3)
    np.testing.assert_allclose(mine.predict(x), theirs.predict(x, verbose=0), rtol=1e-4, atol=1e-5)
    layer, other = ours.layers.Dense(2), keras.layers.Dense(2)
    other(inputs=X)
    layer(inputs=X)
    copy_weights(other, layer)
    np.testing.assert_allclose(layer(inputs=X).detach().numpy(), other(inputs=X).detach().numpy(), rtol=1e-4, atol=1e-6)


def test_missing_last_dim():
    """Vectors for rows of one number, and images without channels, as Keras takes them."""
    mine, theirs = twins(lambda k: k.Sequential([k.layers.Dense(1, input_shape=[1])]))
    losses = []
    for model in (mine, theirs):
        model.compile("sgd", "mse")
        losses.append(model.fit(np.arange(6.0), np.arange(6.0), epochs=3, shuffle=False, verbose=0).history["loss"])
    np.testing.assert_allclose(*losses, rtol=1e-4)
    mine, theirs = twins(lambda k: k.Sequential([k.Input((8, 8, 1)), k.layers.Conv2D(2, 3)]))
    images = np.random.default_rng(1).normal(size=(2, 8, 8)).astype(np.float32)
    np.testing.assert_allclose(mine.predict(images), theirs.predict(images, verbose=0), rtol=1e-4, atol=1e-5)


def test_attributes_of_own_layers():
    class Scaled(ours.layers.Layer):
        def __init__(self, **options):
            super().__init__(**options)
            self.nodes = 3

        def call(self, inputs):
            return inputs * self.nodes

    model = ours.Sequential([ours.Input((3,)), Scaled()])
    np.testing.assert_allclose(model.predict(X), X * 3)
