"""fit, evaluate and predict of `cc.keras` against Keras on torch; what it warns of and refuses."""

import candle_convert as cc
import numpy as np
import pytest
from candle_convert import keras as ours
from candle_convert.keras import layers
from candle_convert.tests.oracles.real_keras import copy_weights, keras, twins

RNG = np.random.default_rng(0)
X = RNG.normal(size=(50, 6)).astype(np.float32)
CLASSES = (X[:, 0] > 0).astype(np.int64) + (X[:, 1] > 0)


def network(k):
    model = k.Sequential(
        [
            k.Input((6,)),
            k.layers.Dense(8, activation="relu", kernel_regularizer="l2"),
            k.layers.BatchNormalization(),
            k.layers.Dense(3, activation="softmax"),
        ]
    )
    measures = ["accuracy", k.metrics.SparseTopKCategoricalAccuracy(k=2, name="top_2")]
    model.compile(optimizer=k.optimizers.Adam(0.01), loss="sparse_categorical_crossentropy", metrics=measures)
    return model


@pytest.mark.filterwarnings("ignore")
def test_histories():
    """Losses and metrics of epochs, their validation, weights of items and classes, and of evaluate."""
    mine, theirs = twins(network)
    found = []
    for model in (mine, theirs):
        stop = {ours.Sequential: ours, keras.Sequential: keras}[type(model)].callbacks.EarlyStopping(patience=50)
        history = model.fit(
            X, CLASSES, epochs=4, batch_size=16, validation_split=0.25, shuffle=False, verbose=0, callbacks=[stop],
            class_weight={0: 2.0, 1: 1.0, 2: 0.5},
        )  # fmt: skip
        found.append((history.history, model.evaluate(X, CLASSES, verbose=0), model.predict(X, verbose=0)))
    (history, scores, outputs), (expected, their_scores, their_outputs) = found
    assert list(history) == ["loss", "accuracy", "top_2", "val_loss", "val_accuracy", "val_top_2"]
    assert {*history} == {*expected}
    for name, values in expected.items():
        np.testing.assert_allclose(history[name], values, rtol=2e-4, err_msg=name)
    np.testing.assert_allclose(scores, their_scores, rtol=2e-4)
    np.testing.assert_allclose(outputs, their_outputs, rtol=1e-3, atol=1e-4)


def test_metrics_of_sums():
    mine, theirs = twins(lambda k: k.Sequential([k.Input((6,)), k.layers.Dense(1, activation="sigmoid")]))
    found = []
    for model, k in ((mine, ours), (theirs, keras)):
        model.compile("sgd", "binary_crossentropy", metrics=[k.metrics.Precision(name="p"), k.metrics.Recall(name="r")])
        history = model.fit(X, CLASSES > 0, batch_size=8, epochs=2, shuffle=False, verbose=0).history
        found.append([*history["p"], *history["r"], *model.evaluate(X, CLASSES > 0, verbose=0)])
    np.testing.assert_allclose(*found, rtol=1e-4)


@pytest.mark.parametrize("takes_training", [True, False])
def test_subclasses_and_own_layers(takes_training):
    """A model and a layer in Keras' own style; weights are made by the first batch. Layers of a model whose call does
    not take `training` are not told of it."""

    def build(k):
        class Scaled(k.layers.Layer):
            def __init__(self, units, **options):
                super().__init__(**options)
                self.units = units

            def build(self, input_shape):
                self.w = self.add_weight(shape=(input_shape[-1], self.units), initializer="random_normal", name="w")
                self.b = self.add_weight(shape=(self.units,), initializer="zeros", name="b")

            def call(self, inputs, training=None):
                return (inputs @ self.w + self.b) * (2.0 if training else 1.0)

        class Net(k.Model):
            def __init__(self):
                super().__init__()
                self.blocks = [k.layers.Dense(5, activation="relu") for _ in range(2)]
                self.head = Scaled(1)

            def call(self, x, training=None):
                for block in self.blocks:
                    x = block(x)
                return self.head(x)

        class Untold(Net):
            def call(self, x):
                return super().call(x)

        model = Net() if takes_training else Untold()
        model.compile(optimizer="rmsprop", loss="mse")
        model(X[:2])
        return model

    mine, theirs = build(ours), build(keras)
    copy_weights(theirs, mine)
    losses = [
        model.fit(X, X[:, :1], epochs=3, batch_size=10, shuffle=False, verbose=0).history["loss"]
        for model in (mine, theirs)
    ]
    np.testing.assert_allclose(*losses, rtol=1e-4)


def test_frozen_layers_and_features():
    """A trained base whose layers are frozen, under a new head, as in transfer learning."""

    def build(k):
        base = k.Sequential([k.Input((6,)), k.layers.Dense(4), k.layers.BatchNormalization()])
        base.trainable = False
        inputs = k.Input((6,))
        outputs = k.layers.Dense(3)(base(inputs, training=False))
        model = k.Model(inputs, outputs)
        model.compile("adam", k.losses.SparseCategoricalCrossentropy(from_logits=True))
        return model

    mine, theirs = twins(build)
    assert [len(each.trainable_weights) for each in (mine, theirs)] == [2, 2]
    losses = [model.fit(X, CLASSES, epochs=2, shuffle=False, verbose=0).history["loss"] for model in (mine, theirs)]
    np.testing.assert_allclose(*losses, rtol=1e-4)
    for one, other in zip(mine.get_weights(), theirs.get_weights(), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-5)
    inner = ours.Model(mine.inputs, mine.layers[-1].output)
    np.testing.assert_allclose(inner.predict(X), mine.predict(X))


