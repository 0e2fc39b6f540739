"""Resize rules as nodes: the size that a picture gets, computed in a graph from its own size."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ...runtime.ir.builder import Builder
from ...runtime.ir.graph import Value
from .resize_rules import (
    Divisible,
    EdgesWithin,
    Exact,
    Letterbox,
    LongestEdge,
    Multiples,
    Ratio,
    Rule,
    ShortestEdge,
    Within,
)

INT64, DOUBLE = 7, 11
"""ONNX's numbers of types. Sizes are computed in f64, as Python does."""


class SizeNet(Builder):
    """Adds arithmetic on sizes to a graph."""

    def call(self, operator: str, *inputs: Any, **attributes: Any) -> Value:
        """A node; floats among the inputs become f64 constants, integers and lists of them int64 constants."""
        return self.add(operator, [self._value(each) for each in inputs], attributes)

    def real(self, x: Value) -> Value:
        """An integer as f64."""
        return self.call("Cast", x, to=DOUBLE)

    def whole(self, x: Value) -> Value:
        """An f64 as an integer, rounded towards 0."""
        return self.call("Cast", x, to=INT64)

    def rounded(self, x: Value) -> Value:
        """An f64 as the nearest integer, halves to even."""
        return self.whole(self.call("Round", x))

    def least(self, x: Value) -> Value:
        """The smaller of both edges, [1]."""
        return self.call("ReduceMin", x, keepdims=1)

    def most(self, x: Value) -> Value:
        """The larger of both edges, [1]."""
        return self.call("ReduceMax", x, keepdims=1)

    def multiple(self, x: Value, divisor: int) -> Value:
        """Integers cut to a multiple."""
        return self.call("Mul", self.call("Div", x, [divisor]), [divisor])

    def _value(self, given: Any) -> Value:
        if isinstance(given, Value):
            return given
        array = np.atleast_1d(np.asarray(given))
        return self.constant(array.astype(np.int64 if array.dtype.kind == "i" else np.float64))


def _exact(net: SizeNet, rule: Exact, size: Value) -> Value:
    return net.constant([rule.height, rule.width])


def _shortest_edge(net: SizeNet, rule: ShortestEdge, size: Value) -> Value:
    return net.call("Div", net.call("Mul", size, rule.length), net.least(size))


def _edges_within(net: SizeNet, rule: EdgesWithin, size: Value) -> Value:
    edges = net.real(size)
    short, long = net.least(edges), net.most(edges)
    ratio = net.call("Mul", net.call("Div", long, short), float(rule.shortest))
    limited = net.call("Div", net.call("Mul", short, float(rule.longest)), long)
    exact = net.call("Where", net.call("Greater", ratio, float(rule.longest)), limited, float(rule.shortest))
    length = net.rounded(exact)
    scaled = net.whole(net.call("Div", net.call("Mul", edges, exact), short))
    found = net.call("Where", net.call("Equal", size, net.least(size)), length, scaled)
    found = net.call("Where", net.call("Equal", net.least(size), length), size, found)
    return net.multiple(found, rule.multiple) if rule.multiple > 1 else found


def _longest_edge(net: SizeNet, rule: LongestEdge, size: Value) -> Value:
    edges = net.real(size)
    scaled = net.call("Mul", edges, net.call("Div", float(rule.length), net.most(edges)))
    return net.whole(net.call("Add", scaled, 0.5))


def _fitting(net: SizeNet, rule: Within | Letterbox, size: Value) -> Value:
    edges = net.real(size)
    scaled = net.call("Mul", edges, net.least(net.call("Div", [float(rule.height), float(rule.width)], edges)))
    return net.rounded(scaled) if isinstance(rule, Letterbox) else net.whole(scaled)


def _ratio(net: SizeNet, rule: Ratio, size: Value) -> Value:
    edges = net.real(size)
    ratios = net.call("Div", edges, [float(rule.height), float(rule.width)])
    return net.rounded(net.call("Div", edges, net.most(ratios) if rule.inside else net.least(ratios)))


def _multiples(net: SizeNet, rule: Multiples, size: Value) -> Value:
    edges = net.real(size)
    scales = net.call("Div", [float(rule.height), float(rule.width)], edges)
    if rule.keep_proportions:
        down, across = (net.call("Gather", scales, place, axis=0) for place in (0, 1))
        far, near = (net.call("Abs", net.call("Sub", 1.0, each)) for each in (down, across))
        scales = net.call("Where", net.call("Less", near, far), across, down)
    shares = net.call("Div", net.call("Mul", scales, edges), float(rule.multiple))
    nearest = net.call("Round", shares)
    found = net.call("Where", net.call("Greater", nearest, 0.0), nearest, net.call("Ceil", shares))
    return net.whole(net.call("Mul", found, float(rule.multiple)))


def _divisible(net: SizeNet, rule: Divisible, size: Value) -> Value:
    return net.multiple(size, rule.divisor)


RULES: Mapping[type, Callable[[SizeNet, Any, Value], Value]] = {
    Exact: _exact,
    ShortestEdge: _shortest_edge,
    EdgesWithin: _edges_within,
    LongestEdge: _longest_edge,
    Within: _fitting,
    Letterbox: _fitting,
    Ratio: _ratio,
    Multiples: _multiples,
    Divisible: _divisible,
}


def resized(net: SizeNet, rule: Rule, size: Value) -> Value:
    """Height and width that a rule gives a picture, int64 [2], from its own, int64 [2]."""
    return RULES[type(rule)](net, rule, size)
