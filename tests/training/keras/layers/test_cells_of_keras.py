"""Cells of recurrent layers against Keras on torch: steps, states, own cells, dropout."""

import numpy as np
import pytest
from candle_convert import keras as ours
from candle_convert.tests.oracles.real_keras import copy_weights, keras, same_losses, twins

RNG = np.random.default_rng(0)
ROWS = RNG.normal(size=(3, 4)).astype(np.float32)
SEQUENCES = RNG.normal(size=(3, 7, 4)).astype(np.float32)
CELLS = {
    "SimpleRNNCell": lambda k: k.SimpleRNNCell(5, activation="relu"),
    "LSTMCell": lambda k: k.LSTMCell(5, unit_forget_bias=False, bias_initializer="random_normal"),
    "GRUCell": lambda k: k.GRUCell(5, bias_initializer="random_normal"),
    "GRUCell before": lambda k: k.GRUCell(5, reset_after=False, recurrent_activation="hard_sigmoid"),
    "StackedRNNCells": lambda k: k.StackedRNNCells([k.LSTMCell(5), k.GRUCell(4)]),
}


def flat(item):
    return [each for part in item for each in flat(part)] if isinstance(item, list | tuple) else [item]


@pytest.mark.parametrize("name", CELLS)
def test_one_step(name):
    theirs, mine = CELLS[name](keras.layers), CELLS[name](ours.layers)
    for each in (theirs, mine):
        each.build((None, 4))
    copy_weights(theirs, mine)
    assert mine.state_size == theirs.state_size
    x = keras.ops.convert_to_tensor(ROWS)
    expected = theirs(x, theirs.get_initial_state(batch_size=3))
    found = mine(ours.ops.convert_to_tensor(ROWS), mine.get_initial_state(batch_size=3))
    expected, found = flat(theirs(x, expected[1])), flat(mine(ours.ops.convert_to_tensor(ROWS), found[1]))
    assert len(expected) == len(found)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one.detach().numpy(), other.detach().numpy(), rtol=1e-4, atol=1e-6)


def test_states_of_stacked_cells():
    def build(k):
        start = k.Input((7, 4))
        cells = [k.layers.LSTMCell(5), k.layers.GRUCell(4)]
        found = k.layers.RNN(cells, return_sequences=True, return_state=True)(start)
        return k.Model(start, [found[0], *flat(found[1:])])

    mine, theirs = twins(build)
    for one, other in zip(mine.predict(SEQUENCES), theirs.predict(SEQUENCES, verbose=0), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6)


def minimal(k):
    class Minimal(k.layers.Layer):
        """Keras' example of a cell of one's own."""

        def __init__(self, units, **options):
            super().__init__(**options)
            self.units = units
            self.state_size = units

        def build(self, input_shape):
            self.kernel = self.add_weight(shape=(input_shape[-1], self.units), initializer="uniform", name="kernel")
            self.recurrent_kernel = self.add_weight(shape=(self.units, self.units), initializer="uniform")

        def call(self, inputs, states):
            previous = states[0]
            found = k.ops.matmul(inputs, self.kernel) + k.ops.matmul(previous, self.recurrent_kernel)
            return found, [found]

    return Minimal


def test_a_cell_of_ones_own():
    def build(k):
        cell = minimal(k)
        model = k.Sequential([k.Input((7, 4)), k.layers.RNN([cell(6), cell(3)]), k.layers.Dense(1)])
        model.compile("sgd", "mse")
        return model

    mine, theirs = twins(build)
    same_losses(mine, theirs, SEQUENCES, ROWS[:, :1], batch=3)


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "SimpleRNN"])
def test_dropout_is_the_same_at_each_step(kind):
    """With a recurrent kernel of zeros, the output of a step is that of its input alone."""
    ours.utils.set_random_seed(0)
    layer = getattr(ours.layers, kind)(
        40, dropout=0.5, return_sequences=True, recurrent_dropout=0.25, recurrent_initializer="zeros", use_bias=False
    )
    x = np.ones((16, 3, 1), np.float32)
    layer(x)
    found = layer(x, training=True).detach().numpy()
    if kind == "LSTM":  # the carried state grows
        assert len(np.unique(np.abs(found[:, 0]).round(6) > 0)) == 2
        return
    is_kept = np.abs(found) > 1e-9
    np.testing.assert_array_equal(is_kept[:, 0], is_kept[:, 1])
    assert 0.2 < is_kept.mean() < 0.8
    assert np.abs(layer(x).detach().numpy() - layer(x, training=False).detach().numpy()).max() == 0


def test_recurrent_dropout_keeps_the_mean():
    ours.utils.set_random_seed(0)
    cell = ours.layers.SimpleRNNCell(1000, activation="linear", recurrent_dropout=0.4, recurrent_initializer="identity")
    cell.build((None, 1))
    state = [ours.ops.ones((8, 1000))]
    found = cell(np.zeros((8, 1), np.float32), state, training=True)[0].detach().numpy()
    assert set(np.unique(found.round(4))) == {0.0, np.float32(1 / 0.6).round(4)}
    assert found.mean() == pytest.approx(1, abs=0.05)
