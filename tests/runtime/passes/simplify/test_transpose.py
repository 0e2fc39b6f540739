"""Transposes cancelled, merged and folded into products; near misses are unchanged."""

import numpy as np
import pytest
from candle_convert.tests.oracles.before_and_after_pass import Net, operators, rewritten

X = np.random.default_rng(4).normal(size=(2, 3, 5, 4)).astype(np.float32)
LAST, FIRST = [0, 2, 3, 1], [0, 3, 1, 2]
FEEDS = {"x": X}


def left(net, y, tmp_path, feeds=FEEDS, results=(), **options):
    net.add("Sinh", y, name="y")
    found = operators(rewritten(net.model(feeds, ["y", *results]), feeds, tmp_path, **options))
    return [name for name in found if name not in ("Sinh", "Conv")]


def channels_last(net, x="x"):
    return net.add("Transpose", x, perm=LAST)


def channels_first(net, x):
    return net.add("Transpose", x, perm=FIRST)


WORK = {
    "alone": lambda net, x: net.add("Relu", x),
    "scalar": lambda net, x: net.add("Mul", x, 3.0),
    "channels": lambda net, x: net.add("Add", x, net.normal(3)),
    "constant": lambda net, x: net.add("Add", net.normal(5, 4, 3), x),
    "two": lambda net, x: net.add("Mul", net.add("Sigmoid", x), x),
    "clip": lambda net, x: net.add("Clip", x, 0.0, 6.0),
    "where": lambda net, x: net.add("Where", net.add("Less", x, net.normal(1, 5, 4, 1)), net.add("Neg", x), x),
    "join": lambda net, x: net.add("Concat", x, net.add("Neg", x), net.normal(2, 5, 4, 2), axis=-1),
    "softmax": lambda net, x: net.add("Softmax", x, axis=-1),
    "mean": lambda net, x: net.add("ReduceMean", x, net.integers(1, -2), keepdims=1),
    "pad": lambda net, x: net.add("Pad", x, net.integers(0, 1, 2, 0, 0, 3, 0, 1)),
    "slice": lambda net, x: net.add("Slice", x, net.integers(1, 0), net.integers(4, 2), net.integers(1, -1)),
    "first axes sliced": lambda net, x: net.add("Slice", x, net.integers(0, 1), net.integers(2, 4)),
    "split": lambda net, x: net.add("Mul", *net.add("Split", x, net.integers(2, 2), axis=2, outputs=2)),
    "quantized": lambda net, x: net.add(
        "DequantizeLinear", net.add("QuantizeLinear", x, 0.1, net.constant(3, np.uint8)), 0.1, net.constant(3, np.uint8)
    ),
}


@pytest.mark.parametrize("case", WORK)
def test_transpositions_around_work_cancel(tmp_path, case):
    net = Net()
    assert "Transpose" not in left(net, channels_first(net, WORK[case](net, channels_last(net))), tmp_path)


def test_a_residual_branch(tmp_path):
    """Convolutions with channels first among work with channels last, as tf2onnx writes them."""
    net = Net()

    def conv(x):
        made = net.add("Conv", channels_first(net, x), net.normal(3, 3, 3, 3, scale=0.2), pads=[1, 1, 1, 1])
        return channels_last(net, made)

    x = channels_last(net)
    y = net.add("Relu", net.add("Add", conv(x), net.normal(3)))
    y = net.add("Relu", net.add("Add", net.add("Add", conv(y), net.normal(3)), x))
    assert "Transpose" not in left(net, channels_first(net, net.add("Tanh", y)), tmp_path)


def test_a_result_in_the_middle_keeps_its_layout(tmp_path):
    net = Net()
    middle = net.add("Relu", channels_last(net))
    assert left(net, channels_first(net, net.add("Tanh", middle)), tmp_path, results=[middle]) == [
        "Relu",
        "Tanh",
        "Transpose",
    ]


def test_an_order_that_is_its_own_inverse(tmp_path):
    """The second transpose undoes the first, and its result is read by work that reads the first one's too."""
    net = Net()
    a = net.add("Transpose", "a", perm=[1, 0])
    b = net.add("Transpose", net.add("Relu", a), perm=[1, 0])
    net.add("Concat", net.add("Sigmoid", net.add("Tanh", b)), a, axis=0, name="y")
    feeds = {"a": np.random.default_rng(6).normal(size=(3, 3)).astype(np.float32)}
    rewritten(net.model(feeds, ["y"]), feeds, tmp_path)


KEPT = {
    "another order": lambda net, x: net.add("Transpose", net.add("Relu", x), perm=[0, 2, 1, 3]),
    "a sum over all": lambda net, x: channels_first(net, net.add("CumSum", x, net.constant(1, np.int64))),
    "a larger constant": lambda net, x: net.add("Add", x, net.normal(2, 2, 5, 4, 3)),
    "another value": lambda net, x: channels_first(
        net, net.add("Add", x, net.add("Reshape", "x", net.integers(2, 5, 4, 3)))
    ),
    "nothing to cancel": lambda net, x: net.add("Relu", x),
    "read by others": lambda net, x: net.add("Add", net.add("Flatten", x), net.add("Flatten", net.add("Relu", x))),
}


@pytest.mark.parametrize("case", KEPT)
def test_near_misses(tmp_path, case):
    net = Net()
    assert "Transpose" in left(net, KEPT[case](net, channels_last(net)), tmp_path)


A = np.random.default_rng(6).normal(size=(4, 3)).astype(np.float32)


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (lambda net: net.add("MatMul", net.add("Transpose", "a", perm=[1, 0]), "b"), {"transA": 1}),
        (lambda net: net.add("MatMul", "a", net.add("Transpose", "b")), {"transB": 1}),
        (
            lambda net: net.add("Gemm", "a", net.add("Transpose", "b"), net.normal(4), alpha=0.5),
            {"alpha": 0.5, "transB": 1},
        ),
        (
            lambda net: net.add("Gemm", net.add("Transpose", "a"), net.add("Transpose", "b"), transA=1, transB=1),
            {"transA": 0, "transB": 0},
        ),
        (
            lambda net: net.add("Transpose", net.add("Gemm", "a", "b", transA=1, alpha=0.5)),
            {"alpha": 0.5, "transA": 1, "transB": 0},
        ),
    ],
)
def test_products_take_over_transpositions(tmp_path, made, expected):
    net = Net()
    net.add("Sinh", made(net), name="y")
    feeds = {"a": A, "b": A.copy()}
    if expected == {"transA": 0, "transB": 0}:
        feeds["b"] = A.T.copy()
    graph = rewritten(net.model(feeds, ["y"]), feeds, tmp_path)
    assert operators(graph) == ["Gemm", "Sinh"]
    assert graph.nodes[0].attributes == expected


def test_a_transposed_sum_stays(tmp_path):
    net = Net()
    net.add("Sinh", net.add("Transpose", net.add("Gemm", "a", "b", net.normal(3), transA=1)), name="y")
    feeds = {"a": A, "b": A.copy()}
    assert operators(rewritten(net.model(feeds, ["y"]), feeds, tmp_path)) == ["Gemm", "Sinh", "Transpose"]


def test_products_of_more_matrices_keep_their_transposition(tmp_path):
    feeds = {"a": X, "b": X}
    net = Net()
    net.add("Sinh", net.add("MatMul", "a", net.add("Transpose", "b", perm=[0, 1, 3, 2])), name="y")
    assert operators(rewritten(net.model(feeds, ["y"]), feeds, tmp_path)) == ["MatMul", "Sinh", "Transpose"]
