"""Keras' files: .keras, .weights.h5 and the older .h5, written and read by Keras itself."""

import json
import zipfile

import h5py
import numpy as np
import pytest
from candle_convert import FormatError, UnsafeFileError, UnsupportedError, UsageError
from candle_convert import keras as ours
from candle_convert.tests.oracles.real_keras import copy_weights, keras, twins

RNG = np.random.default_rng(0)
IMAGES = RNG.normal(size=(3, 8, 8, 3)).astype(np.float32)
TOKENS = RNG.integers(0, 10, (3, 6)).astype(np.int32)
PAIRS = RNG.normal(size=(3, 2)).astype(np.float32)


def convnet(k):
    layers = k.layers
    return k.Sequential(
        [
            k.Input((8, 8, 3)),
            layers.Conv2D(4, 3, padding="same", activation="relu", kernel_regularizer=k.regularizers.L2(1e-3)),
            layers.BatchNormalization(),
            layers.SeparableConv2D(5, 3),
            layers.MaxPooling2D(),
            layers.Dropout(0.2),
            layers.Flatten(),
            layers.Dense(5, kernel_initializer=k.initializers.HeNormal(seed=3)),
            layers.Dense(3, activation="softmax"),
        ],
        name="convnet",
    )


def branches(k):
    layers = k.layers
    text = k.Input((6,), name="text", dtype="int32")
    x = layers.Embedding(10, 8)(text)
    x = layers.Bidirectional(layers.LSTM(4, return_sequences=True))(x)
    x = layers.Add()([x, layers.MultiHeadAttention(2, 4)(x, x)])
    x = layers.LayerNormalization()(x)
    x = layers.TimeDistributed(layers.Dense(5, activation="tanh"))(x * 2.0)
    x = layers.GRU(3)(x)
    numbers = k.Input((2,), name="numbers")
    dense = layers.Dense(3)
    both = layers.Concatenate()([x, dense(numbers), dense(numbers * 0.5)])
    return k.Model([text, numbers], [layers.Dense(1, name="size")(both), layers.Dense(2, name="kind")(both)])


def nested(k):
    layers = k.layers
    inputs = k.Input((8, 8, 3))
    base = k.Sequential([k.Input((8, 8, 3)), layers.Conv2D(4, 3), layers.BatchNormalization()], name="base")
    return k.Model(inputs, layers.Dense(2)(layers.GlobalAveragePooling2D()(base(inputs, training=False))))


def graphs_within(k):
    given = k.Input((2,))
    one, other = (k.Model(given, k.layers.Dense(3)(given)) for _ in range(2))
    inputs = k.Input((2,))
    return k.Model(inputs, k.layers.Add()([one(inputs), other(inputs)]))


def slices(k):
    inputs = k.Input((8, 8, 3))
    x = k.layers.Dense(4)(inputs)
    return k.Model(inputs, [x[:, -1], x[..., 0], x[:, 1:7:2, 0]])


MODELS = [(convnet, IMAGES), (branches, [TOKENS, PAIRS]), (nested, IMAGES), (graphs_within, PAIRS), (slices, IMAGES)]
IDS = [build.__name__ for build, _ in MODELS]


def outputs(model, x):
    found = model.predict(x, verbose=0)
    return found if isinstance(found, list) else [found]


def same(one, other, x):
    for found, expected in zip(outputs(one, x), outputs(other, x), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("build", "x"), MODELS, ids=IDS)
@pytest.mark.parametrize("suffix", ["keras", "h5"])
@pytest.mark.filterwarnings("ignore")
def test_models_of_keras_are_read(build, x, suffix, tmp_path):
    theirs = build(keras)
    theirs.save(tmp_path / f"model.{suffix}")
    mine = ours.models.load_model(tmp_path / f"model.{suffix}")
    same(mine, theirs, x)
    assert [each.name for each in mine.layers] == [each.name for each in theirs.layers]


@pytest.mark.parametrize(("build", "x"), MODELS, ids=IDS)
def test_keras_reads_models(build, x, tmp_path):
    mine = build(ours)
    mine.save(tmp_path / "model.keras")
    same(mine, keras.models.load_model(tmp_path / "model.keras"), x)
    same(mine, ours.models.load_model(tmp_path / "model.keras"), x)


