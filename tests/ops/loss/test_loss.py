"""Losses against torch: reductions, weights, ignored labels, any number of dims, dtypes."""

import candle_convert.formats.containers.onnx.reader as onnx_graph
import numpy as np
import pytest
import torch
from candle_convert.runtime.base.errors import FormatError, UsageError
from candle_convert.runtime.ir.op import case
from candle_convert.runtime.ir.registry import operator
from candle_convert.runtime.ir.shape_inference import infer
from candle_convert.runtime.session import Session
from candle_convert.tests.builders.single_node import model

RNG = np.random.default_rng(8)
CLASSES = 5
SHAPES = [(4,), (2, 3), (2, 3, 2), (1, 2, 3, 2)]
WEIGHTS = RNG.uniform(0.2, 2, CLASSES).astype(np.float32)


def run(name, example):
    made, feeds = model(operator(name), example)
    graph = onnx_graph.graph_of(made)
    infer(graph)
    results = Session(graph).run(None, feeds)
    assert [value.shape for value in graph.outputs] == [result.shape for result in results]
    return results


@pytest.mark.parametrize("ignore", [None, 2, -1], ids=["all", "a class", "no class"])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("name", ["SoftmaxCrossEntropyLoss", "NegativeLogLikelihoodLoss"])
def test_as_torch(name, shape, reduction, weighted, ignore):
    scores = RNG.normal(size=(shape[0], CLASSES, *shape[1:])).astype(np.float32)
    labels = RNG.integers(0, CLASSES, shape)
    if ignore is not None:
        labels.flat[0] = ignore
    inputs = (scores, labels, WEIGHTS) if weighted else (scores, labels)
    attributes = {"reduction": reduction, **({} if ignore is None else {"ignore_index": ignore})}
    results = run(name, case(*inputs, outputs=2 if name.startswith("Soft") else 1, **attributes))
    logs = torch.log_softmax(torch.from_numpy(scores), 1) if name.startswith("Soft") else torch.from_numpy(scores)
    weight = torch.from_numpy(WEIGHTS) if weighted else None
    left_out = -100 if ignore is None else ignore
    expected = torch.nn.functional.nll_loss(
        logs, torch.from_numpy(labels), weight, reduction=reduction, ignore_index=left_out
    )
    np.testing.assert_allclose(results[0], expected.numpy(), rtol=2e-5, atol=1e-6)
    if len(results) > 1:
        np.testing.assert_allclose(results[1], logs.numpy(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dtype", [np.float16, np.float64])
def test_dtypes(dtype):
    scores = RNG.normal(size=(3, CLASSES)).astype(dtype)
    (loss,) = run("SoftmaxCrossEntropyLoss", case(scores, np.array([0, 4, 1], np.int32)))
    expected = torch.nn.functional.cross_entropy(torch.from_numpy(scores.astype(np.float64)), torch.tensor([0, 4, 1]))
    assert loss.dtype == dtype
    np.testing.assert_allclose(float(loss), float(expected), rtol=2e-3 if dtype == np.float16 else 1e-12)


SCORES = np.zeros((2, CLASSES), np.float32)


@pytest.mark.parametrize(
    "labels", [np.array([0, 5]), np.array([0, -2]), np.array([0, 1, 2]), np.zeros((2, 2), np.int64)], ids=str
)
def test_labels_that_do_not_fit_are_refused(labels):
    with pytest.raises(UsageError, match="E-OP-"):
        operator("NegativeLogLikelihoodLoss").compute(SCORES, labels)


@pytest.mark.parametrize(
    "example",
    [case(SCORES, np.array([0, 1]), reduction="max"), case(SCORES[0], np.array([0, 1]))],
    ids=["reduction", "rank"],
)
def test_inference_refuses_contradictions(example):
    made, _ = model(operator("SoftmaxCrossEntropyLoss"), example)
    with pytest.raises(FormatError, match="E-ONNX-NODE"):
        infer(onnx_graph.graph_of(made))
