"""Layers by Keras' names against Keras on torch: outputs, shapes, weights and their gradients."""

import numpy as np
import pytest
import torch
from candle_convert import keras as ours
from candle_convert.tests.oracles.real_keras import copy_weights, keras

RNG = np.random.default_rng(0)
IMAGES = RNG.normal(size=(3, 9, 8, 4)).astype(np.float32)
SEQUENCES = RNG.normal(size=(3, 7, 4)).astype(np.float32)
VOLUMES = RNG.normal(size=(2, 5, 6, 4, 2)).astype(np.float32)
ROWS = RNG.normal(size=(5, 6)).astype(np.float32)
LAYERS = {
    "Dense": (lambda k: k.Dense(5, activation="tanh"), ROWS),
    "Dense without bias": (lambda k: k.Dense(5, use_bias=False, kernel_initializer="he_uniform"), SEQUENCES),
    "EinsumDense": (lambda k: k.EinsumDense("abc,cd->abd", (None, 5), bias_axes="d"), SEQUENCES),
    "Embedding": (lambda k: k.Embedding(12, 5), RNG.integers(0, 12, (3, 7))),
    "Conv1D": (lambda k: k.Conv1D(5, 3), SEQUENCES),
    "Conv1D causal": (lambda k: k.Conv1D(5, 3, padding="causal", dilation_rate=2), SEQUENCES),
    "Conv2D": (lambda k: k.Conv2D(6, (3, 2), activation="relu"), IMAGES),
    "Conv2D same": (lambda k: k.Conv2D(6, 3, padding="same"), IMAGES),
    "Conv2D strides": (lambda k: k.Conv2D(6, 3, strides=2, padding="same"), IMAGES),
    "Conv2D even": (lambda k: k.Conv2D(6, 4, strides=(1, 3), padding="same", groups=2), IMAGES),
    "Conv2D dilated": (lambda k: k.Conv2D(6, 3, dilation_rate=2, padding="same"), IMAGES),
    "Conv3D": (lambda k: k.Conv3D(3, 2, padding="same"), RNG.normal(size=(2, 4, 5, 3, 2)).astype(np.float32)),
    "Conv1DTranspose": (lambda k: k.Conv1DTranspose(5, 3, strides=2), SEQUENCES),
    "Conv2DTranspose": (lambda k: k.Conv2DTranspose(6, 3), IMAGES),
    "Conv2DTranspose same": (lambda k: k.Conv2DTranspose(6, 3, strides=2, padding="same"), IMAGES),
    "Conv2DTranspose even": (lambda k: k.Conv2DTranspose(6, 4, strides=(2, 3), padding="same"), IMAGES),
    "Conv2DTranspose short": (lambda k: k.Conv2DTranspose(6, 2, strides=3), IMAGES),
    "Conv2DTranspose output": (lambda k: k.Conv2DTranspose(6, 3, strides=2, output_padding=1), IMAGES),
    "DepthwiseConv1D": (lambda k: k.DepthwiseConv1D(3, padding="same"), SEQUENCES),
    "DepthwiseConv2D": (lambda k: k.DepthwiseConv2D(3, depth_multiplier=2), IMAGES),
    "DepthwiseConv2D same": (lambda k: k.DepthwiseConv2D(3, strides=2, padding="same"), IMAGES),
    "SeparableConv1D": (lambda k: k.SeparableConv1D(5, 3), SEQUENCES),
    "SeparableConv2D": (lambda k: k.SeparableConv2D(6, 3, depth_multiplier=2, padding="same"), IMAGES),
    "MaxPooling1D": (lambda k: k.MaxPooling1D(3, padding="same"), SEQUENCES),
    "MaxPooling2D": (lambda k: k.MaxPooling2D(), IMAGES),
    "MaxPooling2D same": (lambda k: k.MaxPooling2D(3, strides=2, padding="same"), IMAGES),
    "AveragePooling1D": (lambda k: k.AveragePooling1D(2), SEQUENCES),
    "AveragePooling2D same": (lambda k: k.AveragePooling2D(3, padding="same", strides=1), IMAGES),
    "GlobalAveragePooling1D": (lambda k: k.GlobalAveragePooling1D(), SEQUENCES),
    "GlobalAveragePooling2D": (lambda k: k.GlobalAveragePooling2D(keepdims=True), IMAGES),
    "GlobalMaxPooling2D": (lambda k: k.GlobalMaxPooling2D(), IMAGES),
    "BatchNormalization": (lambda k: k.BatchNormalization(), IMAGES),
    "BatchNormalization axis": (lambda k: k.BatchNormalization(axis=1, scale=False, epsilon=1e-5), IMAGES),
    "LayerNormalization": (lambda k: k.LayerNormalization(), SEQUENCES),
    "LayerNormalization axes": (lambda k: k.LayerNormalization(axis=[1, 2], center=False), SEQUENCES),
    "GroupNormalization": (lambda k: k.GroupNormalization(2), IMAGES),
    "RMSNormalization": (lambda k: k.RMSNormalization(), SEQUENCES),
    "RMSNormalization axes": (lambda k: k.RMSNormalization(axis=[1, 2], epsilon=1e-3), SEQUENCES),
    "Normalization": (lambda k: k.Normalization(mean=[1.0, 2.0, 3.0, 4.0], variance=[1.0, 0.0, 2.0, 4.0]), SEQUENCES),
    "Normalization inverse": (lambda k: k.Normalization(axis=None, mean=2.0, variance=3.0, invert=True), SEQUENCES),
    "UnitNormalization": (lambda k: k.UnitNormalization(), ROWS),
    "LSTM": (lambda k: k.LSTM(5), SEQUENCES),
    "LSTM sequences": (lambda k: k.LSTM(5, return_sequences=True, go_backwards=True), SEQUENCES),
    "LSTM without bias": (lambda k: k.LSTM(5, use_bias=False, unit_forget_bias=False), SEQUENCES),
    "GRU": (lambda k: k.GRU(5), SEQUENCES),
    "GRU sequences": (lambda k: k.GRU(5, return_sequences=True, bias_initializer="random_normal"), SEQUENCES),
    "LSTM of other activations": (
        lambda k: k.LSTM(5, activation="relu", recurrent_activation="hard_sigmoid", return_sequences=True),
        SEQUENCES,
    ),
    "GRU before": (lambda k: k.GRU(5, reset_after=False, bias_initializer="random_normal"), SEQUENCES),
    "GRU of other activations": (lambda k: k.GRU(5, activation="softsign", go_backwards=True), SEQUENCES),
    "SimpleRNN of other activations": (lambda k: k.SimpleRNN(5, activation="elu", use_bias=False), SEQUENCES),
    "RNN": (lambda k: k.RNN(k.LSTMCell(5, recurrent_activation="elu"), return_sequences=True), SEQUENCES),
    "RNN of cells": (lambda k: k.RNN([k.LSTMCell(5), k.GRUCell(4), k.SimpleRNNCell(3, activation="relu")]), SEQUENCES),
    "RNN backwards": (lambda k: k.RNN(k.GRUCell(5, reset_after=False), go_backwards=True), SEQUENCES),
    "Bidirectional RNN": (
        lambda k: k.Bidirectional(k.RNN([k.GRUCell(5), k.SimpleRNNCell(4)], return_sequences=True)),
        SEQUENCES,
    ),
    "Masking": (lambda k: k.Masking(0.5), SEQUENCES),
    "SimpleRNN": (lambda k: k.SimpleRNN(5), SEQUENCES),
    "SimpleRNN relu": (lambda k: k.SimpleRNN(5, activation="relu", return_sequences=True), SEQUENCES),
    "Bidirectional": (lambda k: k.Bidirectional(k.GRU(5, return_sequences=True)), SEQUENCES),
    "Bidirectional sum": (lambda k: k.Bidirectional(k.LSTM(5), merge_mode="sum"), SEQUENCES),
    "TimeDistributed": (lambda k: k.TimeDistributed(k.Dense(5)), SEQUENCES),
    "Activation": (lambda k: k.Activation("softplus"), ROWS),
    "ReLU": (lambda k: k.ReLU(max_value=0.7, negative_slope=0.1, threshold=0.2), ROWS),
    "LeakyReLU": (lambda k: k.LeakyReLU(), ROWS),
    "ELU": (lambda k: k.ELU(0.7), ROWS),
    "PReLU": (lambda k: k.PReLU(alpha_initializer="random_normal", shared_axes=[1, 2]), IMAGES),
    "Softmax": (lambda k: k.Softmax(axis=1), SEQUENCES),
    "Flatten": (lambda k: k.Flatten(), IMAGES),
    "Reshape": (lambda k: k.Reshape((3, -1)), ROWS),
    "Permute": (lambda k: k.Permute((2, 1)), SEQUENCES),
    "RepeatVector": (lambda k: k.RepeatVector(4), ROWS),
    "ZeroPadding1D": (lambda k: k.ZeroPadding1D((2, 1)), SEQUENCES),
    "ZeroPadding2D": (lambda k: k.ZeroPadding2D(((1, 2), (0, 3))), IMAGES),
    "Cropping2D": (lambda k: k.Cropping2D(((1, 2), (0, 3))), IMAGES),
    "UpSampling1D": (lambda k: k.UpSampling1D(3), SEQUENCES),
    "UpSampling2D": (lambda k: k.UpSampling2D((2, 3)), IMAGES),
    "UpSampling2D bilinear": (lambda k: k.UpSampling2D(2, interpolation="bilinear"), IMAGES),
    "ZeroPadding3D": (lambda k: k.ZeroPadding3D(((1, 2), (0, 3), (1, 1))), VOLUMES),
    "Cropping3D": (lambda k: k.Cropping3D(((1, 2), (0, 3), (1, 0))), VOLUMES),
    "UpSampling3D": (lambda k: k.UpSampling3D((2, 3, 1)), VOLUMES),
    "AlphaDropout": (lambda k: k.AlphaDropout(0.4), ROWS),
    "GaussianDropout": (lambda k: k.GaussianDropout(0.4), ROWS),
    "SpatialDropout3D": (lambda k: k.SpatialDropout3D(0.4), VOLUMES),
    "Rescaling": (lambda k: k.Rescaling(1 / 255, offset=0.5), RNG.integers(0, 255, (2, 3)).astype(np.uint8)),
    "Dropout": (lambda k: k.Dropout(0.4), ROWS),
    "SpatialDropout2D": (lambda k: k.SpatialDropout2D(0.4), IMAGES),
    "GaussianNoise": (lambda k: k.GaussianNoise(0.4), ROWS),
}


