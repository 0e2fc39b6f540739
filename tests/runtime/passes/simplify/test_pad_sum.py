"""Sums of padded parts that become one tensor of parts; near misses are unchanged."""

import numpy as np
import pytest
from candle_convert.tests.oracles.before_and_after_pass import Net, operators, rewritten

RNG = np.random.default_rng(5)
FEEDS = {name: RNG.normal(size=(2, count, 4)).astype(np.float32) for name, count in (("a", 1), ("b", 2), ("c", 3))}


def padded(net, name, before, behind, *fill):
    return net.add("Pad", name, net.integers(0, before, 0, 0, behind, 0), *fill)


def left(net, found, tmp_path):
    net.add("Sinh", found, name="y")
    return operators(rewritten(net.model(FEEDS, ["y"]), FEEDS, tmp_path))


@pytest.mark.parametrize("order", ["abc", "cab", "bca"])
def test_parts_in_any_order(tmp_path, order):
    net = Net()
    places = {"a": (2, 3), "b": (0, 4), "c": (3, 0)}
    first, second, third = (padded(net, name, *places[name]) for name in order)
    found = net.add("Add", net.add("Add", first, second), third)
    assert left(net, found, tmp_path) == ["Concat", "Sinh"]


KEPT = {
    "a gap": lambda net: net.add("Add", padded(net, "a", 0, 4), padded(net, "c", 2, 0)),
    "an overlap": lambda net: net.add("Add", padded(net, "b", 0, 2), padded(net, "c", 1, 0)),
    "another filling": lambda net: net.add("Add", padded(net, "b", 0, 3, 1.0), padded(net, "c", 2, 0)),
    "one operand": lambda net: net.add("Add", padded(net, "b", 0, 1), "c"),
    "another shape": lambda net: net.add(
        "Add", padded(net, "b", 0, 3), net.add("Pad", net.normal(1, 3, 4), net.integers(0, 2, 0, 0, 0, 0))
    ),
    "another axis": lambda net: net.add(
        "Add", padded(net, "b", 0, 3), net.add("Pad", net.normal(2, 5, 2), net.integers(0, 0, 2, 0, 0, 0))
    ),
}


@pytest.mark.parametrize("case", KEPT)
def test_near_misses(tmp_path, case):
    net = Net()
    assert "Concat" not in left(net, KEPT[case](net), tmp_path)


def test_parts_that_others_read(tmp_path):
    net = Net()
    part = padded(net, "b", 0, 3)
    found = net.add("Mul", net.add("Add", part, padded(net, "c", 2, 0)), part)
    assert "Concat" not in left(net, found, tmp_path)
