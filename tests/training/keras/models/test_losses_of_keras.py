"""Scripts of Keras with their imports changed: the first 20 losses are those of Keras on torch, from its weights."""

import numpy as np
import pytest
from candle_convert.tests.oracles.real_keras import same_losses, twins

RNG = np.random.default_rng(0)
IMAGES = RNG.normal(size=(40, 12, 12, 3)).astype(np.float32)
CLASSES = RNG.integers(0, 4, 40)
TOKENS = RNG.integers(0, 30, (40, 9)).astype(np.int32)
ROWS = RNG.normal(size=(40, 6)).astype(np.float32)


def convnet(k):
    layers = k.layers
    model = k.Sequential(
        [
            k.Input((12, 12, 3)),
            layers.Conv2D(8, 3, padding="same", activation="relu"),
            layers.BatchNormalization(),
            layers.MaxPooling2D(),
            layers.Conv2D(12, 3, strides=2, padding="same", use_bias=False),
            layers.BatchNormalization(),
            layers.ReLU(),
            layers.GlobalAveragePooling2D(),
            layers.Dropout(0.0),
            layers.Dense(4, activation="softmax"),
        ]
    )
    model.compile(optimizer="adam", loss="sparse_categorical_crossentropy", metrics=["accuracy"])
    return model


def lenet(k):
    """Without an input shape: weights are made by the first batch; logits, SGD with momentum, penalties."""
    layers = k.layers
    model = k.Sequential()
    model.add(k.Input((12, 12, 3)))
    model.add(layers.Rescaling(0.5))
    model.add(layers.Conv2D(6, (3, 5), activation="tanh", kernel_regularizer=k.regularizers.L2(1e-2)))
    model.add(layers.AveragePooling2D(2))
    model.add(layers.Flatten())
    model.add(layers.Dense(16, activation="elu", kernel_initializer="he_normal"))
    model.add(layers.Dense(4))
    loss = k.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(k.optimizers.SGD(learning_rate=0.05, momentum=0.9, nesterov=True), loss)
    return model


def recurrent(k):
    layers = k.layers
    model = k.Sequential(
        [
            k.Input((None,), dtype="int32"),
            layers.Embedding(30, 8),
            layers.Bidirectional(layers.LSTM(6, return_sequences=True)),
            layers.LSTM(5),
            layers.Dense(1, activation="sigmoid"),
        ]
    )
    model.compile(k.optimizers.RMSprop(3e-3), "binary_crossentropy", metrics=["accuracy"])
    return model


def autoencoder(k):
    layers = k.layers
    inputs = k.Input(shape=(12, 12, 3), name="picture")
    x = layers.Conv2D(8, 3, activation="relu", padding="same", strides=2)(inputs)
    x = layers.Conv2D(4, 3, activation="relu", padding="same", strides=2)(x)
    x = layers.Conv2DTranspose(8, 3, strides=2, activation="relu", padding="same")(x)
    x = layers.UpSampling2D(2)(x)
    model = k.Model(inputs, layers.Conv2D(3, 3, padding="same")(x), name="autoencoder")
    model.compile(optimizer=k.optimizers.Adam(1e-2), loss="mse")
    return model


def branches(k):
    layers = k.layers
    text, numbers = k.Input((9,), dtype="int32", name="text"), k.Input((6,), name="numbers")
    x = layers.Embedding(30, 8)(text)
    x = layers.Add()([x, layers.MultiHeadAttention(num_heads=2, key_dim=4)(x, x)])
    x = layers.LayerNormalization()(x)
    x = layers.GRU(7)(x * 2.0)
    y = layers.Dense(7, activation="gelu")(numbers)
    both = layers.Concatenate()([x, y, layers.Multiply()([x, y])])
    kind = layers.Dense(4, activation="softmax", name="kind")(both)
    size = layers.Dense(1, name="size")(both)
    model = k.Model([text, numbers], [kind, size])
    losses = {"kind": "sparse_categorical_crossentropy", "size": "mse"}
    model.compile("nadam", losses, loss_weights={"kind": 1.0, "size": 0.3})
    return model


@pytest.mark.parametrize(
    ("build", "x", "y"),
    [
        (convnet, IMAGES, CLASSES),
        (lenet, IMAGES, CLASSES),
        (recurrent, TOKENS, (CLASSES > 1).astype(np.float32)),
        (autoencoder, IMAGES, IMAGES),
        (branches, [TOKENS, ROWS], [CLASSES, ROWS[:, :1]]),
    ],
    ids=["convnet", "lenet", "recurrent", "autoencoder", "branches"],
)
def test_losses(build, x, y):
    mine, theirs = twins(build)
    same_losses(mine, theirs, x, y)
    for found, expected in zip(mine.get_weights(), theirs.get_weights(), strict=True):
        np.testing.assert_allclose(found, expected, rtol=2e-3, atol=2e-4)
