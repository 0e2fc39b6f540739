"""Constants and padding folded into convolutions and pools, GroupNormalization fusion; near misses are unchanged."""

import numpy as np
import pytest
from candle_convert.tests.oracles.before_and_after_pass import Net, operators, rewritten

RNG = np.random.default_rng(8)
X = RNG.normal(size=(2, 4, 7, 6)).astype(np.float32)
FEEDS = {"x": X}


def left(net, y, tmp_path, feeds=FEEDS, results=(), **options):
    net.add("Atan", y, name="y")
    found = operators(rewritten(net.model(feeds, ["y", *results]), feeds, tmp_path, **options))
    return [name for name in found if name != "Atan"]


def conv(net, x="x", *, bias=False, kind="Conv", group=1, out=6):
    weight = net.normal(out, 4 // group, 3, 3) if kind == "Conv" else net.normal(4, out // group, 3, 3)
    return net.add(kind, x, weight, *([net.normal(out)] if bias else []), group=group, pads=[1, 1, 1, 1])


AFTER = {
    "bias": lambda net, y: net.add("Add", y, net.normal(6, 1, 1)),
    "bias before": lambda net, y: net.add("Add", net.normal(1, 6, 1, 1), y),
    "one for all": lambda net, y: net.add("Add", y, 0.5),
    "difference": lambda net, y: net.add("Sub", y, net.normal(1, 6, 1, 1)),
    "scale": lambda net, y: net.add("Mul", net.normal(6, 1, 1), y),
    "quotient": lambda net, y: net.add("Div", y, net.normal(1, 6, 1, 1)),
    "both": lambda net, y: net.add("Add", net.add("Mul", y, net.normal(6, 1, 1)), net.normal(6, 1, 1)),
    "bias and half": lambda net, y: net.add("Mul", net.add("Add", y, net.normal(6, 1, 1)), 0.5),
}


@pytest.mark.parametrize("case", AFTER)
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(("kind", "group"), [("Conv", 1), ("Conv", 2), ("ConvTranspose", 1)])
def test_constants_by_channel(tmp_path, case, bias, kind, group):
    net = Net()
    assert left(net, AFTER[case](net, conv(net, bias=bias, kind=kind, group=group)), tmp_path) == [kind]


STAYS = {
    "by row": lambda net, y: net.add("Add", y, net.normal(7, 1)),
    "by image": lambda net, y: net.add("Mul", y, net.normal(2, 1, 1, 1)),
    "more dims": lambda net, y: net.add("Add", y, net.normal(1, 1, 6, 1, 1)),
    "by a zero": lambda net, y: net.add("Mul", y, "z"),
    "the other way": lambda net, y: net.add("Sub", net.normal(6, 1, 1), y),
    "one over": lambda net, y: net.add("Div", net.normal(6, 1, 1), y),
    "too large": lambda net, y: net.add("Mul", net.add("Mul", y, 1e-30), net.constant(np.full((6, 1, 1), 3e38))),
}


@pytest.mark.parametrize("case", STAYS)
def test_other_operands_stay(tmp_path, case):
    feeds = {**FEEDS, "z": RNG.normal(size=(6, 1, 1)).astype(np.float32)}
    net = Net()
    y = STAYS[case](net, conv(net))
    assert len(left(net, net.add("Add", y, "z"), tmp_path, feeds, rtol=1e-3)) >= (2 if case == "too large" else 3)


def test_a_convolution_that_others_read_keeps_its_bias_apart(tmp_path):
    net = Net()
    y = conv(net)
    assert left(net, net.add("Add", y, net.normal(6, 1, 1)), tmp_path, results=[y]) == ["Add", "Conv"]


def test_grouped_transposed_convolutions_are_not_scaled_by_channel(tmp_path):
    net = Net()
    assert left(net, net.add("Mul", conv(net, kind="ConvTranspose", group=2), net.normal(6, 1, 1)), tmp_path) == [
        "ConvTranspose",
        "Mul",
    ]


def padded(net, x="x", pads=(0, 0, 1, 2, 0, 0, 0, 1), value=None, mode="constant"):
    return net.add(
        "Pad", x, net.integers(*pads), *([] if value is None else [net.constant(np.float32(value))]), mode=mode
    )


def test_padding_goes_into_a_convolution(tmp_path):
    net = Net()
    weight = net.normal(5, 4, 3, 3)
    graph_left = left(net, net.add("Conv", padded(net), weight, pads=[0, 1, 0, 0], strides=[2, 1]), tmp_path)
    assert graph_left == ["Conv"]


PADS_KEPT = {
    "another value": {"value": 1.0},
    "reflected": {"mode": "reflect"},
    "channels": {"pads": (0, 0, 1, 1, 0, 1, 1, 1)},
    "cut": {"pads": (0, 0, -1, 1, 0, 0, 1, 1)},
}


@pytest.mark.parametrize("case", PADS_KEPT)
def test_padding_of_another_kind_stays(tmp_path, case):
    net = Net()
    channels = 5 if case == "channels" else 4
    assert left(net, net.add("Conv", padded(net, **PADS_KEPT[case]), net.normal(5, channels, 3, 3)), tmp_path) == [
        "Conv",
        "Pad",
    ]


def test_padding_beside_automatic_padding_stays(tmp_path):
    net = Net()
    assert left(net, net.add("Conv", padded(net), net.normal(5, 4, 3, 3), auto_pad="SAME_UPPER"), tmp_path) == [
        "Conv",
        "Pad",
    ]


POOLS = {
    "average": ("AveragePool", {}, None, ["AveragePool"]),
    "average counted": ("AveragePool", {"count_include_pad": 1, "pads": [1, 0, 0, 0]}, None, ["AveragePool"]),
    "average not counted": ("AveragePool", {"pads": [1, 0, 0, 0]}, None, ["AveragePool", "Pad"]),
    "average of ones": ("AveragePool", {}, 1.0, ["AveragePool", "Pad"]),
    "largest": ("MaxPool", {}, -np.inf, ["MaxPool"]),
    "largest of zeros": ("MaxPool", {}, None, ["MaxPool", "Pad"]),
    "rounded up": ("AveragePool", {"ceil_mode": 1}, None, ["AveragePool", "Pad"]),
    "dilated": ("MaxPool", {"dilations": [2, 2]}, -np.inf, ["MaxPool", "Pad"]),
}


@pytest.mark.parametrize("case", POOLS)
def test_padding_before_pools(tmp_path, case):
    kind, attributes, value, expected = POOLS[case]
    net = Net()
    assert (
        left(net, net.add(kind, padded(net, value=value), kernel_shape=[3, 3], **attributes), tmp_path, opset=22)
        == expected
    )


@pytest.mark.parametrize(("before", "expected"), [("Relu", ["MaxPool", "Relu"]), ("Tanh", ["MaxPool", "Pad", "Tanh"])])
def test_zeros_around_what_is_never_negative(tmp_path, before, expected):
    net = Net()
    assert (
        left(net, net.add("MaxPool", padded(net, net.add(before, "x")), kernel_shape=[3, 3], strides=[2, 2]), tmp_path)
        == expected
    )


def group_norm(net, *, groups=2, scale=(4, 1, 1), bias=(4, 1, 1), ones=1.0, back=None, split=None):
    x = net.add("Reshape", "x", net.integers(*(split or (0, groups, -1))))
    width = groups if split is None else split[1]
    y = net.add(
        "InstanceNormalization", x, net.constant(np.full(width, ones)), net.constant(np.zeros(width)), epsilon=1e-3
    )
    y = net.add("Reshape", y, back or net.add("Shape", "x"))
    y = net.add("Mul", y, net.normal(*scale)) if scale else y
    return net.add("Add", y, net.normal(*bias)) if bias else y


@pytest.mark.parametrize(
    "options", [{}, {"scale": (1, 4, 1, 1)}, {"scale": None, "bias": None}, {"groups": 4}, {"groups": 1}]
)
def test_group_normalization(tmp_path, options):
    net = Net()
    assert left(net, group_norm(net, **options), tmp_path) == ["GroupNormalization"]


@pytest.mark.parametrize(
    "options",
    [
        {"ones": 2.0},
        {"split": (4, 2, -1)},
        {"split": (1, 4, -1)},
        {"scale": (7, 1), "bias": None},
        {"bias": (1, 1, 1, 1, 6)},
    ],
)
def test_no_group_normalization(tmp_path, options):
    net = Net()
    found = left(net, group_norm(net, **options), tmp_path)
    assert "GroupNormalization" not in found or len(found) > 1
