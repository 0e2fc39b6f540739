"""Element-wise branches become one kernel where nothing else reads them; results are those of onnxruntime."""

import numpy as np
import pytest
from candle_convert.formats.containers.onnx.reader import graph_of
from candle_convert.runtime.execute.timing import Clock
from candle_convert.runtime.session import Session
from candle_convert.tests.oracles.before_and_after_pass import Net, in_onnxruntime

X = np.random.default_rng(2).normal(size=(80, 64)).astype(np.float32)


def gated(net, slope="g"):
    """The slope of Gelu, whose two branches read the same input."""
    density = net.add("Exp", net.add("Mul", net.add("Mul", "x", "x"), -0.5))
    share = net.add("Add", net.add("Erf", net.add("Mul", "x", 0.70710678)), 1.0)
    return net.add("Mul", net.add("Add", net.add("Mul", "x", density), share), slope)


def read_twice(net):
    one = net.add("Sigmoid", "x")
    return net.add("Mul", net.add("Mul", net.add("Tanh", "g"), one), one)


def rows(net):
    return net.add("Add", net.add("Mul", "x", net.normal(64)), net.add("Exp", net.add("Neg", "g")))


def read_elsewhere(net):
    one = net.add("Exp", "x")
    found = net.add("Add", net.add("Mul", "g", "g"), one)
    return net.add("Add", found, net.add("ReduceSum", one, net.integers(1), keepdims=1))


def squared_and_read_elsewhere(net):
    """A kernel reads the operand of Pow twice, the other node reads it too."""
    one = net.add("Tanh", net.add("Exp", net.add("Neg", "x")))
    return net.add("Concat", net.add("Pow", one, 2.0), net.add("Slice", one, *map(net.integers, (0, 16, 1))), axis=1)


def broadcast(net):
    return net.add("Add", net.add("Exp", net.add("ReduceMax", "x", net.integers(1))), net.add("Mul", "g", "x"))


@pytest.mark.parametrize(
    ("case", "kernels"),
    [(gated, 1), (read_twice, 1), (rows, 1), (read_elsewhere, 4), (broadcast, 3), (squared_and_read_elsewhere, 5)],
)
def test_branches(case, kernels):
    net, feeds = Net(), {"x": X, "g": X[::-1].copy()}
    net.add("Identity", case(net), name="y")
    model, clock = net.model(feeds, ["y"]), Clock()
    session = Session(graph_of(model), native=True, threads=2)
    for _ in range(2):
        clock.events = []
        (found,) = session.run(None, feeds, clock=clock)
        np.testing.assert_allclose(found, in_onnxruntime(model, feeds)[0], rtol=1e-5, atol=1e-6)
    assert len(clock.events) == kernels


def test_chains_of_many_operands():
    """More operators than one kernel has, of which each reads one more input."""
    feeds = {f"x{place}": X + place for place in range(30)}
    net = Net()
    found = [net.add("Mul", name, 0.5) for name in feeds]
    while len(found) > 1:
        found = [net.add("Add", *found[:2]), *found[2:]]
    net.add("Identity", found[0], name="y")
    (result,) = Session(graph_of(net.model(feeds, ["y"])), native=True).run(None, feeds)
    np.testing.assert_allclose(result, 0.5 * np.sum(list(feeds.values()), 0), rtol=1e-5, atol=1e-4)
