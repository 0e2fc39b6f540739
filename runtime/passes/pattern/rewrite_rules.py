"""Rewrite rules: pattern and replacement, applied until nothing matches and checked by shape inference."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ...base.dataclass import dataclass
from ...base.errors import Error
from ...ir.builder import Builder
from ...ir.graph import Graph, Node, Value
from ...ir.shape_inference import Facts
from .dead_code import RemoveDeadCode
from .graph_view import PartialMatch, View
from .pattern import Pattern
from .replace_nodes import constant, graphs, substitute
from .symbol_names import NamedDims

if TYPE_CHECKING:
    import numpy as np

FLOATS = ("f16", "bf16", "f32", "f64")


@dataclass(frozen=True)
class Match:
    """A match of a pattern in a graph."""

    found: PartialMatch
    root: Node
    graph: Graph
    facts: Facts
    view: View

    def __getitem__(self, name: str) -> Value:
        """The value bound to a variable."""
        item = self.found.bound[name]
        assert isinstance(item, Value)
        return item

    def get(self, name: str) -> Value | None:
        """The value bound to a variable, None if this alternative does not bind it."""
        return self[name] if name in self.found.bound else None

    def number(self, name: str) -> float:
        """The number bound to a name."""
        item = self.found.bound[name]
        assert isinstance(item, float)
        return item

    def node(self, name: str) -> Node:
        """The node bound to a name."""
        item = self.found.bound[name]
        assert isinstance(item, Node)
        return item

    def has(self, name: str) -> bool:
        """Whether this alternative binds a name."""
        return name in self.found.bound

    def attributes(self, name: str) -> dict[str, Any]:
        """Attributes of a named node, defaults filled in."""
        node = self.node(name)
        return {**node.op.defaults, **node.attributes}

    def array(self, value: Value | None) -> Any:
        """The array of a constant, None for other values."""
        held = constant(self.graph, value)
        return None if held is None or held.dtype.numpy is None else held.numpy()

    def integers(self, node: Node, index: int) -> list[int] | None:
        """A constant integer input; None if it is absent or not known."""
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
    """A pattern and its replacement.

    Attributes:
        opset: the first one of ai.onnx that can say it.
    """

    name: str
    pattern: Pattern
    build: Build
    opset: int = 1


@dataclass(frozen=True)
class ApplyRewriteRules:
    """Apply rewrite rules; inner nodes of a match must have no other readers.

    A replacement is kept only if inference gives it the dtype and shape of the original.

    Attributes:
        opset: rules that need a later opset are skipped.
    """

    rules: tuple[Rule, ...]
    opset: int | None = None

    def run(self, graph: Graph) -> bool:
        """Return whether anything was replaced."""
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
            results = {value for inner in graphs(graph) for value in inner.outputs}
            substitute(graph, {gone: kept for gone, kept in work.equal.items() if gone not in results})
            RemoveDeadCode().run(graph)
        return changed


class _Work:
    def __init__(self, graph: Graph, by_head: dict[str, list[Rule]]) -> None:
        self.facts = NamedDims(graph)
        self.view = View(graph)
        self.by_head = by_head
        self.equal: dict[Value, Value] = {}
        self._candidates: dict[tuple[str, ...], list[Rule]] = {}

    def tree(self, graph: Graph) -> bool:
        """Match one graph from its last node to its first, so that larger patterns come before the ones they
        contain."""
        self.view.graph = graph
        self.view.products.clear()
        self.facts.graphs = _around(graph)
        replaced: dict[Node, list[Node]] = {}
        for node in reversed(graph.nodes):
            if node in self.view.graph_of and not node.op.domain and not any(value.name for value in node.outputs[1:]):
                made = self.replacement(node, graph)
                if made is not None:
                    replaced[node] = made
        graph.nodes = [made for node in graph.nodes for made in replaced.get(node, [node])]
        return bool(replaced)

    def replacement(self, node: Node, graph: Graph) -> list[Node] | None:
        for rule in self.candidates(node):
            for found in rule.pattern.matches(node.outputs[0], PartialMatch(), self.view):
                if self.closed(found, node):
                    made = self.built(rule, Match(found, node, graph, self.facts, self.view))
                    if made is not None:
                        for inner in (*found.inner, node):
                            self.view.graph_of.pop(inner, None)
                        return made
        return None

    def candidates(self, node: Node) -> list[Rule]:
        """The rules whose pattern may match, by the operators of the node and of its inputs."""
        rules = self.by_head.get(node.op.name)
        if rules is None:
            return []
        makers = [value.producer.op.name for value in node.inputs if value is not None and value.producer is not None]
        key = (node.op.name, *makers)
        found = self._candidates.get(key)
        if found is None:
            found = self._candidates[key] = [
                rule
                for rule in rules
                if any(not any(each.isdisjoint(makers) for each in ways) for ways in rule.pattern.inner_makers())
            ]
        return found

    def closed(self, found: PartialMatch, root: Node) -> bool:
        """Whether no outside node reads an inner value."""
        own = {*found.inner, root}
        inside = [value for node in found.inner if node is not root for value in node.outputs]
        return not any(
            value in self.view.results or not own.issuperset(self.view.readers.get(value, ())) for value in inside
        )

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
            self.equal[target] = result
        else:
            graph.values.pop(result.name, None)
            result.producer = None
            maker.outputs[maker.outputs.index(result)] = target
            target.producer = maker
            graph.values[target.name] = target
            maker.name = maker.name or match.root.name
        return nodes


class _Checked(Builder):
    """A builder that infers the nodes it adds, and can undo them."""

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
        """Restore the graph."""
        for node in self.nodes:
            for value in node.outputs:
                self.graph.values.pop(value.name, None)
        for name in self.made:
            del self.graph.weights[name]
            self.graph.values.pop(name, None)


def _agrees(before: Value, after: Value) -> bool:
    """Whether dtype and rank are known and equal, and no dimension differs."""
    if (
        before.dtype is None
        or before.dtype is not after.dtype
        or before.shape is None
        or after.shape is None
        or before.container
    ):
        return False
    pairs = list(zip(before.shape, after.shape, strict=False))
    same = len(before.shape) == len(after.shape)
    return same and all(one == other for one, other in pairs if isinstance(one, int) and isinstance(other, int))


def _around(graph: Graph) -> list[Graph]:
    """A graph and its enclosing graphs, the outermost first."""
    found = [graph]
    while found[0].parent is not None:
        found.insert(0, found[0].parent)
    return found


def same_dims(one: Value, other: Value) -> bool:
    """Whether two values are known to have the same shape."""
    return one.shape is not None and one.shape == other.shape and None not in one.shape


def is_float(*values: Value | None) -> bool:
    """Whether all values have floating-point dtypes."""
    return all(value is None or (value.dtype is not None and value.dtype.name in FLOATS) for value in values)