@pytest.mark.parametrize(("build", "x"), MODELS, ids=IDS)
@pytest.mark.filterwarnings("ignore")
def test_weights_both_ways(build, x, tmp_path):
    mine, theirs = build(ours), build(keras)
    theirs.save_weights(tmp_path / "theirs.weights.h5")
    mine.load_weights(tmp_path / "theirs.weights.h5")
    same(mine, theirs, x)
    other, read = build(ours), build(keras)
    other.save_weights(tmp_path / "mine.weights.h5")
    read.load_weights(tmp_path / "mine.weights.h5")
    same(other, read, x)
    theirs.save(tmp_path / "whole.h5")
    other.load_weights(tmp_path / "whole.h5")
    same(other, theirs, x)


def test_code_is_not_executed(tmp_path):
    theirs = keras.Sequential([keras.Input((3,)), keras.layers.Lambda(lambda x: x * 2)])
    theirs.save(tmp_path / "code.keras")
    with pytest.raises(UnsafeFileError, match="Lambda layer, 'lambda'"):
        ours.models.load_model(tmp_path / "code.keras")
    mine = ours.Sequential([ours.Input((3,)), ours.layers.Lambda(lambda x: x * 2)])
    np.testing.assert_array_equal(mine.predict(np.ones((1, 3), np.float32)), [[2, 2, 2]])


def test_layers_that_there_are_not(tmp_path):
    class Own(keras.layers.Layer):
        def call(self, x):
            return x

    keras.Sequential([keras.Input((3,)), Own(name="own")]).save(tmp_path / "own.keras")
    with pytest.raises(UnsupportedError, match="class 'Own'"):
        ours.models.load_model(tmp_path / "own.keras")

    class Mine(ours.layers.Layer):
        def call(self, x):
            return x + 1

    model = ours.models.load_model(tmp_path / "own.keras", custom_objects={"Own": Mine})
    assert model.predict(np.zeros((1, 3), np.float32)).tolist() == [[1, 1, 1]]


def test_files_that_do_not_fit(tmp_path):
    convnet(keras).save(tmp_path / "a.keras")
    model = ours.Sequential([ours.Input((4,)), ours.layers.Dense(2)])
    with pytest.raises(UsageError, match="another shape"):
        model.load_weights(tmp_path / "a.keras")
    with pytest.raises(UsageError, match="before its first call"):
        ours.Sequential([ours.layers.Dense(2)]).load_weights(tmp_path / "a.keras")
    (tmp_path / "b.keras").write_bytes(b"nothing")
    with pytest.raises(FormatError, match="not an HDF5 file"):
        ours.models.load_model(tmp_path / "b.keras")
    with zipfile.ZipFile(tmp_path / "c.keras", "w") as archive:
        archive.writestr("config.json", json.dumps({"class_name": "Sequential", "config": {}}))
    with pytest.raises(FormatError, match=r"does not have model\.weights\.h5"):
        ours.models.load_model(tmp_path / "c.keras")


def test_links_out_of_the_file_are_refused(tmp_path):
    """A file cannot make the reader open another one."""
    with h5py.File(tmp_path / "secret.h5", "w") as file:
        file["w"] = np.ones((4, 2), np.float32)
    (tmp_path / "raw").write_bytes(bytes(32))
    model = ours.Sequential([ours.Input((4,)), ours.layers.Dense(2, use_bias=False)])
    with h5py.File(tmp_path / "link.weights.h5", "w") as file:
        file.create_group("layers/dense/vars")["0"] = h5py.ExternalLink(str(tmp_path / "secret.h5"), "w")
    with pytest.raises(FormatError, match="link to another place"):
        model.load_weights(tmp_path / "link.weights.h5")
    with h5py.File(tmp_path / "raw.weights.h5", "w") as file:
        group = file.create_group("layers/dense/vars")
        group.create_dataset("0", (4, 2), np.float32, external=[(str(tmp_path / "raw"), 0, 32)])
    with pytest.raises(FormatError, match="not an array of the file"):
        model.load_weights(tmp_path / "raw.weights.h5")


def test_twins_have_the_weights_that_were_copied():
    mine, theirs = twins(convnet)
    copy_weights(theirs, mine)
    same(mine, theirs, IMAGES)
