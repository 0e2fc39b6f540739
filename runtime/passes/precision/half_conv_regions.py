"""16-bit convolution regions compute in f32 and round once at their end, as onnxruntime does; weights stay 16-bit.

A region begins with a convolution or the rounding before it, and extends through elementwise operators, pools and
moves, as long as their 16-bit inputs are values of the region or small constants.
"""

from __future__ import annotations

from dataclasses import field

from ...base.dataclass import dataclass
from ...ir.builder import Builder
from ...ir.graph import Graph, Node, Value
from ...ir.op import Op, Trait
from ...ir.registry import onnx
from ...ir.shape_inference import infer
from ...tensor.dtype import BF16, F16, F32
from ...tensor.stored_tensor import StoredTensor
from ..pattern.dead_code import RemoveDeadCode
from ..pattern.replace_nodes import constant, graphs, rewrite
from ..pattern.stage import PipelinePass

NARROW = (F16, BF16)
MAX_WIDENED = 1 << 12
"""Elements of a constant that is widened, at most."""


@dataclass
class WidenHalfConvRegions:
    """Widen the regions in place."""

    _wide: dict[Value, Value] = field(default_factory=dict, repr=False)
    _brought: dict[tuple[Graph, Value], Value] = field(default_factory=dict, repr=False)

    def run(self, graph: Graph) -> bool:
        """Return whether there were any."""
        if not any(node.op in (onnx.Conv, onnx.ConvTranspose) for inner in graphs(graph) for node in inner.nodes):
            return False
        infer(graph)
        changed = rewrite(graph, self._replace)
        RemoveDeadCode().run(graph)
        return changed

    def _replace(self, node: Node, build: Builder) -> bool:
        results = [value for value in node.outputs if value.name]
        if node.op.domain or node.subgraphs or any(value.dtype not in NARROW for value in results):
            return False
        first = node.inputs[0] if node.inputs else None
        if node.op is onnx.Cast and first is not None and first.dtype is F32:
            self._wide[node.outputs[0]] = first
            return False
        heavy = node.op in (onnx.Conv, onnx.ConvTranspose)
        if not (_is_narrow(first) if heavy else self._goes_on(node, build.graph)):
            return False
        inputs = [
            value if value is None or (heavy and index) else self._input(value, build)
            for index, value in enumerate(node.inputs)
        ]
        outputs = [Value(build.name("wide"), F32, value.shape) if value.name else value for value in node.outputs]
        build.node(node.op, inputs, node.attributes, outputs=outputs, name=node.name)
        for narrow, wide in zip(node.outputs, outputs, strict=True):
            if narrow.name and narrow.dtype is not None:
                self._wide[narrow] = wide
                build.add("Cast", [wide], {"to": narrow.dtype.onnx}, outputs=[narrow])
        return True

    def _goes_on(self, node: Node, graph: Graph) -> bool:
        if node.op.scalar is None and not _is_light(node.op):
            return False
        narrow = [value for value in node.inputs if _is_narrow(value)]
        return any(value in self._wide for value in narrow) and all(
            value in self._wide or _is_small(constant(graph, value)) for value in narrow
        )

    def _input(self, value: Value, build: Builder) -> Value:
        if not _is_narrow(value) or value in self._wide:
            return self._wide.get(value, value)
        place = (build.graph, value)
        if place not in self._brought:
            held = constant(build.graph, value)
            self._brought[place] = (
                build.add("Cast", [value], {"to": F32.onnx}) if held is None else build.weight(_widened(held))
            )
        return self._brought[place]


def _is_light(op: Op) -> bool:
    """Whether an operator that is not elementwise costs little compared to a convolution."""
    return Trait.RESHAPES in op.traits or op in (
        onnx.AveragePool, onnx.BatchNormalization, onnx.Clip, onnx.Concat, onnx.DepthToSpace, onnx.GlobalAveragePool,
        onnx.GlobalMaxPool, onnx.InstanceNormalization, onnx.MaxPool, onnx.Pad, onnx.Resize, onnx.Slice, onnx.Split,
        onnx.Transpose,
    )  # fmt: skip


def _is_narrow(value: Value | None) -> bool:
    return value is not None and value.dtype in NARROW


def _is_small(tensor: StoredTensor | None) -> bool:
    return tensor is not None and tensor.count <= MAX_WIDENED


def _widened(tensor: StoredTensor) -> StoredTensor:
    import numpy

    return StoredTensor.of(tensor.numpy().astype(numpy.float32))


PIPELINE = (PipelinePass("regions", lambda options: WidenHalfConvRegions(), backends=("cpu",)),)
