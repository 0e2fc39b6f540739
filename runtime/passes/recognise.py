"""Recognising: parts of a graph that look like a pattern become what they are."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ..build import Builder
from ..errors import Error
from ..graph import Graph, Node, Value
from ..infer import Facts
from ..record import dataclass
from .dead import DropDead
from .naming import Names
from .pattern import Pattern
from .rewrite import constant, graphs
from .view import Found, View

if TYPE_CHECKING:
    import numpy as np

FLOATS = ("f16", "bf16", "f32", "f64")


@dataclass(frozen=True)
class Match:
    """A part of a graph that a pattern fits."""

    found: Found
    root: Node
    graph: Graph
    facts: Facts
    view: View

    def __getitem__(self, name: str) -> Value:
        """The value of a variable."""
        item = self.found.bound[name]
        assert isinstance(item, Value)
        return item

    def get(self, name: str) -> Value | None:
        """The value of a variable that only some ways to match have."""
        return self[name] if name in self.found.bound else None

    def number(self, name: str) -> float:
        """A number."""
        item = self.found.bound[name]
        assert isinstance(item, float)
        return item

    def node(self, name: str) -> Node:
        """A named node."""
        item = self.found.bound[name]
        assert isinstance(item, Node)
        return item

    def has(self, name: str) -> bool:
        """Whether this way to match has such a name."""
        return name in self.found.bound

    def attributes(self, name: str) -> dict[str, Any]:
        """Attributes of a named node, defaults filled in."""
        node = self.node(name)
        return {**node.op.defaults, **node.attributes}

    def array(self, value: Value | None) -> Any:
        """The array of a constant, None for what is none."""
        held = constant(self.graph, value)
        return None if held is None or held.dtype.numpy is None else held.numpy()

    def integers(self, node: Node, index: int) -> list[int] | None:
        """An input of known integers; None where it is absent or not known."""
        value = node.inputs[index] if index < len(node.inputs) else None
        array = self.array(value)
        if array is not None:
            return [int(item) for item in array.reshape(-1)] if array.dtype.kind in "iu" else None
        known = self.facts.partial.get(value) if value is not None else None
        numbers = [dim for dim in known or () if isinstance(dim, int)]
        return numbers if known is not None and len(numbers) == len(known) else None


Build = Callable[[Match, Builder], Value | None]
"""Builds what a match means and gives its value; None where a condition does not hold."""


@dataclass(frozen=True)
class Rule:
    """What a pattern means.

    Attributes:
        opset: the first one of ai.onnx that can say it.
    """

    name: str
    pattern: Pattern
    build: Build
    opset: int = 1


@dataclass(frozen=True)
class Recognise:
    """Replace what rules recognise; what a pattern has inside must be used nowhere else.

    A replacement stands only if inference gives it the dtype and shape of what was there.

    Attributes:
        opset: rules that need a later one are left out.
    """

    rules: tuple[Rule, ...]
    opset: int | None = None

    def run(self, graph: Graph) -> bool:
        """Whether anything was replaced."""
        by_head: dict[str, list[Rule]] = defaultdict(list)
        for rule in self.rules:
            if self.opset is None or rule.opset <= self.opset:
                for head in rule.pattern.heads():
                    by_head[head].append(rule)
        if not any(node.op.name in by_head for inner in graphs(graph) for node in inner.nodes):
            return False
        work = _Work(graph, by_head)
        changed = False
        try:
            for inner in list(graphs(graph)):
                changed |= work.tree(inner)
        finally:
            work.facts.forget()
        if changed:
            DropDead().run(graph)
        return changed


class _Work:
    def __init__(self, graph: Graph, by_head: dict[str, list[Rule]]) -> None:
        self.facts = Names(graph)
        self.view = View(graph)
        self.by_head = by_head

    def tree(self, graph: Graph) -> bool:
        """One graph, its nodes from the last to the first, so that the greatest patterns come before what they contain."""
        self.view.graph = graph
        self.view.products.clear()
        self.facts.graphs = _around(graph)
        replaced: dict[Node, list[Node]] = {}
        for node in reversed(graph.nodes):
            if node in self.view.home and not node.op.domain and not any(value.name for value in node.outputs[1:]):
                made = self.replacement(node, graph)
                if made is not None:
                    replaced[node] = made
        graph.nodes = [made for node in graph.nodes for made in replaced.get(node, [node])]
        return bool(replaced)

    def replacement(self, node: Node, graph: Graph) -> list[Node] | None:
        for rule in self.by_head.get(node.op.name, ()):
            for found in rule.pattern.matches(node.outputs[0], Found(), self.view):
                if self.closed(found, node):
                    made = self.built(rule, Match(found, node, graph, self.facts, self.view))
                    if made is not None:
                        for inner in (*found.inner, node):
                            self.view.home.pop(inner, None)
                        return made
        return None

    def closed(self, found: Found, root: Node) -> bool:
        """Whether nothing outside uses what is inside."""
        own = {*found.inner, root}
        inside = [value for node in found.inner if node is not root for value in node.outputs]
        return not any(value in self.view.results or not own.issuperset(self.view.readers.get(value, ())) for value in inside)

    def built(self, rule: Rule, match: Match) -> list[Node] | None:
        graph, target = match.graph, match.root.outputs[0]
        nodes: list[Node] = []
        build = _Checked(graph, nodes, match.root.name or match.root.op.name, self.facts)
        try:
            result = rule.build(match, build)
        except Error:
            result = None
        maker = None if result is None else result.producer
        if result is None or not _agrees(target, result):
            build.undo()
            return None
        if maker is None or maker not in nodes:
            build.node("Identity", [result], outputs=[target])
        else:
            graph.values.pop(result.name, None)
            result.producer = None
            maker.outputs[maker.outputs.index(result)] = target
            target.producer = maker
            graph.values[target.name] = target
            maker.name = maker.name or match.root.name
        return nodes


class _Checked(Builder):
    """A builder that infers what it adds, and can take it back."""

    def __init__(self, graph: Graph, nodes: list[Node], stem: str, facts: Facts) -> None:
        super().__init__(graph, nodes, stem)
        self.facts = facts
        self.made: list[str] = []

    def keep(self, node: Node) -> None:
        super().keep(node)
        self.facts.infer_node(node)

    def constant(self, array: np.ndarray | Sequence[Any] | float, dtype: str = "int64") -> Value:
        value = super().constant(array, dtype)
        self.made.append(value.name)
        return value

    def undo(self) -> None:
        """Leave the graph as it was."""
        for node in self.nodes:
            for value in node.outputs:
                self.graph.values.pop(value.name, None)
        for name in self.made:
            del self.graph.weights[name]
            self.graph.values.pop(name, None)


def _agrees(before: Value, after: Value) -> bool:
    """Whether both are known to have one dtype and rank, and no length that differs."""
    if before.dtype is None or before.dtype is not after.dtype or before.shape is None or after.shape is None or before.container:
        return False
    pairs = list(zip(before.shape, after.shape, strict=False))
    same = len(before.shape) == len(after.shape)
    return same and all(one == other for one, other in pairs if isinstance(one, int) and isinstance(other, int))


def _around(graph: Graph) -> list[Graph]:
    """A graph and those around it, the outermost first."""
    found = [graph]
    while found[0].parent is not None:
        found.insert(0, found[0].parent)
    return found


def same_dims(one: Value, other: Value) -> bool:
    """Whether two values are known to have one shape."""
    return one.shape is not None and one.shape == other.shape and None not in one.shape


def is_float(*values: Value | None) -> bool:
    """Whether all are of floating-point dtypes."""
    return all(value is None or (value.dtype is not None and value.dtype.name in FLOATS) for value in values)
