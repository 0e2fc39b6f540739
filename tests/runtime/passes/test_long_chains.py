"""Passes on long chains and wide trees: no recursion over file contents, and bounded search."""

import numpy as np
import pytest
from candle_convert.formats.containers.onnx.reader import graph_of
from candle_convert.runtime.passes.simplification import Simplify
from candle_convert.runtime.session import Session
from candle_convert.tests.oracles.before_and_after_pass import Net
from candle_convert.tests.oracles.cpu_time import within

LENGTH = 1200
FEEDS = {"x": np.linspace(0.5, 1.5, 24, dtype=np.float32).reshape(2, 3, 4)}
LINKS = {
    "factors": lambda net, x, index: net.add("Mul", x, 1.0001),
    "squares": lambda net, x, index: net.add("Mul", x, x),
    "sums": lambda net, x, index: net.add("Add", x, 0.001),
    "gates": lambda net, x, index: net.add("Mul", x, net.add("Sigmoid", x)),
    "shapes": lambda net, x, index: net.add("Reshape", x, net.integers(*((6, 4), (2, 3, 4))[index % 2])),
    "transpositions": lambda net, x, index: net.add("Transpose", x, perm=[2, 0, 1]),
    "joins": lambda net, x, index: net.add("Concat", x, net.constant(np.ones((2, 3, 1))), axis=2),
    "layouts": lambda net, x, index: net.add("Relu", net.add("Transpose", x, perm=[0, 2, 1])),
}


@pytest.mark.parametrize("case", LINKS)
def test_chains(case):
    net, x = Net(), "x"
    for index in range(LENGTH if case != "joins" else 200):
        x = LINKS[case](net, x, index)
    net.add("Neg", x, name="y")
    made = net.model(FEEDS, ["y"])

    def simplified():
        graph = graph_of(made)
        Simplify().run(graph)
        return graph

    graph = within(30, simplified)
    if case != "squares":
        (plain,) = Session(graph_of(made), native=False, simplify=False).run(None, FEEDS)
        (found,) = Session(graph, native=False, simplify=False).run(None, FEEDS)
        np.testing.assert_allclose(found, plain, rtol=1e-4)


def test_a_tree_of_products():
    net, level = Net(), [f"x{index}" for index in range(256)]
    feeds = {name: np.full((2, 3), 1.01, np.float32) for name in level}
    while len(level) > 1:
        level = [net.add("Mul", one, other) for one, other in zip(level[::2], level[1::2], strict=True)]
    net.add("Neg", level[0], name="y")
    made = net.model(feeds, ["y"])
    assert not within(10, lambda: Simplify().run(graph_of(made)))
