"""16-bit weights read in place: MatMul and Gemm become Linear with f32 activations, whose result is rounded once."""

from __future__ import annotations

from ...base.dataclass import dataclass
from ...ir.builder import Builder
from ...ir.domain import CANDLE
from ...ir.graph import Graph, Node, Value
from ...ir.shape_inference import infer
from ...tensor.dtype import BF16, F16, F32
from ...tensor.stored_tensor import StoredTensor
from ..pattern.dead_code import RemoveDeadCode
from ..pattern.replace_nodes import by_operator, constant, graphs, rewrite
from ..pattern.stage import PipelinePass

NARROW = (F16, BF16)
MIN_ELEMENTS = 1 << 12
"""Elements of the smallest weight that is replaced."""


@dataclass(frozen=True)
class UseHalfWeights:
    """Replace products in place."""

    def run(self, graph: Graph) -> bool:
        """Return whether any were replaced."""
        if not any(tensor.dtype in NARROW for inner in graphs(graph) for tensor in inner.weights.values()):
            return False
        infer(graph)
        transposed: dict[Value, Value] = {}

        def product(node: Node, build: Builder) -> bool:
            return _product(node, build, transposed)

        changed = rewrite(graph, by_operator({"MatMul": product, "Gemm": product}))
        RemoveDeadCode().run(graph)
        return changed


def _product(node: Node, build: Builder, transposed: dict[Value, Value]) -> bool:
    (x, weight, *others), graph = node.inputs, build.graph
    options = {"alpha": 1, "beta": 1, "transA": 0, "transB": 0} | node.attributes
    held, bias = constant(graph, weight), others[0] if others else None
    if (
        x is None
        or weight is None
        or held is None
        or x.dtype is not held.dtype
        or held.dtype not in NARROW
        or len(held.shape) != 2
    ):
        return False
    columns = held.shape[0 if options["transB"] else 1]
    known = constant(graph, bias)
    if (
        held.count < MIN_ELEMENTS
        or options["alpha"] != 1
        or options["beta"] != 1
        or options["transA"]
        or (bias is not None and known is None)
    ):
        return False
    if known is not None and known.shape != (columns,):
        return False
    if not options["transB"]:
        if weight not in transposed:
            transposed[weight] = build.weight(_transposed(held))
        weight = transposed[weight]
    inputs: list[Value | None] = [build.add("Cast", [x], {"to": F32.onnx}), weight]
    if known is not None:
        import numpy

        inputs.append(build.weight(StoredTensor.of(known.numpy().astype(numpy.float32))))
    made = build.add("Linear", inputs, domain=CANDLE, name=node.name)
    build.add("Cast", [made], {"to": held.dtype.onnx}, outputs=node.outputs)
    return True


def _transposed(tensor: StoredTensor) -> StoredTensor:
    import numpy

    return StoredTensor.of(numpy.ascontiguousarray(tensor.numpy().T))


PIPELINE = (PipelinePass("precision", lambda options: UseHalfWeights(), backends=("cpu",)),)
