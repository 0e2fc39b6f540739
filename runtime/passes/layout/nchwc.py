"""NCHW16c layout: regions around convolutions with constant weights use channels in blocks of 16 where that saves time.

A convolution, dense or depthwise, reads and writes either layout; elementwise operators, channel concatenations and
factors of channels keep it, means of planes read it; other operators get the value converted back. Results of a
convolution need no transpose then, nor does the input of a depthwise one; converting back costs more than is saved.
Channels that do not fill their last block are padded with zero weights.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from ...base.dataclass import dataclass
from ...ir import registry
from ...ir.builder import Builder
from ...ir.domain import CANDLE
from ...ir.graph import Graph, Node, Value
from ...ir.op import Op, Trait
from ...ir.registry import onnx
from ...ir.shape_inference import infer
from ...tensor.dtype import F32
from ...tensor.stored_tensor import StoredTensor
from ..pattern.replace_nodes import constant, graphs
from ..pattern.stage import PipelinePass

BLOCK = 16
TRANSPOSE_COST, RESTORE_COST = 1.0, 2.0
"""Cost of transposing an element of a convolution's result, and of restoring its layout: 0.15 ns on Zen 4, and about
twice that."""
FEW_OUTPUTS = 8
"""Output channels of dense convolutions up to which products of 16 of them are slower than turning the input back."""
MAX_PADDING = 4 / 3
"""Padded channels for each channel."""


@dataclass(frozen=True)
class UseNchwc:
    """Rewrite in place."""

    def run(self, graph: Graph) -> bool:
        """Rewrite in place; return whether any region was changed."""
        from ...jit.isa import features

        if "avx2" not in features() or not any(_heavy(graph, node) for node in graph.nodes):
            return False
        convolution = registry.operator("BlockedConv", CANDLE)
        assert convolution is not None
        infer(graph)
        return _Regions(graph).chosen(convolution)


def _heavy(graph: Graph, node: Node) -> bool:
    """Whether a node is a dense or depthwise convolution with constant weights that reads and writes blocks."""
    if node.op is not onnx.Conv:
        return False
    weight, others, group = constant(graph, node.inputs[1]), node.inputs[2:], node.attributes.get("group", 1)
    if weight is None or weight.dtype is not F32 or len(weight.shape) != 4:
        return False
    dense = group == 1 and weight.shape[0] > FEW_OUTPUTS
    plain = dense or (group == weight.shape[0] and weight.shape[1] == 1 and group >= BLOCK)
    biases = [constant(graph, value) for value in others if value is not None]
    return plain and all(bias is not None and bias.shape == weight.shape[:1] for bias in biases)


def _is_depthwise(node: Node) -> bool:
    return bool(node.attributes.get("group", 1) != 1)


def _blocks(channels: int) -> int:
    """Blocks that hold some channels."""
    return -(-channels // BLOCK)


def _channels(value: Value | None) -> int:
    """Channels of a value that may be in blocks, 0 for others; single elements lie alike in both layouts."""
    shape = None if value is None else value.shape
    if shape is None or value is None or value.dtype is not F32 or len(shape) != 4 or not isinstance(shape[1], int):
        return 0
    channels, gains = shape[1], shape[2:] != (1, 1)
    return channels if gains and channels >= BLOCK and BLOCK * _blocks(channels) <= MAX_PADDING * channels else 0


def _whole(value: Value | None) -> bool:
    """Whether the channels of a value fill complete blocks."""
    return _channels(value) > 0 and _channels(value) % BLOCK == 0


def _carried(graph: Graph, node: Node) -> list[Value]:
    """The inputs whose layout a node's output shares; empty if the operator does not support blocks."""
    if node.op.domain or len(node.outputs) != 1 or not _channels(node.outputs[0]):
        return []
    shape, given = node.outputs[0].shape, [value for value in node.inputs if value is not None]
    if node.op is onnx.Concat:
        return given if node.attributes.get("axis") == 1 and all(_whole(value) for value in given) else []
    same = [value for value in given if value.shape == shape and value.dtype is F32 and constant(graph, value) is None]
    rest = [constant(graph, value) for value in given if value not in same]
    numbers = all(held is not None and held.count == 1 and len(held.shape) < 2 for held in rest)
    finite = _whole(node.outputs[0]) or Trait.FINITE_AT_ZERO in node.op.traits
    return same if finite and (node.op.scalar is not None or node.op is onnx.Clip) and numbers else []