def test_summary(capsys):
    """The words of Keras' table."""
    mine, theirs = twins(network)
    mine.summary()
    ours_text = capsys.readouterr().out
    theirs.summary(print_fn=print)
    their_text = capsys.readouterr().out
    for line in (
        " Total params: 115 (460.00 B)",
        " Trainable params: 99 (396.00 B)",
        " Non-trainable params: 16 (64.00 B)",
    ):
        assert line in ours_text
        assert line.split(" (")[0] in their_text
    assert "(None, 8)" in ours_text
    assert "Layer (type)" in ours_text


def test_callbacks(tmp_path):
    model = network(ours)
    rates = []
    watch = ours.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: rates.append(model.optimizer.learning_rate))
    model.fit(
        X, CLASSES, epochs=4, verbose=0, validation_data=(X, CLASSES),
        callbacks=[
            ours.callbacks.LearningRateScheduler(lambda epoch, rate: rate / 2 if epoch else rate),
            ours.callbacks.ModelCheckpoint(str(tmp_path / "best.keras"), monitor="val_loss", save_best_only=True),
            ours.callbacks.ModelCheckpoint(str(tmp_path / "{epoch}.weights.h5"), save_weights_only=True),
            ours.callbacks.CSVLogger(tmp_path / "log.csv"), watch,
        ],
    )  # fmt: skip
    assert rates == [0.01, 0.005, 0.0025, 0.00125]
    assert (tmp_path / "log.csv").read_text().splitlines()[0].startswith("epoch,loss,accuracy")
    assert keras.models.load_model(tmp_path / "best.keras").count_params() == 115
    model.load_weights(tmp_path / "2.weights.h5")
    stopped = network(ours)
    stop = ours.callbacks.EarlyStopping(monitor="loss", min_delta=100.0)
    assert len(stopped.fit(X, CLASSES, epochs=9, verbose=0, callbacks=[stop]).epoch) == 2


@pytest.mark.parametrize(
    ("ending", "from_logits", "warning"),
    [
        ("softmax", True, r"ends with Softmax, but SparseCategoricalCrossentropy\(from_logits=True\) applies Softmax"),
        (None, False, "ends without Softmax or Sigmoid, but SparseCategoricalCrossentropy takes probabilities"),
    ],
)
def test_losses_that_do_not_fit_the_last_activation(ending, from_logits, warning):
    model = ours.Sequential([ours.Input((6,)), layers.Dense(3, activation=ending)])
    model.compile("sgd", ours.losses.SparseCategoricalCrossentropy(from_logits=from_logits))
    with pytest.warns(UserWarning, match=warning):
        model.train_on_batch(X, CLASSES)


def test_utils():
    for given in ([0, 2, 1], np.array([[1], [0]])):
        np.testing.assert_array_equal(ours.utils.to_categorical(given), keras.utils.to_categorical(given))
    np.testing.assert_allclose(ours.utils.normalize(X), keras.utils.normalize(X), rtol=1e-6)
    with pytest.raises(cc.UsageError, match="classes are 0 to 2"):
        ours.utils.to_categorical([0, 2], 2)


@pytest.mark.parametrize(
    ("call", "why"),
    [
        (lambda: layers.Dense(4, unit=3), "Dense does not take unit=3"),
        (lambda: layers.Conv2D(4, 3, padding="full"), "'full' is not a padding"),
        (lambda: layers.Dense(3)(ours.Input((None,))), "makes a weight of shape"),
        (lambda: ours.Model(ours.Input((3,)), layers.Dense(2)(ours.Input((3,)))), "not an input of the model"),
        (lambda: network(ours).predict([X, X]), "2 inputs"),
        (lambda: network(ours).fit(X, CLASSES[:5]), "50 rows"),
        (lambda: ours.Sequential([layers.Dense(2)]).fit(X, X), "not compiled"),
        (lambda: network(ours).compile("adamm", "mse"), "no optimizer 'adamm'"),
    ],
)
def test_what_is_not_possible(call, why):
    with pytest.raises(cc.UsageError, match=why):
        call()


def test_modules_of_pytorch_among_layers():
    model = ours.Sequential([ours.Input((6,)), cc.nn.Linear(6, 3), layers.Softmax()])
    model.compile("adam", "sparse_categorical_crossentropy")
    model.fit(X, CLASSES, verbose=0)
    assert model.count_params() == 21


@pytest.mark.parametrize("padding", ["pre", "post"])
@pytest.mark.parametrize("truncating", ["pre", "post"])
@pytest.mark.parametrize("maxlen", [None, 2, 5])
def test_padded_sequences(maxlen, truncating, padding):
    options = {"maxlen": maxlen, "padding": padding, "truncating": truncating, "value": -1.0, "dtype": "float32"}
    for rows in ([[1], [2, 3, 4], []], [[[1, 2]], [[3, 4], [5, 6], [7, 8]]]):
        wanted, found = (k.utils.pad_sequences(rows, **options) for k in (keras, ours))
        np.testing.assert_array_equal(found, wanted)
        assert found.dtype == wanted.dtype
    with pytest.raises(cc.UsageError, match="padding is 'both'"):
        ours.utils.pad_sequences([[1]], padding="both")
