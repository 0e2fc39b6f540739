"""Static int8 quantization in QDQ form, with activation ranges from calibration.

Every quantized value gets a QuantizeLinear and DequantizeLinear pair, so that any runtime can compute the graph and
one with integer kernels can fuse it. Weights get a DequantizeLinear alone; biases are int32 with the product of both
scales. Inputs of the nodes are quantized; outputs only where fused kernels need it, so that the results of other
nodes stay exact. Source: the ONNX operators' definitions, and the placement that ONNX Runtime's optimizer documents.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import field
from typing import TYPE_CHECKING

from ...base.dataclass import dataclass
from ...ir.builder import Builder
from ...ir.graph import Graph, Node, Value
from ...ir.op import Op
from ...ir.registry import onnx
from ...tensor.stored_tensor import StoredTensor
from ..pattern.replace_nodes import constant, graphs, output_axis, rewrite
from ..pattern.shared_constants import SharedConstants
from .dynamic_int8 import quantize_8bit
from .stored_codes import dequantizing, stored_codes

if TYPE_CHECKING:
    import numpy as np


class Role(enum.Enum):
    """Relation of the quantization of an operator's result to that of its inputs."""

    WEIGHTED = "input 1 may be a weight"
    MOVING = "results are elements of the first input, quantized with its scale"
    FOLLOWER = "an activation that runtimes fuse with the node before, whose output then needs no quantization"
    JOINING = "computed in integers if all inputs are quantized, and integers are what reads the result"
    POOLING = "averages of the first input"


def role_of(op: Op) -> Role | None:
    """The role of an operator; None for those that stay f32."""
    if op in (onnx.Conv, onnx.ConvTranspose, onnx.MatMul, onnx.Gemm):
        return Role.WEIGHTED
    if op in (onnx.Flatten, onnx.MaxPool, onnx.Reshape, onnx.Squeeze, onnx.Transpose, onnx.Unsqueeze):
        return Role.MOVING
    if op in (onnx.Relu, onnx.Clip):
        return Role.FOLLOWER
    if op in (onnx.Add, onnx.Mul, onnx.Concat):
        return Role.JOINING
    return Role.POOLING if op in (onnx.AveragePool, onnx.GlobalAveragePool) else None


INT32_MAX = 2**31 - 128
"""The largest int32 that f32 represents."""


