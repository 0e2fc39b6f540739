"""RNN, GRU and LSTM against onnxruntime: drawn directions, lengths, activations, peepholes and clips at every opset;
layouts; what is refused."""

import numpy as np
import pytest
from candle_convert.ops.recurrent.recurrent import ACTIVATIONS
from candle_convert.runtime.base.errors import FormatError
from candle_convert.runtime.ir.op import Example
from candle_convert.tests.oracles.onnxruntime import compared, ours, single

CELLS = {"RNN": (1, 1, 2), "GRU": (3, 2, 2), "LSTM": (4, 3, 3)}
"""Gates, activations and outputs."""
NAMES = [
    "Relu",
    "Tanh",
    "Sigmoid",
    "Affine",
    "LeakyRelu",
    "ThresholdedRelu",
    "ScaledTanh",
    "HardSigmoid",
    "Elu",
    "Softsign",
    "Softplus",
]
DRAWS = 40


def floats(rng, *shape):
    return (rng.normal(size=shape) / 3).astype(np.float32)


def drawn(rng, name):
    gates, functions, _ = CELLS[name]
    direction = str(rng.choice(["forward", "reverse", "bidirectional"]))
    count = 2 if direction == "bidirectional" else 1
    length, batch, size, hidden = (int(value) for value in rng.integers(1, 6, 4))

    def maybe(*shape):
        return floats(rng, *shape) if rng.random() < 0.5 else None

    lengths = rng.integers(1, length + 1, batch).astype(np.int32) if rng.random() < 0.4 else None
    inputs = [
        floats(rng, length, batch, size),
        floats(rng, count, gates * hidden, size),
        floats(rng, count, gates * hidden, hidden),
    ]
    inputs += [maybe(count, 2 * gates * hidden), lengths, maybe(count, batch, hidden)]
    inputs += [maybe(count, batch, hidden), maybe(count, 3 * hidden)] if name == "LSTM" else []
    while inputs[-1] is None:
        inputs.pop()
    attributes = {"hidden_size": hidden, "direction": direction}
    if rng.random() < 0.3:
        attributes["clip"] = float(rng.uniform(0.2, 1))
    if rng.random() < 0.6:
        attributes["activations"] = [str(rng.choice(NAMES)) for _ in range(functions * count)]
        attributes |= {
            f"activation_{letter}": [float(value) for value in rng.uniform(0.1, 1, functions * count)]
            for letter in ("alpha", "beta")
        }
    if name == "GRU":
        attributes["linear_before_reset"] = int(rng.integers(0, 2))
    if name == "LSTM" and rng.random() < 0.3:
        attributes["input_forget"] = 1
    return inputs, attributes


@pytest.mark.parametrize("opset", [7, 14, 22])
@pytest.mark.parametrize("name", CELLS)
def test_drawn_recurrences(name, opset):
    rng = np.random.default_rng(opset)
    for _ in range(DRAWS):
        inputs, attributes = drawn(rng, name)
        compared(name, *inputs, opset=opset, outputs=CELLS[name][2], rtol=1e-3, atol=1e-4, **attributes)


def test_all_activations_are_drawn():
    assert {name.lower() for name in NAMES} == set(ACTIVATIONS)


@pytest.mark.parametrize("direction", ["forward", "bidirectional"])
@pytest.mark.parametrize("name", CELLS)
def test_batch_first_is_the_same_transposed(name, direction):
    gates, _, outputs = CELLS[name]
    rng, count = np.random.default_rng(1), 2 if direction == "bidirectional" else 1
    x, h = floats(rng, 5, 2, 3), floats(rng, count, 2, 4)
    weights = [
        floats(rng, count, 4 * gates, 3),
        floats(rng, count, 4 * gates, 4),
        floats(rng, count, 8 * gates),
        np.array([3, 5], np.int32),
    ]
    attributes = {"hidden_size": 4, "direction": direction}
    rows = ours(*single(name, Example((x, *weights, h), attributes, outputs), 22))
    first = ours(
        *single(
            name,
            Example((x.transpose(1, 0, 2), *weights, h.transpose(1, 0, 2)), {**attributes, "layout": 1}, outputs),
            22,
        )
    )
    np.testing.assert_array_equal(first[0], rows[0].transpose(2, 0, 1, 3))
    for one, other in zip(first[1:], rows[1:], strict=True):
        np.testing.assert_array_equal(one, other.transpose(1, 0, 2))


@pytest.mark.parametrize("name", CELLS)
def test_the_first_opsets(name):
    gates = CELLS[name][0]
    inputs = ("f32[4,2,3]", f"f32[1,{4 * gates},3]", f"f32[1,{4 * gates},4]")
    old = {"hidden_size": 4, "output_sequence": 1} | ({"direction": "foward"} if name == "GRU" else {})
    found = ours(*single(name, Example(inputs, old), 1))[0]
    np.testing.assert_array_equal(found, ours(*single(name, Example(inputs, {"hidden_size": 4}), 7))[0])


@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float16, 3e-3), (np.float64, 1e-5)])
@pytest.mark.parametrize("name", CELLS)
def test_other_floats(name, dtype, tolerance):
    gates = CELLS[name][0]
    rng = np.random.default_rng(4)
    wide = [floats(rng, *shape).astype(dtype) for shape in ((4, 2, 3), (1, 4 * gates, 3), (1, 4 * gates, 4))]
    found = ours(*single(name, Example(tuple(wide), {"hidden_size": 4}), 22))[0]
    expected = ours(*single(name, Example(tuple(item.astype(np.float32) for item in wide), {"hidden_size": 4}), 22))[0]
    assert found.dtype == dtype
    np.testing.assert_allclose(found.astype(np.float64), expected, rtol=tolerance, atol=tolerance)


REFUSED = [
    (("f32[4,2,3]", "f32[1,4,2]", "f32[1,4,4]"), {}),
    (("f32[4,2,3]", "f32[1,4,3]", "f32[1,4,4]"), {"direction": "bidirectional"}),
    (("f32[4,2,3]", "f32[1,4,3]", "f32[1,4,4]"), {"direction": "sideways"}),
    (("f32[4,2,3]", "f32[1,4,3]", "f32[1,4,4]", "f32[1,4]"), {}),
    (("f32[4,2,3]", "f32[1,4,3]", "f32[1,4,4]", None, np.array([5, 1], np.int32)), {}),
    (("f32[4,2,3]", "f32[1,4,3]", "f32[1,4,4]", None, None, "f32[1,3,4]"), {}),
    (("f32[4,2,3]", "f32[1,4,3]", "f32[1,4,4]"), {"activations": ["Gelu"]}),
    (("f32[4,2,3]", "f32[1,4,3]", "f32[1,4,4]"), {"hidden_size": 5}),
]


@pytest.mark.parametrize("index", range(len(REFUSED)))
def test_what_does_not_fit_is_refused(index):
    inputs, attributes = REFUSED[index]
    with pytest.raises(FormatError, match="RNN"):
        ours(*single("RNN", Example(inputs, attributes), 22))
