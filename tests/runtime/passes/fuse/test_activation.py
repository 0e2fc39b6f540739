"""Activation fusion: every written form is fused, near misses are not."""

import math

import numpy as np
import pytest
from candle_convert.tests.oracles.before_and_after_pass import Net, operators, rewritten

HALF, ROOT = math.sqrt(0.5), math.sqrt(2 / math.pi)
X = np.concatenate([np.linspace(-12, 12, 41), [-90, 60, 0, 1e-3]]).reshape(5, 9)


def erf(net, x, *, inside="mul", order=0, half=0.5, root=None, one=1.0):
    inner = net.add("Div", x, root or math.sqrt(2)) if inside == "div" else net.add("Mul", root or HALF, x)
    gate = net.add("Add", net.add("Erf", inner), one)
    return product(net, x, half, gate, order)


def product(net, x, half, gate, order):
    """The three factors in some order and grouping."""
    if order == 0:
        return net.add("Mul", net.add("Mul", x, gate), half)
    if order == 1:
        return net.add("Mul", gate, net.add("Mul", half, x))
    if order == 2:
        return net.add("Mul", x, net.add("Mul", gate, half))
    return net.add("Div", net.add("Mul", x, gate), 1 / half)


def tanh(net, x, *, inner="pow", order=0, cubic=0.044715, half=0.5, one=1.0, root=ROOT, power=3.0):
    if inner == "merged":
        angle = net.add("Mul", x, net.add("Add", net.add("Mul", net.add("Mul", x, x), root * cubic), root))
    elif inner == "factored":
        angle = net.add(
            "Mul", net.add("Mul", x, root), net.add("Add", 1.0, net.add("Mul", net.add("Mul", x, cubic), x))
        )
    else:
        square = net.add("Mul", x, x)
        third = net.add("Pow", x, power) if inner == "pow" else net.add("Mul", x, square) if inner == "cube" else None
        scaled = (
            net.add("Mul", third, cubic) if third else net.add("Mul", x, net.add("Mul", x, net.add("Mul", cubic, x)))
        )
        angle = net.add("Mul", root, net.add("Add", x, scaled))
    return product(net, x, half, net.add("Add", one, net.add("Tanh", angle)), order)


def sigmoid(net, x, alpha=1.0, other=None):
    return net.add("Mul", net.add("Sigmoid", net.add("Mul", x, alpha) if alpha != 1 else x), other or x)


def hard(net, x, *, kind="clip", low=0.0, high=6.0, shift=3.0, over=6.0):
    if kind == "hard sigmoid":
        return net.add("Mul", x, net.add("HardSigmoid", x, alpha=1 / over, beta=shift / 6))
    moved = net.add("Add", x, shift)
    bounded = (
        net.add("Clip", moved, low, high) if kind != "min max" else net.add("Min", net.add("Max", moved, low), high)
    )
    return (
        net.add("Div", net.add("Mul", x, bounded), over)
        if kind == "clip"
        else net.add("Mul", x, net.add("Mul", bounded, 1 / over))
    )


def mish(net, x, *, log=False, outer="Tanh"):
    soft = net.add("Log", net.add("Add", net.add("Exp", x), 1.0)) if log else net.add("Softplus", x)
    return net.add("Mul", x, net.add(outer, soft))


FOUND = {
    **{
        f"erf {inside} {order}": (erf, {"inside": inside, "order": order}, "Gelu")
        for inside in ("mul", "div")
        for order in range(4)
    },
    **{f"tanh {inner}": (tanh, {"inner": inner}, "Gelu") for inner in ("pow", "cube", "chain", "merged", "factored")},
    **{f"tanh {order}": (tanh, {"order": order}, "Gelu") for order in range(1, 4)},
    "silu": (sigmoid, {}, "Swish"),
    "quick": (sigmoid, {"alpha": 1.702}, "Swish"),
    **{f"hard {kind}": (hard, {"kind": kind}, "HardSwish") for kind in ("clip", "scaled", "min max", "hard sigmoid")},
    "mish": (mish, {}, "Mish"),
    "mish of log": (mish, {"log": True}, "Mish"),
}


@pytest.mark.parametrize("case", FOUND)
def test_recognised(tmp_path, case):
    make, options, operator = FOUND[case]
    feeds = {"x": X.astype(np.float32)}
    net = Net()
    net.add("Neg", make(net, "x", **options), name="y")
    assert operators(rewritten(net.model(feeds, ["y"], dims={"x": ("n", 9)}), feeds, tmp_path)) == sorted(
        ["Neg", operator]
    )


