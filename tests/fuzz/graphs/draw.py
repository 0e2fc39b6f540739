"""Random graphs, drawn node by node: every node is computed as it is drawn, and left out where that fails."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from candle_convert.runtime.base.errors import Error
from candle_convert.tests.fuzz.graphs.reference import computed, evaluate
from candle_convert.tests.fuzz.graphs.small_graph import Input, Node, SmallGraph, type_of

LENGTHS = (1, 1, 1, 2, 3, 4, 5, 7, 8, 16)
SHORT = (1, 1, 2, 2, 3)
LONG = (16, 17, 31, 33, 64, 96)
MAX_ELEMENTS, MAX_ELEMENTS_OF_LARGE = 3000, 60_000
MAX_MAGNITUDE = {"float32": 1e4, "float16": 1e3, "float64": 1e4, "int32": 1e8, "int64": 1e8}
FLOATS = ("float32",) * 9 + ("float16",)
RECENT = 6
"""Values among which most inputs are chosen."""


class Rejected(Exception):
    """A node that is not taken."""


Template = Callable[["Draw"], Any]


class Draw:
    """A graph that is being drawn.

    Attributes:
        random: draws all choices.
        values: the arrays of the first run by name.
        wide: whether it has many inputs of short axes, from which most values are made directly.
        large: whether some axes are long.
    """

    def __init__(self, seed: int, names: Iterator[int] | None = None) -> None:
        self.random = random.Random(seed)
        self.numbers = np.random.default_rng(seed)
        self.names = itertools.count() if names is None else names
        self.nodes: list[Node] = []
        self.inputs: dict[str, Input | None] = {}
        self.constants: dict[str, np.ndarray] = {}
        self.values: dict[str, np.ndarray] = {}
        self.inner = False
        self.wide = self.random.random() < 0.25
        self.large = not self.wide and self.random.random() < 0.08
        self.float = self.random.choice(FLOATS)
        self.empty = self.random.random() < 0.06
        self.symbols: dict[int, str] = {}
        self.lengths: dict[int, int] = {}

    def name(self, kind: str = "v") -> str:
        """A new name."""
        return f"{kind}{next(self.names)}"

    def chance(self, probability: float) -> bool:
        return self.random.random() < probability

    def length(self) -> int:
        """A length of an axis."""
        if self.empty and self.chance(0.1):
            return 0
        return self.random.choice(SHORT if self.wide else LONG if self.large and self.chance(0.5) else LENGTHS)

    def array(self, shape: Any, dtype: Any = None, scale: float = 1.0) -> np.ndarray:
        """Random elements."""
        kind = np.dtype(dtype or self.float)
        if kind.kind == "b":
            return self.numbers.random(shape) < 0.5
        if kind.kind in "iu":
            low, high = {"uint8": (0, 256), "int8": (-128, 128)}.get(kind.name, (-9, 10))
            return self.numbers.integers(low, high, shape).astype(kind)
        return np.asarray(self.numbers.standard_normal(shape) * scale).astype(kind)

    def input(self, shape: tuple[int, ...], dtype: Any = None, known: tuple[int, ...] = ()) -> str:
        """A new input, some dims of which are symbols, but not those of the axes `known`."""
        name, dims = self.name("x"), list[int | str](shape)
        for axis, length in enumerate(shape):
            if axis not in known and self.chance(0.5):
                dims[axis] = self.symbols.setdefault(length, f"n{length}")
        second = tuple(
            self.other(length) if isinstance(dim, str) else dim for length, dim in zip(shape, dims, strict=True)
        )
        self.inputs[name] = Input(tuple(dims), (self.array(shape, dtype), self.array(second, dtype)))
        self.values[name] = self.inputs[name].arrays[0]
        return name

    def other(self, length: int) -> int:
        """What the symbol of a length stands for in the second run."""
        if length not in self.lengths:
            self.lengths[length] = self.random.choice((1, length + 1, 2 * length, max(length - 1, 1)))
        return self.lengths[length]

    def const(self, array: Any, dtype: Any = None) -> str:
        """A new constant."""
        name = self.name("c")
        self.constants[name] = self.values[name] = np.asarray(array, dtype)
        return name

    def ints(self, *numbers: int) -> str:
        """A constant of i64."""
        return self.const(numbers, np.int64)

    def pick(self, where: Callable[[np.ndarray], bool] = lambda array: True, kinds: str = "f") -> str:
        """A value with elements of some kinds."""
        fitting = [
            name
            for name, array in self.values.items()
            if array.dtype.kind in kinds and (name not in self.constants or self.chance(0.05)) and where(array)
        ]
        if not fitting:
            raise Rejected
        return self.random.choice(fitting[-RECENT:] if not self.wide and self.chance(0.75) else fitting)

    def shape(self, name: str) -> tuple[int, ...]:
        return self.values[name].shape

    def rank(self, name: str) -> int:
        return self.values[name].ndim

    def dtype(self, name: str) -> np.dtype[Any]:
        return self.values[name].dtype

    def axis(self, name: str) -> int:
        """An axis, from the first or from the last."""
        rank = self.rank(name)
        if not rank:
            raise Rejected
        return self.random.randrange(-rank, rank)

    def add(self, op: str, *inputs: str, domain: str = "", outputs: int = 1, **attributes: Any) -> Any:
        """The output of a new node, or the list of its outputs."""
        made = tuple(self.name() for _ in range(outputs))
        node = Node(op, inputs, made, attributes, domain)
        try:
            with np.errstate(all="ignore"):
                results = computed(node, self.values)
        except (Error, ValueError, OverflowError) as error:
            raise Rejected from error
        if not all(map(self._taken, results)):
            raise Rejected
        self.nodes.append(node)
        self.values.update(zip(made, results, strict=True))
        return made[0] if outputs == 1 else list(made)

    def _taken(self, array: np.ndarray) -> bool:
        if array.size > (MAX_ELEMENTS_OF_LARGE if self.large else MAX_ELEMENTS) or array.ndim > 6:
            return False
        if not array.size:
            return self.empty
        most = MAX_MAGNITUDE.get(array.dtype.name)
        return most is None or bool(np.all(np.abs(array.astype(np.float64)) < most))

    def inside(self) -> Draw:
        """A graph inside of this one, which reads its values."""
        made = Draw(self.random.randrange(1 << 30), self.names)
        made.values, made.inner = dict(self.values), True
        made.wide, made.large, made.float, made.empty = self.wide, self.large, self.float, self.empty
        return made

    def body(self, outputs: list[str]) -> SmallGraph:
        """As a subgraph."""
        types = {name: type_of(self.values[name]) for name in (*self.inputs, *outputs)}
        graph = SmallGraph(tuple(self.nodes), self.inputs, self.constants, tuple(outputs), types)
        return replace(graph.needed(), inputs=self.inputs)


def finished(draw: Draw) -> SmallGraph:
    """The graph with some outputs: most of what nothing reads, some of what is read, at times an input or constant."""
    used = {name for node in draw.nodes for name in node.read}
    made = [name for node in draw.nodes for name in node.outputs if draw.values[name].dtype.kind in "fiub"]
    ends = [name for name in made if name not in used]
    outputs = ends if draw.wide else draw.random.sample(ends, min(len(ends), draw.random.choice((1, 2, 4, 8))))
    outputs += draw.random.sample(made, min(len(made), draw.random.choice((0, 0, 1, 2, 3))))
    if draw.chance(0.1):
        outputs.append(draw.random.choice([*draw.inputs, *draw.constants]))
    names = tuple(dict.fromkeys(outputs))
    graph = SmallGraph(
        tuple(draw.nodes), draw.inputs, draw.constants, names, {name: type_of(draw.values[name]) for name in names}
    ).needed()
    return graph if _both(graph) else _once(graph)


def _both(graph: SmallGraph) -> bool:
    """Whether the second run is possible too, and finite."""
    feeds = graph.feeds()
    if len(feeds) < 2:
        return False
    try:
        with np.errstate(all="ignore"):
            values = evaluate(graph, feeds[1])
    except (Error, ValueError, OverflowError):
        return False
    return all(
        bool(np.isfinite(array.astype(np.float64)).all()) for array in values.values() if array.dtype.kind == "f"
    )


def _once(graph: SmallGraph) -> SmallGraph:
    return replace(
        graph, inputs={name: item and Input(item.dims, item.arrays[:1]) for name, item in graph.inputs.items()}
    )
