"""BatchNormalization folded into the Conv before it: the scale into the weights, the shift into the bias."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...base.dataclass import dataclass
from ...ir.builder import Builder
from ...ir.graph import Graph, Node, Value
from ...ir.registry import onnx
from ...tensor.scaled import scaled_rows
from ..pattern.dead_code import RemoveDeadCode
from ..pattern.replace_nodes import by_operator, constant, only_uses, rewrite

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True)
class FuseConvBatchNorm:
    """Merge a BatchNormalization into the Conv whose result only it uses, where all parameters are constants of the
    weight's dtype."""

    def run(self, graph: Graph) -> bool:
        """Whether any were merged. The result differs by rounding alone."""
        single = only_uses(graph)
        rules = {"BatchNormalization": lambda node, build: _merge(node, build, single)}
        return rewrite(graph, by_operator(rules)) and RemoveDeadCode().run(graph)


def _merge(node: Node, build: Builder, single: dict[Value, Graph]) -> bool:
    import numpy

    between = node.inputs[0]
    conv = between.producer if between is not None else None
    if between is None or conv is None or conv.op is not onnx.Conv or single.get(between) is not build.graph:
        return False
    if node.attributes.get("training_mode", 0) or any(value.name for value in node.outputs[1:]):
        return False
    names = [*node.inputs[1:5], conv.inputs[1]]
    held = [constant(build.graph, value) for value in names]
    bias = conv.inputs[2] if len(conv.inputs) > 2 else None
    shift = constant(build.graph, bias)
    if any(tensor is None or tensor.dtype.name not in ("f32", "f64") for tensor in held) or (
        bias is not None and shift is None
    ):
        return False
    *parameters, weight = (tensor for tensor in held if tensor is not None)
    scale, offset, mean, variance = (tensor.numpy() for tensor in parameters)
    factor = scale.astype(numpy.float64) / numpy.sqrt(
        variance.astype(numpy.float64) + node.attributes.get("epsilon", 1e-5)
    )
    start = 0.0 if shift is None else shift.numpy().astype(numpy.float64)
    numbers = weight.dtype.as_numpy()
    moved: np.ndarray = ((start - mean) * factor + offset).astype(numbers)
    inputs = [conv.inputs[0], build.weight(scaled_rows(weight, factor.astype(numbers))), build.constant(moved)]
    build.add(conv.op, inputs, conv.attributes, outputs=node.outputs[:1], name=conv.name)
    return True
