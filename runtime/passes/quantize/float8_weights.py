"""Float8 weights: weights of operators are stored as float8e4m3fn with scales and a DequantizeLinear.

Activations stay as they are. The largest magnitude of a tensor (or of an output channel) becomes the largest number of
the type, 448.
Source: Micikevicius et al. 2022, "FP8 formats for deep learning"; the operator's definition of opset 19.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from typing import TYPE_CHECKING

from ...base.dataclass import dataclass
from ...ir.builder import Builder
from ...ir.graph import Graph, Node, Value
from ...ir.registry import onnx
from ...tensor.stored_tensor import StoredTensor
from ..pattern.replace_nodes import constant, output_axis, rewrite
from ..pattern.shared_constants import SharedConstants

if TYPE_CHECKING:
    import numpy as np

LARGEST = 448.0


@dataclass
class Float8Weights:
    """Quantize weights to float8.

    Attributes:
        per_channel: a scale for each output channel.
        selected: whether a node may be changed.
        changed: names of the weights that were quantized.
    """

    per_channel: bool = False
    selected: Callable[[Node], bool] = field(default=lambda node: True)
    changed: list[str] = field(default_factory=list)
    _shared: SharedConstants = field(default_factory=SharedConstants, repr=False)
    _numbers: dict[tuple[Graph, Value, int | None], Value] = field(default_factory=dict, repr=False)

    def run(self, graph: Graph) -> bool:
        """Quantize the constants and add a DequantizeLinear; return whether there were any."""
        return rewrite(graph, self._replace)

    def _replace(self, node: Node, build: Builder) -> bool:
        found = False
        if node.op.weights and self.selected(node):
            for index in node.op.weights:
                value = node.inputs[index]
                tensor = constant(build.graph, value)
                if (
                    value is not None
                    and tensor is not None
                    and len(tensor.shape) > 1
                    and tensor.dtype.name in ("f32", "f16")
                    and tensor.count
                ):
                    node.inputs[index] = self._dequantized(node, value, tensor, build)
                    found = True
        if found:
            build.keep(node)
        return found

    def _dequantized(self, node: Node, value: Value, weight: StoredTensor, build: Builder) -> Value:
        axis = self._axis(node, len(weight.shape))
        place = (build.graph, value, axis)
        if place not in self._numbers:
            inputs = self._shared.constants(build, value, axis, lambda: to_float8(weight.numpy(), axis))
            self._numbers[place] = build.add("DequantizeLinear", inputs, {} if axis is None else {"axis": axis})
            self.changed.append(value.name)
        return self._numbers[place]

    def _axis(self, node: Node, rank: int) -> int | None:
        """The axis of the scales, None for a single scale."""
        shared = node.op is onnx.ConvTranspose and node.attributes.get("group", 1) != 1
        if not self.per_channel or shared or (node.op in (onnx.MatMul, onnx.Gather) and rank != 2):
            return None
        return output_axis(node) % rank


def to_float8(weight: np.ndarray, axis: int | None) -> list[np.ndarray]:
    """The float8 values and their scales in the weight's dtype: one, or one per index of `axis`."""
    import ml_dtypes
    import numpy

    wide = weight.astype(numpy.float32)
    others = None if axis is None else tuple(other for other in range(weight.ndim) if other != axis)
    most = numpy.abs(wide).max(axis=others, keepdims=True)
    scales = (most / numpy.float32(LARGEST)).astype(weight.dtype).astype(numpy.float32)
    scales = numpy.where(scales > 0, scales, numpy.float32(1)).astype(numpy.float32)
    codes = numpy.clip(wide / scales, -LARGEST, LARGEST).astype(ml_dtypes.float8_e4m3fn)
    return [codes, scales.astype(weight.dtype).reshape(() if axis is None else -1)]
