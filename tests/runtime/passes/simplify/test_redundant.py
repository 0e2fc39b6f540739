"""Redundant nodes are removed, computed shapes folded, moves merged; near misses are unchanged."""

import numpy as np
import pytest
from candle_convert.tests.oracles.before_and_after_pass import Net, in_onnxruntime, operators, rewritten

X = np.random.default_rng(2).normal(size=(2, 3, 4)).astype(np.float32)
ENDLESS = 2**62


def cut(net, x, start, end, axis):
    return net.add("Slice", x, net.integers(start), net.integers(end), net.integers(axis))


def left(net, y, tmp_path, feeds=None, dims=None, opset=18, **options):
    """Operators that are left of a network whose result goes through Atan, which no pass touches."""
    feeds = {"x": X} if feeds is None else feeds
    net.add("Atan", y, name="y")
    found = operators(
        rewritten(net.model(feeds, ["y"], opset, dims={"x": dims} if dims else None), feeds, tmp_path, **options)
    )
    return [name for name in found if name != "Atan"]


NOTHING = {
    "times one": lambda net: net.add("Mul", "x", 1.0),
    "one times": lambda net: net.add("Mul", net.constant(np.ones((1, 1, 1))), "x"),
    "over one": lambda net: net.add("Div", "x", 1.0),
    "plus zero": lambda net: net.add("Add", 0.0, "x"),
    "minus zero": lambda net: net.add("Sub", "x", 0.0),
    "power of one": lambda net: net.add("Pow", "x", 1.0),
    "reshape": lambda net: net.add("Reshape", "x", net.integers(2, -1, 4)),
    "slice": lambda net: net.add("Slice", "x", net.integers(0), net.integers(ENDLESS), net.integers(1)),
    "expand": lambda net: net.add("Expand", "x", net.integers(3, 1)),
    "tile": lambda net: net.add("Tile", "x", net.integers(1, 1, 1)),
    "pad": lambda net: net.add("Pad", "x", net.integers(0, 0, 0, 0, 0, 0)),
    "join": lambda net: net.add("Concat", "x", axis=1),
    "sum": lambda net: net.add("Sum", "x"),
    "there and back": lambda net: net.add("Squeeze", net.add("Unsqueeze", "x", net.integers(1)), net.integers(1)),
    "cast": lambda net: net.add("Cast", "x", to=1),
    "dropout": lambda net: net.add("Dropout", "x"),
    "reshaped back": lambda net: net.add("Reshape", net.add("Flatten", "x"), net.integers(2, 3, 4)),
    "transposed back": lambda net: net.add("Transpose", net.add("Transpose", "x", perm=[2, 0, 1]), perm=[1, 2, 0]),
}


@pytest.mark.parametrize("case", NOTHING)
def test_what_changes_nothing_goes(tmp_path, case):
    net = Net()
    assert left(net, NOTHING[case](net), tmp_path) == []


SOMETHING = {
    "slice backwards": lambda net: net.add(
        "Slice", "x", net.integers(-1), net.integers(-ENDLESS), net.integers(1), net.integers(-1)
    ),
    "slice of less": lambda net: net.add("Slice", "x", net.integers(0), net.integers(-1), net.integers(1)),
    "wider one": lambda net: net.add("Mul", "x", net.constant(np.ones((1, 1, 1, 1)))),
    "two": lambda net: net.add("Mul", "x", 2.0),
    "nearly one": lambda net: net.add("Mul", "x", 1.0001),
    "ones in a row": lambda net: net.add("Expand", "x", net.integers(2, 1, 1, 1)),
    "pad": lambda net: net.add("Pad", "x", net.integers(0, 0, 0, 0, 0, 1)),
    "zero minus": lambda net: net.add("Sub", 0.0, "x"),
    "one over": lambda net: net.add("Div", 1.0, "x"),
    "training": lambda net: net.add("Cast", net.add("Cast", "x", to=10), to=1),
}


