"""Masks of time steps, from Embedding and Masking to recurrences, attention, losses and metrics, against Keras."""

import warnings

import numpy as np
import pytest
from candle_convert import keras as ours
from candle_convert.tests.oracles.real_keras import keras, same_losses, twins

RNG = np.random.default_rng(0)
TOKENS = RNG.integers(1, 20, (24, 7)).astype(np.int32)
for row, end in zip(TOKENS, RNG.integers(0, 8, 24), strict=True):
    row[end:] = 0
TOKENS[3] = 0
TOKENS[4, 2] = 0
SEQUENCES = RNG.normal(size=(24, 7, 4)).astype(np.float32)
SEQUENCES[RNG.random((24, 7)) < 0.3] = 0.0
CLASSES = RNG.integers(0, 3, 24)
STEPS = RNG.integers(0, 3, (24, 7))
KINDS = {
    "LSTM": lambda k: k.LSTM(5),
    "LSTM sequences": lambda k: k.LSTM(5, return_sequences=True, go_backwards=True),
    "LSTM zeros": lambda k: k.LSTM(5, return_sequences=True, zero_output_for_mask=True),
    "LSTM of other activations": lambda k: k.LSTM(5, activation="relu", return_sequences=True),
    "GRU": lambda k: k.GRU(5),
    "GRU sequences": lambda k: k.GRU(5, return_sequences=True, bias_initializer="random_normal"),
    "GRU before": lambda k: k.GRU(5, reset_after=False, zero_output_for_mask=True),
    "SimpleRNN": lambda k: k.SimpleRNN(5, return_sequences=True),
    "RNN": lambda k: k.RNN([k.LSTMCell(5), k.GRUCell(4)], return_sequences=True),
    "Bidirectional": lambda k: k.Bidirectional(k.LSTM(5, return_sequences=True)),
    "Bidirectional sum": lambda k: k.Bidirectional(k.GRU(5), merge_mode="sum"),
    "GlobalAveragePooling1D": lambda k: k.GlobalAveragePooling1D(),
    "BatchNormalization": lambda k: k.BatchNormalization(),
    "TimeDistributed": lambda k: k.TimeDistributed(k.Dense(5)),
    "Softmax": lambda k: k.Dense(5),
}


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("source", ["Embedding", "Masking"])
def test_losses_of_masked_sequences(name, source):
    """The first 20 losses, and outputs with their masks."""
    x = TOKENS if source == "Embedding" else SEQUENCES

    def build(k):
        start = k.Input(x.shape[1:], dtype=str(x.dtype))
        layers = k.layers
        hidden = layers.Embedding(20, 4, mask_zero=True)(start) if source == "Embedding" else layers.Masking()(start)
        hidden = layers.Dropout(0.0)(layers.Dense(4, activation="tanh")(hidden))
        hidden = KINDS[name](layers)(hidden)
        model = k.Model(start, layers.Dense(3, activation="softmax")(hidden))
        model.compile("sgd", "sparse_categorical_crossentropy")
        return model

    mine, theirs = twins(build)
    rows = np.flatnonzero((x.reshape(24, 7, -1) != 0).any((1, 2))) if "Pooling" in name else np.arange(24)
    y = STEPS if len(theirs.output.shape) == 3 else CLASSES
    same_losses(mine, theirs, x[rows], y[rows], batch=len(rows))
    np.testing.assert_allclose(mine.predict(x[rows]), theirs.predict(x[rows], verbose=0), rtol=1e-4, atol=1e-5)


def test_metrics_count_the_steps_that_are_not_masked():
    def build(k):
        layers = k.layers
        start = [k.Input((7,), dtype="int32"), layers.Embedding(20, 4, mask_zero=True)]
        model = k.Sequential([*start, layers.LSTM(5, return_sequences=True), layers.Dense(3, activation="softmax")])
        model.compile("sgd", "sparse_categorical_crossentropy", metrics=["accuracy"])
        return model

    mine, theirs = twins(build)
    expected = theirs.evaluate(TOKENS, STEPS, batch_size=24, verbose=0, return_dict=True)
    found = mine.evaluate(TOKENS, STEPS, batch_size=24, return_dict=True)
    assert found == pytest.approx(expected, rel=1e-4)
    assert mine.fit(TOKENS, STEPS, epochs=2, verbose=0).history["accuracy"][0] > 0


