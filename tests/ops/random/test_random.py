"""Random numbers: moments, repeatability, dtypes; Dropout of every opset."""

import candle_convert.formats.containers.onnx.reader as onnx_graph
import numpy as np
import pytest
from candle_convert.runtime.base.errors import LimitError, UsageError
from candle_convert.runtime.base.limits import limits
from candle_convert.runtime.ir.op import case
from candle_convert.runtime.ir.registry import operator
from candle_convert.runtime.ir.shape_inference import infer
from candle_convert.runtime.session import Session
from candle_convert.tests.builders.single_node import model

ZEROS = np.zeros((200, 100), np.float32)


def run(name, example, opset=None):
    made, feeds = model(operator(name), example, opset)
    graph = onnx_graph.graph_of(made)
    infer(graph)
    results = Session(graph).run(None, feeds)
    for value, result in zip(graph.outputs, results, strict=True):
        assert value.shape == result.shape
        assert value.dtype is None or value.dtype.as_numpy() == result.dtype
    return results


DRAWS = [
    ("RandomNormal", case(shape=[200, 100], mean=3.0, scale=2.0, seed=5.0), 3, 2),
    ("RandomNormalLike", case(ZEROS, mean=-1.0, scale=0.5, dtype=11, seed=5.0), -1, 0.5),
    ("RandomUniform", case(shape=[200, 100], low=1.0, high=5.0, dtype=10, seed=5.0), 3, 4 / 12**0.5),
    ("RandomUniformLike", case(ZEROS, low=-2.0, high=0.0, seed=5.0), -1, 2 / 12**0.5),
    ("Bernoulli", case(ZEROS + 0.25, seed=5.0), 0.25, (0.25 * 0.75) ** 0.5),
    ("Bernoulli", case(ZEROS + 0.25, dtype=7, seed=5.0), 0.25, (0.25 * 0.75) ** 0.5),
]


@pytest.mark.parametrize(
    ("name", "example", "mean", "deviation"), DRAWS, ids=[f"{row[0]}-{index}" for index, row in enumerate(DRAWS)]
)
def test_moments(name, example, mean, deviation):
    (first,) = run(name, example)
    (again,) = run(name, example)
    np.testing.assert_array_equal(first, again)
    assert first.astype(np.float64).mean() == pytest.approx(mean, abs=0.05)
    assert first.astype(np.float64).std() == pytest.approx(deviation, rel=0.03)
    (other,) = run(name, case(*example.inputs, **{**example.attributes, "seed": 6.0}))
    assert (first != other).any()


def test_without_a_seed_every_run_differs():
    assert (run("RandomNormal", case(shape=[50]))[0] != run("RandomNormal", case(shape=[50]))[0]).any()


def test_multinomial_draws_by_log_probabilities():
    chances = np.array([[0.1, 0.2, 0.7], [0.5, 0.5, 0.0]])
    with np.errstate(divide="ignore"):
        logs = (np.log(chances) + 7).astype(np.float32)
    (drawn,) = run("Multinomial", case(logs, sample_size=20000, seed=2.0, dtype=7))
    assert drawn.dtype == np.int64
    found = np.stack([np.bincount(row, minlength=3) / 20000 for row in drawn])
    np.testing.assert_allclose(found, chances, atol=0.02)
    assert run("Multinomial", case(np.zeros((0, 3), np.float32), sample_size=4))[0].shape == (0, 4)


def test_sizes_are_refused_before_they_are_allocated():
    with limits(memory=1 << 20), pytest.raises(LimitError, match="E-RUN-MEMORY"):
        operator("RandomNormal").compute(shape=[1 << 40])
    with limits(memory=1 << 20), pytest.raises(LimitError, match="E-RUN-MEMORY"):
        operator("Multinomial").compute(np.zeros((1, 2), np.float32), sample_size=1 << 40)


X = np.arange(1, 13, dtype=np.float32).reshape(3, 4)
INFERENCE = [
    (1, {"is_test": 1, "ratio": 0.9, "consumed_inputs": [0]}),
    (6, {"is_test": 1, "ratio": 0.9}),
    (7, {"ratio": 0.9}),
    (10, {}),
    (12, {"seed": 3}),
    (22, {}),
]


@pytest.mark.parametrize("outputs", [1, 2])
@pytest.mark.parametrize(("opset", "attributes"), INFERENCE, ids=[str(row[0]) for row in INFERENCE])
def test_dropout_is_the_identity_in_inference(opset, attributes, outputs):
    results = run("Dropout", case(X, outputs=outputs, **attributes), opset)
    np.testing.assert_array_equal(results[0], X)
    if outputs == 2:
        assert results[1].dtype == (np.float32 if opset < 10 else bool)
        np.testing.assert_array_equal(results[1], np.ones_like(X))


def test_dropout_of_the_oldest_opsets_trains_unless_told():
    output, mask = run("Dropout", case(np.ones((100, 100), np.float32), ratio=0.25, outputs=2), 6)
    assert set(np.unique(output)) == {0, np.float32(1 / 0.75)}
    assert mask.dtype == np.float32
    np.testing.assert_array_equal(mask, output > 0)
    assert mask.mean() == pytest.approx(0.75, abs=0.03)


def test_training_dropout_draws_from_numpys_stream():
    output, mask = run("Dropout", case(X, np.float32(0.4), np.array(True), seed=9, outputs=2))
    kept = np.random.RandomState(9).uniform(0, 1, X.shape) >= np.float32(0.4)
    np.testing.assert_array_equal(mask, kept)
    np.testing.assert_allclose(output, X * kept / 0.6, rtol=1e-6)


def test_dropping_everything_is_refused():
    with pytest.raises(UsageError, match="E-OP-VALUE"):
        run("Dropout", case(X, np.float32(1), np.array(True)))