@pytest.mark.parametrize(("make", "dtype"), [(erf, np.float16), (tanh, np.float16), (tanh, np.float64)])
def test_recognised_in_other_dtypes(tmp_path, make, dtype):
    feeds = {"x": (X / 8).astype(dtype)}
    net = Net()
    net.constant = lambda array, kind=dtype, plain=net.constant: plain(array, dtype)
    net.add("Neg", make(net, "x"), name="y")
    far = 1e-2 if dtype == np.float16 else 1e-7
    found = rewritten(
        net.model(feeds, ["y"], opset=20),
        feeds,
        tmp_path,
        rtol=far,
        atol=far,
        written=dtype == np.float16 and make is tanh,
    )
    assert operators(found) == ["Gelu", "Neg"]


MISSED = {
    "half": (erf, {"half": 0.25}),
    "root": (erf, {"root": 0.75}),
    "one": (erf, {"one": 2.0}),
    "nearly": (erf, {"root": 0.70711}),
    "cubic": (tanh, {"cubic": 0.0447}),
    "square": (tanh, {"power": 2.0}),
    "tanh half": (tanh, {"half": 0.6}),
    "tanh root": (tanh, {"root": 0.8}),
    "clip": (hard, {"high": 5.0}),
    "shift": (hard, {"shift": 2.0}),
    "over": (hard, {"over": 5.0}),
    "gate": (hard, {"kind": "hard sigmoid", "over": 5.0}),
    "sine": (mish, {"outer": "Sin"}),
    "negative": (sigmoid, {"alpha": -1.0}),
}


@pytest.mark.parametrize("case", MISSED)
def test_near_misses(tmp_path, case):
    make, options = MISSED[case]
    feeds = {"x": X.astype(np.float32)}
    net = Net()
    net.add("Neg", make(net, "x", **options), name="y")
    assert not {"Gelu", "Swish", "HardSwish", "Mish"} & set(
        operators(rewritten(net.model(feeds, ["y"]), feeds, tmp_path, rtol=1e-3))
    )


@pytest.mark.parametrize("make", [erf, tanh, hard, mish])
def test_another_value_is_multiplied(tmp_path, make):
    feeds = {"x": X.astype(np.float32), "z": X[::-1].astype(np.float32)}
    net = Net()
    swapped = make(net, "x")
    reads = [node for node in net.nodes if node.op_type == "Mul" and "x" in node.input]
    reads[-1].input[list(reads[-1].input).index("x")] = "z"
    net.add("Neg", swapped, name="y")
    assert not {"Gelu", "HardSwish", "Mish"} & set(
        operators(rewritten(net.model(feeds, ["y"]), feeds, tmp_path, rtol=1e-3))
    )


@pytest.mark.parametrize("make", [erf, tanh, sigmoid, hard, mish])
@pytest.mark.parametrize("result", [True, False], ids=["result", "shared"])
def test_a_gate_that_others_read_stays(tmp_path, make, result):
    feeds = {"x": X.astype(np.float32) / 8}
    net = Net()
    made = make(net, "x")
    gates = ("Erf", "Tanh", "Sigmoid", "Clip")
    gate = next(node.output[0] for node in net.nodes if node.op_type in gates)
    net.add("Neg", made, name="y")
    other = gate if result else net.add("Exp", gate)
    found = operators(rewritten(net.model(feeds, ["y", other]), feeds, tmp_path, rtol=1e-3))
    assert not {"Gelu", "Swish", "HardSwish", "Mish"} & set(found)


def test_a_constant_of_higher_rank_that_makes_the_result_larger(tmp_path):
    feeds = {"x": X.astype(np.float32)}
    net = Net()
    half = net.constant(np.full((1, 1, 1, 1), 0.5, np.float32))
    gate = net.add("Add", net.add("Erf", net.add("Mul", "x", HALF)), 1.0)
    net.add("Neg", net.add("Mul", net.add("Mul", "x", gate), half), name="y")
    assert "Gelu" not in operators(rewritten(net.model(feeds, ["y"]), feeds, tmp_path))


@pytest.mark.parametrize(("opset", "found"), [(19, ["Add", "Div", "Erf", "Mul", "Mul"]), (20, ["Gelu"])])
def test_no_operator_of_a_later_opset(tmp_path, opset, found):
    feeds = {"x": X.astype(np.float32)}
    net = Net()
    net.add("Neg", erf(net, "x", inside="div"), name="y")
    left = operators(rewritten(net.model(feeds, ["y"]), feeds, tmp_path, opset=opset))
    assert [name for name in left if name != "Neg"] == found
