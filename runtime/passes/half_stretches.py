"""Stretches of 16-bit nodes around convolutions compute in f32 and round where they end, as onnxruntime does; kernels stay narrow.

A stretch begins with a convolution or what was rounded just before, and goes on through what works element by element, pools and moves elements,
as long as that reads nothing narrow but what the stretch made and small constants.
"""

from __future__ import annotations

from dataclasses import field

from ..build import Builder
from ..dtype import BF16, F16, F32
from ..graph import Graph, Node, Value
from ..infer import infer
from ..record import dataclass
from ..tensor import Tensor
from .dead import DropDead
from .rewrite import constant, graphs, rewrite

NARROW = (F16, BF16)
HEAVY = frozenset({"Conv", "ConvTranspose"})
"""Operators that begin a stretch; they take narrow kernels and biases."""
LIGHT = frozenset({
    "AveragePool", "BatchNormalization", "Clip", "Concat", "DepthToSpace", "Flatten", "GlobalAveragePool", "GlobalMaxPool", "InstanceNormalization",
    "MaxPool", "Pad", "Reshape", "Resize", "Slice", "Split", "Squeeze", "Transpose", "Unsqueeze",
})
"""Operators that a stretch goes on through, beside those that work element by element."""
MOST = 1 << 12
"""Elements of a constant that is widened."""


@dataclass
class HalfStretches:
    """Rewrite in place."""

    _wide: dict[Value, Value] = field(default_factory=dict, repr=False)
    _brought: dict[tuple[Graph, Value], Value] = field(default_factory=dict, repr=False)

    def run(self, graph: Graph) -> bool:
        """Whether there were any."""
        if not any(node.op.name in HEAVY for inner in graphs(graph) for node in inner.nodes):
            return False
        infer(graph)
        changed = rewrite(graph, self._replace)
        DropDead().run(graph)
        return changed

    def _replace(self, node: Node, build: Builder) -> bool:
        results = [value for value in node.outputs if value.name]
        if node.op.domain or node.subgraphs or any(value.dtype not in NARROW for value in results):
            return False
        first = node.inputs[0] if node.inputs else None
        if node.op.name == "Cast" and first is not None and first.dtype is F32:
            self._wide[node.outputs[0]] = first
            return False
        heavy = node.op.name in HEAVY
        if not (_is_narrow(first) if heavy else self._goes_on(node, build.graph)):
            return False
        inputs = [value if value is None or (heavy and index) else self._input(value, build) for index, value in enumerate(node.inputs)]
        outputs = [Value(build.name("wide"), F32, value.shape) if value.name else value for value in node.outputs]
        build.node(node.op, inputs, node.attributes, outputs=outputs, name=node.name)
        for narrow, wide in zip(node.outputs, outputs, strict=True):
            if narrow.name and narrow.dtype is not None:
                self._wide[narrow] = wide
                build.add("Cast", [wide], {"to": narrow.dtype.onnx}, outputs=[narrow])
        return True

    def _goes_on(self, node: Node, graph: Graph) -> bool:
        if node.op.scalar is None and node.op.name not in LIGHT:
            return False
        narrow = [value for value in node.inputs if _is_narrow(value)]
        return any(value in self._wide for value in narrow) and all(value in self._wide or _is_small(constant(graph, value)) for value in narrow)

    def _input(self, value: Value, build: Builder) -> Value:
        if not _is_narrow(value) or value in self._wide:
            return self._wide.get(value, value)
        place = (build.graph, value)
        if place not in self._brought:
            held = constant(build.graph, value)
            self._brought[place] = build.add("Cast", [value], {"to": F32.onnx}) if held is None else build.weight(_widened(held))
        return self._brought[place]


def _is_narrow(value: Value | None) -> bool:
    return value is not None and value.dtype in NARROW


def _is_small(tensor: Tensor | None) -> bool:
    return tensor is not None and tensor.count <= MOST


def _widened(tensor: Tensor) -> Tensor:
    import numpy

    return Tensor.of(tensor.numpy().astype(numpy.float32))