@pytest.mark.parametrize("case", SOMETHING)
def test_what_changes_something_stays(tmp_path, case):
    net = Net()
    assert left(net, SOMETHING[case](net), tmp_path)


def test_nothing_is_known_of_a_length_that_may_be_one(tmp_path):
    feeds = {"x": X[:, :1], "z": np.zeros(3, np.int64)}
    net = Net()
    wide = net.add("Expand", "x", net.add("Concat", net.integers(1), net.add("Shape", "z"), net.integers(1), axis=0))
    assert left(net, wide, tmp_path, feeds, ("n", "m", 4)) == ["Expand"]


def test_lengths_by_name(tmp_path):
    """Shape, Gather, Unsqueeze and Concat that copy lengths become zeros and a minus one."""
    net = Net()
    shape = net.add("Shape", "x")
    batch = net.add("Unsqueeze", net.add("Gather", shape, net.constant(np.array(0), np.int64)), net.integers(0))
    length = net.add("Slice", shape, net.integers(1), net.integers(2))
    y = net.add("Reshape", "x", net.add("Concat", batch, length, net.integers(2, 2), axis=0))
    assert left(net, y, tmp_path, dims=("batch", "length", 4)) == ["Reshape"]
    graph = rewritten(net.model({"x": X}, ["y"], dims={"x": ("batch", "length", 4)}), {"x": X}, tmp_path)
    (node,) = (node for node in graph.nodes if node.op.name == "Reshape")
    assert graph.weights[node.inputs[1].name].numpy().tolist() == [0, 0, 2, 2]


@pytest.mark.parametrize("batch", [2, 0])
def test_a_batch_without_elements_keeps_its_shape(tmp_path, batch):
    feeds = {"x": X[:batch]}
    net = Net()
    shape = net.add("Shape", "x")
    rows = net.add("Mul", net.add("Slice", shape, net.integers(1), net.integers(2)), net.integers(2))
    y = net.add(
        "Reshape",
        "x",
        net.add("Concat", net.add("Slice", shape, net.integers(0), net.integers(1)), rows, net.integers(2), axis=0),
    )
    assert left(net, y, tmp_path, feeds, ("batch", "length", 4))[-1] == "Slice"


def test_lengths_that_are_not_known_are_not_guessed(tmp_path):
    net = Net()
    feeds = {"x": X, "z": np.array([3, 2, 4])}
    assert left(net, net.add("Reshape", "x", "z"), tmp_path, feeds) == ["Reshape"]


def test_expand_with_minus_one_for_what_is_there(tmp_path):
    net = Net()
    shape = net.add(
        "Concat",
        net.add("Slice", net.add("Shape", "x"), net.integers(0), net.integers(1)),
        net.integers(3),
        net.integers(4),
        axis=0,
    )
    wanted = net.add("Where", net.add("Equal", shape, net.integers(-1, -1, -1)), net.integers(1, 1, 1), shape)
    feeds = {"x": X[:, :1]}
    assert left(net, net.add("Expand", "x", wanted), tmp_path, feeds, ("batch", 1, 4)) == [
        "Concat",
        "Expand",
        "Shape",
        "Slice",
    ]


def test_a_choice_of_lengths_that_may_be_minus_one_stays(tmp_path):
    net = Net()
    feeds = {"x": X[:, :1], "z": np.array([-1, 3, 4])}
    wanted = net.add("Where", net.add("Equal", "z", net.integers(-1, -1, -1)), net.integers(1, 1, 1), "z")
    assert left(net, net.add("Expand", "x", wanted), tmp_path, feeds) == ["Equal", "Expand", "Where"]


