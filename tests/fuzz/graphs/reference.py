"""Reference values of small graphs, node by node in NumPy, and how far rounding can move them.

The distance is measured: what each node reads and computes is changed by random relative amounts of `ULPS` units in
the last place, several times, and each time the outputs move. That is the backward error that any order of summation
and any fused kernel may have, carried through the graph as the graph carries it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

import numpy as np
from candle_convert.formats.containers.onnx.reader import graph_of
from candle_convert.runtime.base.errors import Error
from candle_convert.runtime.ir.evaluate import evaluate_node
from candle_convert.runtime.session import Session
from candle_convert.tests.fuzz.graphs.small_graph import Node, SmallGraph, type_of

ULPS = 8
SAMPLES = 3
MARGIN = 6
"""Times the measured distance that a result may be away."""
MOVING = frozenset(
    (
        *("Concat", "Split", "Slice", "Pad", "Reshape", "Flatten", "Transpose", "Squeeze", "Unsqueeze", "Gather"),
        *("GatherElements", "GatherND", "Expand", "Tile", "Identity", "DepthToSpace", "SpaceToDepth", "Trilu", "Where"),
        *("ScatterND", "Shape", "ConstantOfShape", "Relu", "MaxPool", "Max", "Min", "ReduceMax", "Abs", "Neg", "TopK"),
        *("OneHot", "Clip"),
    )
)
"""Operators that round nothing."""
DIFFERENCES = frozenset(("Gelu", "LogSoftmax", "Softplus"))
"""Operators whose result may be a small difference of terms as large as the input."""
BRANCHES = frozenset(("If",))
"""Operators whose nodes run one of their graphs once."""
FOLDED = DIFFERENCES | {"InstanceNormalization", "Sigmoid"}
"""The same of onnxruntime, which computes this norm as a factor times the input plus a term that cancels it, and the
sigmoid as a half plus a term that cancels it."""
HALF = frozenset(("Sigmoid",))
"""Operators of `FOLDED` whose terms are a half, whatever the input is."""

Values = dict[str, Any]


def computed(node: Node, values: Mapping[str, Any]) -> list[Any]:
    """The outputs of one node."""
    read = {name: values[name] for name in sorted(node.read)}
    alone = SmallGraph((node,), dict.fromkeys(read), {}, (), {name: type_of(array) for name, array in read.items()})
    graph = graph_of(alone.model())
    results: dict[str, Any] = {}
    if node.subgraphs:
        graph.outputs = [graph.values[name] for name in node.outputs if name]
        found = Session(graph, 1, native=False, simplify=False).run(None, read)
        return list(found)
    known = {**read, **{name: tensor.numpy() for name, tensor in graph.weights.items()}}
    for item in graph.nodes:
        inputs = [None if value is None else known[value.name] for value in item.inputs]
        for value, result in evaluate_node(item, inputs, item.attributes, _without_subgraphs):
            known[value.name] = results[value.name] = np.asarray(result)
    return [results[name] for name in node.outputs if name]


def _without_subgraphs(graph: Any, feeds: Sequence[Any]) -> list[Any]:
    raise AssertionError


class Noise(Protocol):
    """Random changes of what nodes read and compute."""

    def read(self, node: Node, name: str, array: np.ndarray) -> np.ndarray:
        """An input of a node, changed."""

    def result(self, node: Node, array: np.ndarray, first: np.ndarray | None) -> np.ndarray:
        """An output of a node, changed; `first` is the node's first input."""


def evaluate(graph: SmallGraph, feeds: Mapping[str, np.ndarray], noise: Noise | None = None) -> Values:
    """Every value of a graph."""
    values: Values = {**graph.constants, **feeds}
    for node in graph.nodes:
        read = {name: values[name] if noise is None else noise.read(node, name, values[name]) for name in node.read}
        first = read.get(node.inputs[0]) if node.inputs else None
        results = computed(node, read) if noise is None or node.op not in BRANCHES else _branch(node, read, noise)
        for name, result in zip(filter(None, node.outputs), results, strict=True):
            values[name] = result if noise is None else noise.result(node, result, first)
    return values


def _branch(node: Node, values: Mapping[str, Any], noise: Noise) -> list[Any]:
    """The outputs of a condition's branch, each node of which is changed."""
    branch = node.attributes["then_branch" if values[node.inputs[0]] else "else_branch"]
    found = evaluate(branch, values, noise)
    return [found[name] for name in branch.outputs]