@pytest.mark.parametrize("kind", ["MultiHeadAttention", "Attention", "AdditiveAttention"])
@pytest.mark.parametrize("is_causal", [False, True])
def test_attention_takes_the_masks_of_its_inputs(kind, is_causal):
    def build(k):
        layers = k.layers
        first, second = k.Input((7,), dtype="int32"), k.Input((7,), dtype="int32")
        table = layers.Embedding(20, 4, mask_zero=True)
        query, value = table(first), table(second)
        if kind == "MultiHeadAttention":
            found = layers.MultiHeadAttention(2, 3)(query, value, use_causal_mask=is_causal)
        else:
            found = getattr(layers, kind)()([query, value], use_causal_mask=is_causal)
        joined = layers.Concatenate()([layers.Add()([query, found]), query])
        model = k.Model([first, second], layers.Dense(3, activation="softmax")(layers.LSTM(4)(joined)))
        model.compile("sgd", "sparse_categorical_crossentropy")
        return model

    mine, theirs = twins(build)
    started = np.concatenate([np.ones((24, 1), np.int32), TOKENS[:, 1:]], 1)
    same_losses(mine, theirs, [TOKENS, started[::-1].copy()], CLASSES, batch=24)


def test_masks_of_tensors_are_kerass():
    """Which layers keep a mask, merge two, or drop it."""

    def masks(k):
        layers, x = k.layers, k.ops.convert_to_tensor(TOKENS)
        table = layers.Embedding(20, 4, mask_zero=True)
        one, other = table(x), layers.Masking()(k.ops.convert_to_tensor(SEQUENCES))
        found = [one, other, layers.Add()([one, other]), layers.Concatenate()([one, other]),
                 layers.Concatenate(axis=1)([one, other]), layers.LSTM(3)(one),
                 layers.LSTM(3, return_sequences=True)(one), layers.Dense(2)(one), layers.LayerNormalization()(one),
                 layers.Dot(2)([one, other]), layers.Attention()([other, one]), layers.Activation("relu")(one),
                 *layers.GRU(3, return_sequences=True, return_state=True)(one),
                 layers.Bidirectional(layers.GRU(3, return_sequences=True))(one)]  # fmt: skip
        return [getattr(each, "_keras_mask", None) for each in found]

    for found, expected in zip(masks(ours), masks(keras), strict=True):
        assert (found is None) == (expected is None)
        if expected is not None:
            np.testing.assert_array_equal(found.numpy(), expected.numpy())


def test_a_mask_that_is_dropped_is_warned_of():
    with pytest.warns(UserWarning, match="drops the mask of its input"):
        ours.layers.Flatten()(ours.layers.Masking()(SEQUENCES))


def mean_of_steps(k):
    class Mean(k.layers.Layer):
        def __init__(self):
            super().__init__()
            self.supports_masking = True

        def call(self, inputs, mask=None):
            weight = k.ops.cast(k.ops.expand_dims(mask, -1), "float32")
            return k.ops.sum(inputs * weight, axis=1)

        def compute_mask(self, inputs, mask=None):
            return None

    return Mean


def test_layers_of_ones_own():
    """A mask is the argument ``mask`` of call, and compute_mask says what becomes of it."""
    for k in (ours, keras):
        with warnings.catch_warnings():
            warnings.simplefilter("error", UserWarning)
            found = mean_of_steps(k)()(k.layers.Masking()(k.ops.convert_to_tensor(SEQUENCES)))
        np.testing.assert_allclose(found.numpy(), SEQUENCES.sum(1), rtol=1e-5, atol=1e-6)
        assert getattr(found, "_keras_mask", None) is None


def test_masks_in_files(tmp_path):
    def build(k):
        layers = k.layers
        return k.Sequential([k.Input((7,), dtype="int32"), layers.Embedding(20, 4, mask_zero=True),
                             layers.RNN([layers.LSTMCell(5), layers.GRUCell(4)], return_sequences=True),
                             layers.GRU(3, zero_output_for_mask=True, kernel_constraint="max_norm")])  # fmt: skip

    mine, theirs = twins(build)
    mine.save(tmp_path / "mine.keras")
    theirs.save(tmp_path / "theirs.keras")
    expected = theirs.predict(TOKENS, verbose=0)
    for found in (keras.models.load_model(tmp_path / "mine.keras"), ours.models.load_model(tmp_path / "theirs.keras")):
        np.testing.assert_allclose(found.predict(TOKENS, verbose=0), expected, rtol=1e-4, atol=1e-5)