@pytest.mark.parametrize("name", LAYERS)
def test_outputs_and_gradients(name):
    build, x = LAYERS[name]
    keras.utils.set_random_seed(0)
    theirs, mine = build(keras.layers), build(ours.layers)
    symbolic = keras.Input(x.shape[1:], dtype=str(x.dtype))
    shape = mine(ours.Input(x.shape[1:], dtype=str(x.dtype))).shape
    assert all(wanted in (None, found) for found, wanted in zip(shape, theirs(symbolic).shape, strict=True))
    assert shape[0] is None
    copy_weights(theirs, mine)
    expected, found = theirs(x), mine(x)
    np.testing.assert_allclose(found.detach().numpy(), expected.detach().numpy(), rtol=1e-4, atol=1e-5)
    if not theirs.trainable_weights:
        return
    (expected * expected.sin()).sum().backward()
    (found * found.sin()).sum().backward()
    gradients = [each.value.grad for each in theirs.trainable_weights]
    for one, other in zip(mine.trainable_weights, gradients, strict=True):
        np.testing.assert_allclose(one.grad.numpy(), other.numpy(), rtol=2e-3, atol=1e-4)


def test_names_and_settings_are_those_of_keras():
    """Every layer takes Keras' settings in Keras' order, and is named as Keras names it."""
    import inspect

    for name in dir(ours.layers):
        theirs = getattr(keras.layers, name, None)
        if not isinstance(theirs, type) or name in ("Layer", "InputLayer"):
            continue
        wanted = [each for each in inspect.signature(theirs.__init__).parameters if each not in ("self", "kwargs")]
        found = [each for each in inspect.signature(getattr(ours.layers, name).__init__).parameters if each != "self"]
        shared = [each for each in wanted if each in found]
        assert [each for each in found if each in shared] == shared, name
        assert not set(found) - set(wanted) - {"options"}, name