class Rounding:
    """Elements change by some units in their last place, or in that of the terms that they are the difference of.

    Args:
        differences: operators whose result may be a small difference of terms as large as the input.
    """

    def __init__(self, differences: frozenset[str] = DIFFERENCES) -> None:
        self._random = np.random.default_rng(0)
        self._differences = differences

    def read(self, node: Node, name: str, array: np.ndarray) -> np.ndarray:
        return self._moved(node, array)

    def result(self, node: Node, array: np.ndarray, first: np.ndarray | None) -> np.ndarray:
        if first is None or node.op not in self._differences:
            return self._moved(node, array)
        return self._moved(node, array, 0.5 if node.op in HALF else np.abs(first))

    def _moved(self, node: Node, array: np.ndarray, terms: Any = 0) -> np.ndarray:
        if array.dtype.kind != "f" or node.op in MOVING:
            return array
        change = self._random.uniform(-ULPS, ULPS, array.shape) * float(np.finfo(array.dtype).eps)
        with np.errstate(all="ignore"):
            return (array + np.maximum(np.abs(array), terms) * change).astype(array.dtype)


class Bounds:
    """The reference outputs of one run, and how far a result may be from them: by default, as far as rounding moves
    it."""

    def __init__(self, graph: SmallGraph, feeds: Mapping[str, np.ndarray], noise: Noise | None = None) -> None:
        self._graph, self._feeds = graph, feeds
        self.values = evaluate(graph, feeds)
        self._noise = noise or Rounding()
        self._samples: list[Values] = []

    def fault(self, name: str, found: Any) -> str | None:
        """What is wrong with the result for an output."""
        right = self.values[name]
        if not isinstance(found, np.ndarray) or (found.dtype, found.shape) != (right.dtype, right.shape):
            return f"{name} is {_type(found)}, not {_type(right)}"
        if np.array_equal(found, right, equal_nan=right.dtype.kind == "f"):
            return None
        for samples in (SAMPLES, 10 * SAMPLES):
            self._sample(samples)
            wrong, far = self._wrong(name, found)
            if not wrong.any():
                return None
        place = tuple(int(index) for index in np.unravel_index(int(wrong.argmax()), wrong.shape)) if wrong.ndim else ()
        return (
            f"{name}{list(place)} is {found[place]}, not {right[place]}; {int(wrong.sum())} of {wrong.size} elements "
            f"are wrong, allowed are {float(np.max(far)):.3g}"
        )

    def keep(self, outputs: Sequence[str]) -> None:
        """Compare other values."""
        self._graph = replace(self._graph, outputs=tuple(outputs))

    def _sample(self, count: int) -> None:
        while len(self._samples) < count:
            try:
                values = evaluate(self._graph, self._feeds, self._noise)
            except Error:  # shapes depend on values that rounding changes
                values = dict.fromkeys(self._graph.outputs, np.zeros((0,) * 9))
            self._samples.append({name: values[name] for name in self._graph.outputs})

    def _wrong(self, name: str, found: np.ndarray) -> tuple[np.ndarray, Any]:
        right = self.values[name]
        others = [sample[name] for sample in self._samples]
        if any(other.shape != right.shape for other in others):
            return np.zeros(1, bool), np.inf
        if right.dtype.kind == "f":
            wide = right.astype(np.float64)
            with np.errstate(all="ignore"):
                moved = max((float(np.max(np.abs(other - wide), initial=0)) for other in others), default=0.0)
                moved = moved if np.isfinite(moved) else np.inf
                kind = np.finfo(right.dtype)
                far = MARGIN * moved + 4 * float(kind.eps) * float(np.max(np.abs(wide), initial=0))
                far += float(kind.tiny) if kind.bits > 16 else 0.0  # exponentials of kernels have no subnormal numbers
                away = np.abs(found.astype(np.float64) - wide)
            return np.asarray(~((away <= far) | (found == right) | (np.isnan(found) & np.isnan(right)))), far
        stable = np.ones(right.shape, bool)
        for other in others:
            stable &= other == right
        return np.asarray(stable & (found != right)), 0


def _type(array: Any) -> str:
    return f"{array.dtype}{list(array.shape)}" if isinstance(array, np.ndarray) else type(array).__name__