MERGED = {
    "two shapes": (
        lambda net: net.add("Reshape", net.add("Reshape", "x", net.integers(6, 4)), net.integers(3, 8)),
        ["Reshape"],
    ),
    "unsqueezed twice": (
        lambda net: net.add("Unsqueeze", net.add("Unsqueeze", "x", net.integers(0)), net.integers(2)),
        ["Reshape"],
    ),
    "two slices": (lambda net: cut(net, cut(net, "x", 1, 3, 1), -3, -1, -1), ["Slice"]),
    "two slices of one axis": (lambda net: cut(net, cut(net, "x", 1, 3, 1), 1, 2, 1), ["Slice", "Slice"]),
    "two transpositions": (
        lambda net: net.add("Transpose", net.add("Transpose", "x", perm=[1, 0, 2]), perm=[2, 1, 0]),
        ["Transpose"],
    ),
    "joins": (
        lambda net: net.add(
            "Concat", net.add("Concat", "x", net.normal(2, 1, 4), axis=1), net.normal(2, 5, 4), axis=-2
        ),
        ["Concat"],
    ),
    "joins of two axes": (
        lambda net: net.add("Concat", net.add("Concat", "x", net.normal(2, 1, 4), axis=1), net.normal(2, 4, 1), axis=2),
        ["Concat", "Concat"],
    ),
    "softmax": (
        lambda net: net.add(
            "Reshape", net.add("Softmax", net.add("Flatten", "x", axis=2), axis=-1), net.add("Shape", "x")
        ),
        ["Softmax"],
    ),
    "softmax over more": (
        lambda net: net.add(
            "Reshape", net.add("Softmax", net.add("Flatten", "x", axis=1), axis=-1), net.add("Shape", "x")
        ),
        ["Flatten", "Reshape", "Softmax"],
    ),
    "matrices": (
        lambda net: net.add(
            "Reshape",
            net.add("Transpose", net.add("Reshape", "x", net.integers(-1, 3, 4)), perm=[0, 2, 1]),
            net.integers(2, 4, 3),
        ),
        ["Transpose"],
    ),
    "no matrices": (
        lambda net: net.add(
            "Reshape",
            net.add("Transpose", net.add("Reshape", "x", net.integers(1, 6, 4)), perm=[0, 2, 1]),
            net.integers(2, 4, 3),
        ),
        ["Reshape", "Reshape", "Transpose"],
    ),
}


@pytest.mark.parametrize("case", MERGED)
def test_moves_become_one(tmp_path, case):
    make, expected = MERGED[case]
    net = Net()
    assert left(net, make(net), tmp_path) == expected


def pair(net, x, scale=0.1, zero=3, kind=np.uint8):
    numbers = [net.constant(scale), net.constant(zero, kind)]
    return net.add("QuantizeLinear", x, *numbers), lambda q: net.add(
        "DequantizeLinear", q, net.constant(scale), net.constant(zero, kind)
    )


@pytest.mark.parametrize("kind", [np.uint8, np.int8])
def test_pairs_that_follow_each_other_are_one(tmp_path, kind):
    net = Net()
    one, back = pair(net, "x", kind=kind)
    other, again = pair(net, back(one), kind=kind)
    assert left(net, again(other), tmp_path) == ["DequantizeLinear", "QuantizeLinear"]


@pytest.mark.parametrize("other", [{"scale": 0.2}, {"zero": 4}, {"kind": np.int8}])
def test_pairs_that_differ_stay(tmp_path, other):
    net = Net()
    one, back = pair(net, "x")
    two, again = pair(net, back(one), **other)
    assert left(net, again(two), tmp_path) == [
        "DequantizeLinear",
        "DequantizeLinear",
        "QuantizeLinear",
        "QuantizeLinear",
    ]


def test_results_keep_their_names(tmp_path):
    net = Net()
    middle = net.add("Mul", "x", 1.0)
    net.add("Add", middle, 0.0, name="y")
    model = net.model({"x": X}, ["y", middle])
    graph = rewritten(model, {"x": X}, tmp_path)
    assert [value.name for value in graph.outputs] == ["y", middle]
    assert len(in_onnxruntime(model, {"x": X})) == 2
