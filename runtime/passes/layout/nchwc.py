"""NCHW16c layout: regions around convolutions with constant weights use channels in blocks of 16 where that saves time.

A convolution reads and writes either layout; elementwise operators and channel concatenations keep it; other operators
get the value converted back. Results of a convolution need no transpose then, which helps shallow kernels most;
converting back costs more than is saved.
"""

from __future__ import annotations

from collections import defaultdict

from ...base.dataclass import dataclass
from ...ir import registry
from ...ir.builder import Builder
from ...ir.graph import Graph, Node, Value
from ...ir.op import Op
from ...ir.shape_inference import infer
from ...tensor.dtype import F32
from ..pattern.replace_nodes import constant, graphs
from ..pattern.stage import PipelinePass

BLOCK = 16
TRANSPOSE_COST, RESTORE_COST = 1.0, 2.0
"""What turning an element of a convolution's result costs, and undoing the layout of one: 0.15 ns on Zen 4, and about
twice that."""


@dataclass(frozen=True)
class UseNchwc:
    """Rewrite in place."""

    def run(self, graph: Graph) -> bool:
        """Rewrite in place; return whether any region was changed."""
        from ...jit.isa import features

        if "avx512f" not in features() or not any(_heavy(graph, node) for node in graph.nodes):
            return False
        convolution = registry.operator("BlockedConv", "candle")
        assert convolution is not None
        infer(graph)
        return _Regions(graph).chosen(convolution)


def _heavy(graph: Graph, node: Node) -> bool:
    """Whether a node is a convolution with constant weights that reads and writes blocks."""
    if node.op.domain or node.op.name != "Conv" or node.attributes.get("group", 1) != 1:
        return False
    weight, others = constant(graph, node.inputs[1]), node.inputs[2:]
    plain = weight is not None and weight.dtype is F32 and len(weight.shape) == 4
    return plain and all(value is None or constant(graph, value) is not None for value in others)


def _whole(value: Value | None) -> bool:
    """Whether the channels of a value fill complete blocks."""
    shape = None if value is None else value.shape
    return (
        shape is not None
        and value is not None
        and value.dtype is F32
        and len(shape) == 4
        and isinstance(shape[1], int)
        and shape[1] % BLOCK == 0
    )


def _carried(graph: Graph, node: Node) -> list[Value]:
    """The inputs whose layout a node's output shares; empty if the operator does not support blocks."""
    if node.op.domain or len(node.outputs) != 1 or not _whole(node.outputs[0]):
        return []
    shape, given = node.outputs[0].shape, [value for value in node.inputs if value is not None]
    if node.op.name == "Concat":
        return given if node.attributes.get("axis") == 1 and all(_whole(value) for value in given) else []
    same = [value for value in given if value.shape == shape and value.dtype is F32 and constant(graph, value) is None]
    rest = [constant(graph, value) for value in given if value not in same]
    numbers = all(held is not None and held.count == 1 and len(held.shape) < 2 for held in rest)
    return same if (node.op.scalar is not None or node.op.name == "Clip") and numbers else []


class _Regions:
    """Sets of values that must share a layout."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.heavy = {node for node in graph.nodes if _heavy(graph, node)}
        self.readers: dict[Value, list[Node]] = defaultdict(list)
        self.region: dict[Value, list[Value]] = {}
        self.light: set[Node] = set()
        below = [inner for inner in graphs(graph) if inner is not graph]
        self.fixed = {*graph.outputs, *(value for inner in below for value in inner.outputs)}
        self.fixed.update(
            value for inner in below for node in inner.nodes for value in node.inputs if value is not None
        )
        for node in graph.nodes:
            for value in node.inputs:
                if value is not None:
                    self.readers[value].append(node)
            carried = _carried(graph, node)
            if carried:
                self.light.add(node)
                for value in carried:
                    self._join(value, node.outputs[0])
            elif node in self.heavy and _whole(node.outputs[0]):
                self._join(node.outputs[0], node.outputs[0])
        self.makers: set[Node | None] = {*self.heavy, *self.light}

    def _join(self, one: Value, other: Value) -> None:
        small, large = sorted((self.region.setdefault(one, [one]), self.region.setdefault(other, [other])), key=len)
        if small is not large:
            large += small
            self.region.update((value, large) for value in small)

    def _gain(self, values: list[Value]) -> float:
        """Elements, for one channel each, that need no transpose; -1 if the region cannot be converted."""
        gain = 0.0
        for value in values:
            _, channels, *sizes = value.shape or (0, 0)
            outside = self._outside(value)
            if (
                value in self.fixed
                or value.producer not in self.makers
                or (outside and not all(isinstance(dim, int) for dim in sizes))
            ):
                return -1.0
            assert isinstance(channels, int)
            gain += channels * (TRANSPOSE_COST * (value.producer in self.heavy) - RESTORE_COST * bool(outside))
        return gain

    def _outside(self, value: Value) -> list[Node]:
        """Readers that do not support blocks."""
        return [
            node
            for node in self.readers[value]
            if node not in self.light and not (node in self.heavy and node.inputs[0] is value)
        ]

    def chosen(self, convolution: Op) -> bool:
        """Convert all regions that gain; return whether any did."""
        regions = {id(values): values for values in self.region.values()}.values()
        blocked = {value for values in regions if self._gain(values) > 0 for value in values}
        nodes, self.graph.nodes = self.graph.nodes, []
        for node in nodes:
            build = Builder(self.graph, stem=node.name or node.op.name)
            reads, writes = (bool(ends) and ends[0] in blocked for ends in (node.inputs, node.outputs))
            if node in self.heavy and (reads or writes):
                attributes = {name: item for name, item in node.attributes.items() if name != "group"}
                node.op, node.attributes = (
                    convolution,
                    {**attributes, "blocks_in": int(reads), "blocks_out": int(writes)},
                )
            build.keep(node)
            if writes:
                self._leaving(node.outputs[0], build)
        for value in blocked:
            count, channels, *sizes = value.shape or ()
            assert isinstance(channels, int)
            value.shape = (count, channels // BLOCK, *sizes, BLOCK)
        return bool(blocked)

    def _leaving(self, value: Value, build: Builder) -> None:
        """A value in NCHW, for readers that do not support blocks."""
        outside = self._outside(value)
        if not outside:
            return
        _, channels, *sizes = value.shape or ()
        transposed = build.add("Transpose", [value], {"perm": [0, 1, 4, 2, 3]})
        plain = build.add("Reshape", [transposed, build.constant([0, channels, *sizes])])
        plain.dtype, plain.shape = value.dtype, value.shape
        for node in outside:
            node.inputs = [plain if item is value else item for item in node.inputs]


PIPELINE = (PipelinePass("layout", lambda options: UseNchwc(), backends=("cpu",)),)
