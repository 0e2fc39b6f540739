"""Native RNN, GRU and LSTM against the NumPy functions: every attribute, sizes that fill no vector, lengths, both
directions."""

import numpy as np
import pytest
from candle_convert.ops.recurrent import recurrent_kernel
from candle_convert.runtime.ir.op import Example
from candle_convert.tests.oracles.native_vs_numpy import natively

GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
ACTIVATIONS = [
    "Relu",
    "Tanh",
    "Sigmoid",
    "Softsign",
    "Softplus",
    "Affine",
    "ScaledTanh",
    "HardSigmoid",
    "LeakyRelu",
    "ThresholdedRelu",
    "Elu",
]


def drawn(rng, name, hidden=None):
    """A node with attributes and lengths at random."""
    times, batch, size, drawn_hidden = (int(rng.integers(1, most)) for most in (9, 20, 40, 70))
    hidden = hidden or drawn_hidden
    direction = str(rng.choice(["forward", "reverse", "bidirectional"]))
    count, gates, layout = 1 + (direction == "bidirectional"), GATES[name], int(rng.integers(0, 2))

    def floats(*shape):
        return rng.normal(0, 0.15, shape).astype(np.float32)

    state = (batch, count, hidden) if layout else (count, batch, hidden)
    inputs = [floats(*((batch, times) if layout else (times, batch)), size)]
    inputs += [floats(count, gates * hidden, size), floats(count, gates * hidden, hidden)]
    inputs.append(floats(count, 2 * gates * hidden) if rng.random() < 0.7 else None)
    inputs.append(rng.integers(0, times + 1, batch).astype(np.int32) if rng.random() < 0.5 else None)
    inputs.append(floats(*state) if rng.random() < 0.5 else None)
    if name == "LSTM":
        inputs += [
            floats(*state) if rng.random() < 0.5 else None,
            floats(count, 3 * hidden) if rng.random() < 0.5 else None,
        ]
    while inputs[-1] is None:
        inputs.pop()
    attributes = {"hidden_size": hidden, "direction": direction, "layout": layout}
    attributes |= {"clip": 0.7} if rng.random() < 0.3 else {}
    attributes |= {"input_forget": 1} if name == "LSTM" and rng.random() < 0.3 else {}
    attributes |= {"linear_before_reset": 1} if name == "GRU" and rng.random() < 0.5 else {}
    if rng.random() < 0.4:
        attributes["activations"] = [
            str(item) for item in rng.choice(ACTIVATIONS, {"LSTM": 3, "GRU": 2, "RNN": 1}[name] * count)
        ]
        attributes["activation_alpha"] = [float(item) for item in rng.uniform(0.1, 0.9, int(rng.integers(1, 4)))]
    return Example(tuple(inputs), attributes, 3 if name == "LSTM" else 2)


def as_numpy_has_it(name, example):
    constant = [index for index in (1, 2, 3, 7) if index < len(example.inputs) and example.inputs[index] is not None]
    natively(name, example, 22, rtol=2e-4, atol=2e-5, constant=constant)


@pytest.mark.parametrize("name", GATES)
def test_drawn_recurrence(name):
    rng = np.random.default_rng(len(name))
    for _ in range(40):
        as_numpy_has_it(name, drawn(rng, name))


@pytest.mark.parametrize("name", GATES)
def test_threads_share_hidden_units(name, monkeypatch):
    """Two threads give each bit that one gives, whatever the attributes, where one direction has few sequences."""
    rng, shared = np.random.default_rng(len(name)), []
    original = recurrent_kernel._shared
    monkeypatch.setattr(recurrent_kernel, "_shared", lambda *given: shared.append(original(*given)) or shared[-1])
    for _ in range(8):
        as_numpy_has_it(name, drawn(rng, name, hidden=320))
    assert 2 in shared


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
def test_dynamic_quantize_lstm(direction):
    """States come from the same integers; what is rounded may differ by one where powers of e differ in the last
    place."""
    rng = np.random.default_rng(7)
    count, times, batch, size, hidden = 1 + (direction == "bidirectional"), 6, 3, 10, 19
    w, r = (rng.integers(-128, 128, (count, rows, 4 * hidden)).astype(np.int8) for rows in (size, hidden))
    states = [rng.normal(0, 0.3, (count, batch, hidden)).astype(np.float32) for _ in range(2)]
    each = [
        rng.uniform(0.001, 0.003, (count, 4 * hidden)).astype(np.float32),
        rng.integers(-9, 9, (count, 4 * hidden)).astype(np.int8),
    ]
    whole = [np.full(count, 0.002, np.float32), np.full(count, 3, np.int8)]
    inputs = [
        rng.normal(0, 1, (times, batch, size)).astype(np.float32),
        w,
        r,
        rng.normal(0, 0.2, (count, 8 * hidden)).astype(np.float32),
    ]
    inputs += [
        np.array([6, 2, 4], np.int32),
        *states,
        rng.normal(0, 0.2, (count, 3 * hidden)).astype(np.float32),
        *each,
        *whole,
    ]
    example = Example(tuple(inputs), {"direction": direction, "hidden_size": hidden}, 3)
    natively(
        "DynamicQuantizeLSTM", example, 21, "com.microsoft", rtol=1e-3, atol=2e-3, constant=[1, 2, 3, 7, 8, 9, 10, 11]
    )