@dataclass
class StaticInt8:
    """Quantize the inputs and weights of nodes, and some outputs.

    Attributes:
        ranges: least and greatest value of each f32 activation, by name; those without a range stay as they are.
        activation: uint8 (asymmetric) or int8 (symmetric).
        weight: int8 or uint8, symmetric.
        per_channel: a step for each output channel of a weight, instead of one.
        reduced: 7-bit codes of weights, whose sums of two products with bytes fit 16 bits.
        selected: whether a node may be changed.
        changed: names of the weights that were quantized.
    """

    ranges: Mapping[str, tuple[float, float]]
    activation: str = "uint8"
    weight: str = "int8"
    per_channel: bool = False
    reduced: bool = False
    selected: Callable[[Node], bool] = field(default=lambda node: True)
    changed: list[str] = field(default_factory=list)
    _rounded: dict[tuple[Graph, Value], Value] = field(default_factory=dict, repr=False)
    _grids: dict[Value, tuple[float, float]] = field(default_factory=dict, repr=False)
    _steps: dict[Value, np.ndarray] = field(default_factory=dict, repr=False)
    _shared: SharedConstants = field(default_factory=SharedConstants, repr=False)
    _uses: Counter[Value] = field(default_factory=Counter, repr=False)
    _followed: set[Value] = field(default_factory=set, repr=False)
    _fused: set[Value] = field(default_factory=set, repr=False)
    _wanted: set[Value] = field(default_factory=set, repr=False)
    _stored: set[Value] = field(default_factory=set, repr=False)

    def run(self, graph: Graph) -> bool:
        """Replace the nodes; return whether there were any. Weights that are dequantized keep their codes."""
        self._stored.update(value for value, codes in stored_codes(graph).items() if codes.name in ("i8", "u8"))
        for inner in graphs(graph):
            self._uses.update(value for node in inner.nodes for value in node.inputs if value is not None)
            self._uses.update(inner.outputs)
            self._want(inner)
            self._note_steps(inner)
            followers = [node for node in inner.nodes if role_of(node.op) is Role.FOLLOWER and self.selected(node)]
            self._followed.update(
                node.inputs[0]
                for node in followers
                if node.inputs[0] is not None and node.outputs[0].name in self.ranges
            )
        return rewrite(graph, self._replace)

    def _note_steps(self, graph: Graph) -> None:
        """Note the scales of stored weights: those of a DequantizeLinear, and a single one that later nodes keep."""
        for node in graph.nodes:
            first = node.inputs[0] if node.inputs else None
            if first is None or self._stored.isdisjoint(node.outputs):
                continue
            if node.op in dequantizing():
                scale = constant(graph, node.inputs[1])
                if scale is not None and scale.dtype.name == "f32":
                    self._steps[node.outputs[0]] = scale.numpy().reshape(() if scale.count == 1 else scale.shape)
            elif role_of(node.op) is Role.MOVING and first in self._steps and not self._steps[first].ndim:
                self._steps[node.outputs[0]] = self._steps[first]

    def _want(self, graph: Graph) -> None:
        """Note the values that nodes computed in integers read, at once or after nodes that pass them on."""
        for node in reversed(graph.nodes):
            role = role_of(node.op) if self.selected(node) else None
            passed = role in (Role.MOVING, Role.FOLLOWER, Role.JOINING) and not self._wanted.isdisjoint(node.outputs)
            if passed or role in (Role.WEIGHTED, Role.POOLING):
                self._wanted.update(value for value in node.inputs if value is not None)

    def _replace(self, node: Node, build: Builder) -> bool:
        if role_of(node.op) is None or not node.inputs or not self.selected(node) or not self._takes(node, build):
            return False
        for index, value in enumerate(node.inputs):
            node.inputs[index] = self._input(node, index, value, build)
        (output, *others) = node.outputs
        span = self._span(node)
        if node.op in (onnx.Conv, onnx.ConvTranspose) and output in self._followed and self._uses[output] == 1:
            self._fused.add(output)
            span = None
        if span is None:
            build.keep(node)
            return True
        raw = Value(build.name(output.name), output.dtype, output.shape)
        node.outputs = [raw, *others]
        build.keep(node)
        self._pair(raw, span, build, output)
        return True

    def _takes(self, node: Node, build: Builder) -> bool:
        """Whether all operands of the node can be quantized."""
        first, role = node.inputs[0], role_of(node.op)
        if role is Role.FOLLOWER:
            return first in self._fused
        if role is Role.MOVING:
            return first in self._grids
        if role is Role.JOINING:
            return node.outputs[0] in self._wanted and all(self._is_known(value) for value in node.inputs)
        if role is not Role.WEIGHTED:
            return self._is_known(first)
        second = node.inputs[1]
        weight = constant(build.graph, second)
        if weight is None and node.op is onnx.MatMul and (weight := constant(build.graph, first)) is not None:
            first = second
        if weight is None:
            if node.op is onnx.MatMul and first in self._stored:
                first, second = second, first
            return (second in self._stored or self._is_known(second)) and self._is_known(first)
        return weight.dtype.name == "f32" and 0 not in weight.shape and self._is_known(first)

    def _is_known(self, value: Value | None) -> bool:
        return value is not None and (value.name in self.ranges or value in self._grids)

    def _span(self, node: Node) -> tuple[float, float] | None:
        """The range of the output's quantization; None if it stays f32."""
        role = role_of(node.op)
        if role is Role.MOVING:
            assert node.inputs[0] is not None
            return self._grids[node.inputs[0]]
        closed = node.op in (onnx.Conv, onnx.ConvTranspose)  # their integer kernels have only integer outputs
        return self.ranges.get(node.outputs[0].name) if closed or role is Role.FOLLOWER else None

    def _input(self, node: Node, index: int, value: Value | None, build: Builder) -> Value | None:
        if value is None or value in self._grids or role_of(node.op) is Role.FOLLOWER:
            return value
        tensor = constant(build.graph, value)
        if tensor is None:
            return self._activation(value, build) if value.name in self.ranges else value
        if role_of(node.op) is not Role.WEIGHTED or tensor.dtype.name != "f32":
            return value
        if index == 1 or (index == 0 and node.op is onnx.MatMul):
            return self._weight(node, value, tensor, build, left=index == 0)
        return self._bias(node, tensor.numpy(), build) if index == 2 and len(tensor.shape) == 1 else value

    def _activation(self, value: Value, build: Builder) -> Value:
        place = (build.graph, value)
        if place not in self._rounded:
            self._rounded[place] = self._pair(value, self.ranges[value.name], build)
        return self._rounded[place]

    def _pair(self, value: Value, span: tuple[float, float], build: Builder, output: Value | None = None) -> Value:
        step, zero = self._grid(*span)
        grid = [build.constant(step), build.constant(zero)]
        codes = build.add("QuantizeLinear", [value, *grid])
        result = build.add("DequantizeLinear", [codes, *grid], outputs=1 if output is None else [output])
        self._steps[result], self._grids[result] = step, span
        return result

    def _grid(self, low: float, high: float) -> tuple[np.ndarray, np.ndarray]:
        """The f32 scale and the zero point for a range."""
        import numpy

        low, high = min(low, 0.0), max(high, 0.0)
        least = float(numpy.finfo(numpy.float32).tiny)
        if self.activation == "int8":
            return numpy.array(max(-low / 127, high / 127, least), numpy.float32), numpy.array(0, numpy.int8)
        step = numpy.array(max(high / 255 - low / 255, least), numpy.float32)
        return step, numpy.array(numpy.clip(round(-low / float(step)), 0, 255), numpy.uint8)

    def _weight(self, node: Node, value: Value, tensor: StoredTensor, build: Builder, *, left: bool) -> Value:
        """The dequantized codes of a weight; one on the left has the type of activations, which runtimes multiply."""
        rank = len(tensor.shape)
        axis = output_axis(node)
        shared = node.op is onnx.ConvTranspose and node.attributes.get("group", 1) != 1
        channels = (
            self.per_channel and rank > 1 and not shared and (node.op is not onnx.MatMul or rank == 2) and not left
        )
        axis %= max(rank, 1)
        others = tuple(other for other in range(rank) if other != axis) if channels else None
        dtype = self.activation if left else self.weight
        inputs = self._shared.constants(
            build, value, (others, dtype), lambda: quantize_8bit(tensor.numpy(), dtype, others, reduced=self.reduced)
        )
        self.changed.append(value.name)
        result = build.add("DequantizeLinear", inputs, {"axis": axis} if channels else {})
        steps = constant(build.graph, inputs[1])
        assert steps is not None
        self._steps[result] = steps.numpy()
        return result

    def _bias(self, node: Node, bias: np.ndarray, build: Builder) -> Value | None:
        """A bias in units of the product of scales; unchanged if it overflows int32, or has a factor."""
        import numpy

        left, right = node.inputs[0], node.inputs[1]
        scaled = node.attributes.get("beta", 1.0) != 1 or node.attributes.get("alpha", 1.0) != 1
        if scaled or left not in self._steps or right not in self._steps:
            return node.inputs[2]
        steps = (self._steps[left] * self._steps[right]).astype(numpy.float32)
        if steps.shape not in ((), bias.shape) or not steps.all() or not numpy.isfinite(steps).all():
            return node.inputs[2]
        if steps.ndim and not self._is_by_output(node, right, build):
            return node.inputs[2]
        with numpy.errstate(over="ignore"):
            scaled_bias = bias / steps
        if (numpy.abs(scaled_bias) > INT32_MAX).any():
            return node.inputs[2]
        codes = numpy.rint(scaled_bias).astype(numpy.int32)
        parts = (codes, steps, numpy.zeros(steps.shape, numpy.int32))
        return build.add(
            "DequantizeLinear", [build.constant(part) for part in parts], {"axis": 0} if steps.ndim else {}
        )

    def _is_by_output(self, node: Node, weight: Value, build: Builder) -> bool:
        """Whether the scales of a dequantized weight are those of output channels."""
        made = weight.producer
        codes = None if made is None else constant(build.graph, made.inputs[0])
        return (
            made is not None
            and codes is not None
            and (made.attributes.get("axis", 1) - output_axis(node)) % len(codes.shape) == 0
        )
