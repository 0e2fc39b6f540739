"""Half precision: weights and activations as f16 or bf16, with casts at the graph's inputs and outputs.

Inputs and outputs of the model keep their dtype. Operators in `EXCLUDED`, whose range or exactness matters more than
speed, and nodes that are not selected stay in f32 between casts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field

from ...base.dataclass import dataclass
from ...base.errors import FormatError
from ...ir.builder import Builder
from ...ir.graph import Graph, Node, Value
from ...ir.op import Trait
from ...ir.shape_inference import Facts, infer
from ...tensor.dtype import F16, F32, DType
from ...tensor.stored_tensor import StoredTensor
from ..pattern.dead_code import RemoveDeadCode
from ..pattern.replace_nodes import constant, rewrite
from ..pattern.shared_constants import owner_graph

F16_MAX = 65504.0


@dataclass
class HalfPrecision:
    """Convert f32 weights and activations to a 16-bit dtype.

    Attributes:
        dtype: f16 or bf16.
        selected: whether a node may be changed.
        cast: rounds a weight of that name, in place of a cast in which finite values stay finite.
        changed: names of the weights that were rounded.
    """

    dtype: DType
    selected: Callable[[Node], bool] = field(default=lambda node: True)
    cast: Callable[[str, StoredTensor], StoredTensor] | None = None
    changed: list[str] = field(default_factory=list)
    _narrow: dict[tuple[Graph, Value], Value] = field(default_factory=dict, repr=False)

    def run(self, graph: Graph) -> bool:
        """Rewrite the nodes; return whether there were any."""
        infer(graph)
        changed = rewrite(graph, self._replace)
        RemoveDeadCode().run(graph)
        self._take_names()
        return changed

    def _take_names(self) -> None:
        """Values that exist only in their 16-bit form take the name of the f32 value, so that both models can be
        compared value by value."""
        for scope in {graph for graph, _ in self._narrow}:
            names = {
                narrow.name: wide.name
                for (graph, wide), narrow in self._narrow.items()
                if graph is scope and scope.values.get(narrow.name) is narrow and scope.find(wide.name) is None
            }
            for narrow in [scope.values[name] for name in names]:
                narrow.name = names[narrow.name]
            scope.values = {value.name: value for value in scope.values.values()}
            scope.weights = {names.get(name, name): tensor for name, tensor in scope.weights.items()}

    def _replace(self, node: Node, build: Builder) -> bool:
        read = [value for value in node.inputs if value is not None]
        if (
            node.op.domain
            or Trait.KEEPS_F32 in node.op.traits
            or node.subgraphs
            or not any(map(_is_wide, read))
            or not self.selected(node)
        ):
            return False
        if any(value.dtype is None or value.container for value in (*read, *node.outputs) if value.name):
            return False
        made = self._outputs(node)
        if made is None:
            return False
        node.inputs = [self._input(value, build) for value in node.inputs]
        wide, node.outputs = (
            node.outputs,
            [Value(build.name("half"), dtype, value.shape) if dtype else value for value, dtype in made],
        )
        build.keep(node)
        for value, narrow in zip(wide, node.outputs, strict=True):
            if narrow is not value:
                build.add("Cast", [narrow], {"to": F32.onnx}, outputs=[value])
                self._narrow[build.graph, value] = narrow
        return True

    def _outputs(self, node: Node) -> list[tuple[Value, DType | None]] | None:
        """Each output with its 16-bit dtype, or None if it stays f32; None if the operator does not accept 16-bit
        inputs."""
        trial: list[Value | None] = [
            None if value is None else Value("", self.dtype if _is_wide(value) else value.dtype, value.shape)
            for value in node.inputs
        ]
        probe = Node(node.op, trial, [Value("") for _ in node.outputs], node.attributes, node.name)
        try:
            Facts().infer_node(probe)
        except FormatError:
            return None
        found = []
        for value, narrow in zip(node.outputs, probe.outputs, strict=True):
            if value.name and narrow.dtype is not value.dtype and narrow.dtype is not self.dtype:
                return None
            found.append((value, self.dtype if value.name and narrow.dtype is not value.dtype else None))
        return found

    def _input(self, value: Value | None, build: Builder) -> Value | None:
        if value is None or not _is_wide(value):
            return value
        tensor = constant(build.graph, value)
        scope = build.graph if tensor is None else owner_graph(build.graph, value)
        if (scope, value) not in self._narrow:
            if tensor is not None:
                self._narrow[scope, value] = self._weight(value, tensor, scope)
            else:
                narrow = self._narrow[build.graph, value] = build.add("Cast", [value], {"to": self.dtype.onnx})
                narrow.dtype, narrow.shape = self.dtype, value.shape
        return self._narrow[scope, value]

    def _weight(self, value: Value, tensor: StoredTensor, scope: Graph) -> Value:
        narrow = Value(scope.fresh(f"{value.name}/{self.dtype.name}"), self.dtype, value.shape)
        scope.weights[narrow.name] = (
            self.cast(value.name, tensor) if self.cast else _limited(tensor, self.dtype).cast(self.dtype)
        )
        scope.values[narrow.name] = narrow
        self.changed.append(value.name)
        return narrow


def _is_wide(value: Value) -> bool:
    return value.dtype is F32 and not value.container


def _limited(tensor: StoredTensor, dtype: DType) -> StoredTensor:
    """Clamp finite values beyond the range of f16, such as those of masks: infinities times zero would be NaN."""
    import numpy

    if dtype is not F16:
        return tensor
    array = tensor.numpy()
    large = numpy.isfinite(array) & (numpy.abs(array) > F16_MAX)
    return StoredTensor.of(numpy.where(large, numpy.clip(array, -F16_MAX, F16_MAX), array)) if large.any() else tensor