def _factors(graph: Graph, node: Node) -> tuple[Value, Value] | None:
    """A value and the computed factors of its channels, [n, channels, 1, 1], of a Mul of both; None for other nodes."""
    if node.op is not onnx.Mul:
        return None
    for x, scale in (node.inputs, node.inputs[::-1]):
        if x is None or scale is None or x.shape is None or not _whole(x) or scale.dtype is not F32:
            continue
        if constant(graph, scale) is not None:
            continue
        if x.shape[0] is not None and scale.shape == (*x.shape[:2], 1, 1) and scale.shape != x.shape:
            return x, scale
    return None


def _is_plane_mean(graph: Graph, node: Node) -> bool:
    """Whether a node computes the mean of each plane of channels that fill their blocks."""
    if node.op.domain or not _whole(node.inputs[0]):
        return False
    if node.op is not onnx.ReduceMean or len(node.inputs) < 2:
        return node.op is onnx.GlobalAveragePool
    axes = constant(graph, node.inputs[1])
    return axes is not None and sorted(axis % 4 for axis in axes.numpy().tolist()) == [2, 3]


class _Regions:
    """Sets of values that must share a layout."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.heavy = {node for node in graph.nodes if _heavy(graph, node)}
        self.readers: dict[Value, list[Node]] = defaultdict(list)
        self.region: dict[Value, list[Value]] = {}
        self.light: set[Node] = set()
        self.means = {node for node in graph.nodes if _is_plane_mean(graph, node)}
        self.scales: dict[Value, tuple[Value, Value]] = {}
        below = [inner for inner in graphs(graph) if inner is not graph]
        self.fixed = {*graph.outputs, *(value for inner in below for value in inner.outputs)}
        self.fixed.update(
            value for inner in below for node in inner.nodes for value in node.inputs if value is not None
        )
        for node in graph.nodes:
            for value in node.inputs:
                if value is not None:
                    self.readers[value].append(node)
        for node in graph.nodes:
            self._add(node)
        self.makers: set[Node | None] = {*self.heavy, *self.light}

    def _add(self, node: Node) -> None:
        """Join the values that share a layout because of a node."""
        carried, found = _carried(self.graph, node), _factors(self.graph, node)
        if found is not None and self._scales_convolution(node.outputs[0]):
            self.scales[node.outputs[0]] = found
            carried = [found[0]]
        if carried:
            self.light.add(node)
        elif node in self.heavy and _channels(node.outputs[0]):
            padded = _is_depthwise(node) and not _whole(node.outputs[0])
            carried = [value for value in node.inputs[:1] if padded and value is not None] or [node.outputs[0]]
        for value in carried:
            self._join(value, node.outputs[0])

    def _scales_convolution(self, value: Value) -> bool:
        """Whether a dense convolution reads a value, and nothing else."""
        readers = self.readers[value]
        dense = [node for node in readers if node in self.heavy and not _is_depthwise(node) and node.inputs[0] is value]
        return len(dense) == len(readers) == 1 and value not in self.fixed

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
            transposed = (value.producer in self.heavy) + sum(
                node in self.heavy and _is_depthwise(node) for node in self.readers[value]
            )
            gain += channels * (TRANSPOSE_COST * transposed - RESTORE_COST * bool(outside))
        return gain

    def _outside(self, value: Value) -> list[Node]:
        """Readers that do not support blocks."""
        return [
            node
            for node in self.readers[value]
            if node not in self.light
            and node not in self.means
            and not (node in self.heavy and node.inputs[0] is value and self._reads_blocks(node, value))
        ]

    @staticmethod
    def _reads_blocks(node: Node, value: Value) -> bool:
        """Whether a convolution takes the padding of a value: a depthwise one computes a plane for each channel of it,
        which only an output in blocks can hold."""
        return _whole(value) or not _is_depthwise(node) or _channels(node.outputs[0]) > 0

    def chosen(self, convolution: Op) -> bool:
        """Convert all regions that gain; return whether any did."""
        regions = {id(values): values for values in self.region.values()}.values()
        blocked = {value for values in regions if self._gain(values) > 0 for value in values}
        nodes, self.graph.nodes = self.graph.nodes, []
        for node in nodes:
            build = Builder(self.graph, stem=node.name or node.op.name)
            reads, writes = (bool(ends) and ends[0] in blocked for ends in (node.inputs, node.outputs))
            if node in self.means and reads:
                self._mean(node, build)
                continue
            if writes and node.outputs[0] in self.scales:
                continue
            if node in self.heavy and (reads or writes):
                self._convolution(node, convolution, reads, writes, build)
            build.keep(node)
            if writes:
                self._leaving(node.outputs[0], build)
        for value in blocked:
            count, channels, *sizes = value.shape or ()
            assert isinstance(channels, int)
            value.shape = (count, _blocks(channels), *sizes, BLOCK)
        return bool(blocked)

    def _convolution(self, node: Node, convolution: Op, reads: bool, writes: bool, build: Builder) -> None:
        """Have a convolution read or write blocks."""
        x, weight, *bias = node.inputs
        assert weight is not None
        held = constant(self.graph, weight)
        assert held is not None
        outputs, channels = held.shape[:2]
        attributes = {**node.attributes, "blocks_in": int(reads), "blocks_out": int(writes)}
        if writes:
            outputs = BLOCK * _blocks(outputs)
        if _is_depthwise(node):
            attributes["group"] = outputs
        elif reads:
            channels = BLOCK * _blocks(channels)
        weight = self._padded(weight, (outputs, channels), build)
        bias = [None if value is None else self._padded(value, (outputs,), build) for value in bias]
        inputs: list[Value | None] = [x, weight, *bias]
        if reads and x in self.scales:
            scaled, scale = self.scales[x]
            inputs = [scaled, weight, *(bias or [None]), scale]
        node.op, node.attributes, node.inputs = convolution, attributes, inputs

    def _padded(self, value: Value, lengths: Sequence[int], build: Builder) -> Value:
        """A constant with zeros after its first axes, up to some lengths."""
        held = constant(self.graph, value)
        assert held is not None
        behind = [(0, length - known) for known, length in zip(held.shape, lengths, strict=False)]
        if not any(count for _, count in behind):
            return value
        behind += [(0, 0)] * (len(held.shape) - len(lengths))
        return build.weight(StoredTensor.of(np.pad(held.numpy(), behind)))

    def _mean(self, node: Node, build: Builder) -> None:
        """The mean of planes of a value in blocks."""
        x, result = node.inputs[0], node.outputs[0]
        assert x is not None
        assert x.shape is not None
        mean = registry.operator("BlockedMean", CANDLE)
        assert mean is not None
        if node.attributes.get("keepdims", 1):
            build.add(mean, [x], outputs=[result])
        else:
            build.add("Reshape", [build.add(mean, [x]), build.constant([0, x.shape[1]])], outputs=[result])

    def _leaving(self, value: Value, build: Builder) -> None:
        """A value in NCHW, for readers that do not support blocks."""
        outside = self._outside(value)
        if not outside:
            return
        _, channels, *sizes = value.shape or ()
        assert isinstance(channels, int)
        transposed = build.add("Transpose", [value], {"perm": [0, 1, 4, 2, 3]})
        plain = build.add("Reshape", [transposed, build.constant([0, BLOCK * _blocks(channels), *sizes])])
        if channels % BLOCK:
            plain = build.add("Slice", [plain, *(build.constant([number]) for number in (0, channels, 1))])
        plain.dtype, plain.shape = value.dtype, value.shape
        for node in outside:
            node.inputs = [plain if item is value else item for item in node.inputs]


PIPELINE = (PipelinePass("layout", lambda options: UseNchwc(), backends=("cpu",)),)