def test_batch_statistics_and_frozen_layers():
    for k, call in (
        (keras, lambda layer: layer(IMAGES, training=True)),
        (ours, lambda layer: layer(IMAGES, training=True)),
    ):
        layer = k.layers.BatchNormalization(momentum=0.8)
        call(layer)
        call(layer)
        if k is keras:
            expected = layer.get_weights()
        else:
            for one, other in zip(layer.get_weights(), expected, strict=True):
                np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
    layer.trainable = False
    before = layer.get_weights()
    frozen = layer(IMAGES, training=True).detach().numpy()
    np.testing.assert_array_equal(frozen, layer(IMAGES).detach().numpy())
    for one, other in zip(layer.get_weights(), before, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "SimpleRNN"])
def test_states(kind):
    theirs, mine = (getattr(k.layers, kind)(5, return_state=True, return_sequences=True) for k in (keras, ours))
    first = [RNG.normal(size=(3, 5)).astype(np.float32) for _ in range(2 if kind == "LSTM" else 1)]
    theirs(SEQUENCES)
    mine(SEQUENCES)
    copy_weights(theirs, mine)
    expected = theirs(SEQUENCES, initial_state=[torch.tensor(each) for each in first])
    for one, other in zip(mine(SEQUENCES, initial_state=first), expected, strict=True):
        np.testing.assert_allclose(one.detach().numpy(), other.detach().numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("options", [{}, {"use_causal_mask": True}, {"attention_mask": RNG.random((3, 7, 7)) > 0.3}])
def test_attention(options):
    theirs, mine = (k.layers.MultiHeadAttention(2, 3, value_dim=5, dropout=0.1) for k in (keras, ours))
    theirs(SEQUENCES, SEQUENCES)
    mine(SEQUENCES, SEQUENCES)
    copy_weights(theirs, mine)
    expected = theirs(SEQUENCES, SEQUENCES, return_attention_scores=True, **options)
    found = mine(SEQUENCES, SEQUENCES, return_attention_scores=True, **options)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one.detach().numpy(), other.detach().numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", ["Add", "Average", "Concatenate", "Maximum", "Minimum", "Multiply", "Subtract"])
def test_layers_of_several_inputs(kind):
    items = [ROWS, ROWS[::-1].copy()]
    expected = getattr(keras.layers, kind)()(items)
    np.testing.assert_allclose(getattr(ours.layers, kind)()(items).numpy(), expected.numpy(), rtol=1e-6)
    np.testing.assert_allclose(getattr(ours.layers, kind.lower())(items).numpy(), expected.numpy(), rtol=1e-6)


@pytest.mark.parametrize("axes", [1, (1, 2)])
def test_products_along_an_axis(axes):
    items = [SEQUENCES[:, :4], SEQUENCES[:, 3:]]
    for normalize in (False, True):
        expected = keras.layers.Dot(axes, normalize=normalize)(items)
        found = ours.layers.Dot(axes, normalize=normalize)(items)
        np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("mask", [None, (None, RNG.random((3, 5)) > 0.3), (RNG.random((3, 7)) > 0.3, None)])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(
    "build",
    [
        lambda k: k.Attention(),
        lambda k: k.Attention(use_scale=True),
        lambda k: k.Attention(use_scale=True, score_mode="concat"),
        lambda k: k.AdditiveAttention(),
        lambda k: k.AdditiveAttention(use_scale=False),
    ],
)
def test_attention_without_projections(build, causal, mask):
    theirs, mine = build(keras.layers), build(ours.layers)
    inputs = [SEQUENCES, SEQUENCES[:, :5], SEQUENCES[:, 2:]]
    theirs([torch.tensor(each) for each in inputs])
    mine(inputs)
    copy_weights(theirs, mine)
    options = {"return_attention_scores": True, "use_causal_mask": causal}
    given = None if mask is None else [None if each is None else torch.tensor(each) for each in mask]
    expected = theirs([torch.tensor(each) for each in inputs], mask=given, **options)
    for one, other in zip(mine(inputs, mask=mask, **options), expected, strict=True):
        np.testing.assert_allclose(one.detach().numpy(), other.detach().numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("axis", [-1, (1, 2), None])
def test_statistics_of_data(axis):
    theirs, mine = (k.layers.Normalization(axis=axis) for k in (keras, ours))
    for layer in (theirs, mine):
        layer.adapt(SEQUENCES)
    np.testing.assert_allclose(mine(SEQUENCES).numpy(), theirs(SEQUENCES).numpy(), rtol=1e-4, atol=1e-5)
    for one, other in zip(mine.get_weights(), theirs.get_weights(), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["AlphaDropout", "GaussianDropout", "SpatialDropout3D"])
def test_mean_and_deviation_of_noise(name):
    """Random elements are others than Keras'; mean, deviation and the share of the most frequent value are Keras'."""
    x = np.random.default_rng(1).normal(size=(40, 6, 5, 4, 50)).astype(np.float32)
    found = []
    for k in (keras, ours):
        y = getattr(k.layers, name)(0.3)(x, training=True).numpy()
        found.append((y.mean(), y.std(), np.unique(y, return_counts=True)[1].max() / y.size))
    np.testing.assert_allclose(found[1], found[0], rtol=0.03, atol=0.01)
