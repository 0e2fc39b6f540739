"""Linear fusion: MatMul and Gemm with a transposed constant read the weight's rows in place, without a transpose or
copy."""

from __future__ import annotations

from ...base.dataclass import dataclass
from ...ir.builder import Builder
from ...ir.domain import CANDLE
from ...ir.graph import Graph, Node, Value
from ...ir.registry import onnx
from ...ir.shape_inference import infer
from ...tensor.dtype import BF16, F16, F32, BlockType
from ..pattern.dead_code import RemoveDeadCode
from ..pattern.replace_nodes import by_operator, constant, graphs, only_uses, rewrite
from ..pattern.stage import PipelinePass


@dataclass(frozen=True)
class FuseLinear:
    """MatMul and Gemm of rows and a transposed constant become Linear.

    Attributes:
        activations: what rows are rounded to that meet a quantized weight, ``f32`` for none; those of MatMulExperts
            too. Where it is not ``f32``, rows that meet weights of f16 and bf16 may be rounded about as these are
            (``narrow``).
        biases: whether an Add of a constant becomes Linear's third input.
        variables: whether weights of f32 that are not constants are read in place, too.
    """

    activations: str = "f32"
    biases: bool = True
    variables: bool = False

    def run(self, graph: Graph) -> bool:
        """Rewrite in place; return whether anything changed."""
        attributes = {} if self.activations == "f32" else {"activations": self.activations}

        def product(node: Node, build: Builder) -> bool:
            return _product(node, build, attributes)

        def experts(node: Node, build: Builder) -> bool:
            if (node.op.domain, node.op.name) == (CANDLE, "MatMulExperts") and _quantized(build.graph, node.inputs[1]):
                node.attributes |= attributes
            return False

        if attributes:
            rewrite(graph, experts)
        changed = False
        if any(_weight(node, inner) for inner in graphs(graph) for node in inner.nodes):
            infer(graph)
            changed = rewrite(graph, by_operator({"MatMul": product, "Gemm": product}))
        if self.variables and any(_variable(node) for inner in graphs(graph) for node in inner.nodes):
            infer(graph)
            changed |= rewrite(graph, by_operator({"MatMul": _of_variable}))
        if self.biases:
            single = only_uses(graph)
            changed |= rewrite(graph, by_operator({"Add": lambda node, build: _bias(node, build, single)}))
        if changed:
            RemoveDeadCode().run(graph)
        return changed


def _product(node: Node, build: Builder, attributes: dict[str, str]) -> bool:
    weight = _weight(node, build.graph)
    x, _, *others = node.inputs
    held = constant(build.graph, weight)
    if weight is None or x is None or held is None:
        return False
    if x.dtype not in (None, F32) and not isinstance(held.dtype, BlockType):
        return False
    bias = others[0] if others else None
    if bias is not None and not _is_bias(build.graph, bias, held.shape[0]):
        return False
    given = (
        attributes
        if isinstance(held.dtype, BlockType)
        else {"activations": "narrow"}
        if attributes and held.dtype in (F16, BF16)
        else {}
    )
    build.add(
        "Linear",
        [x, weight, *([] if bias is None else [bias])],
        given,
        domain=CANDLE,
        outputs=node.outputs,
        name=node.name,
    )
    return True


def _weight(node: Node, graph: Graph) -> Value | None:
    """The constant [out, in] whose transpose a product's second input is. Gemm has a kernel of its own for f32."""
    if node.op not in (onnx.MatMul, onnx.Gemm) or len(node.inputs) < 2 or node.inputs[1] is None:
        return None
    options = {"alpha": 1, "beta": 1, "transA": 0, "transB": 0} | node.attributes
    if options["alpha"] != 1 or options["beta"] != 1 or options["transA"]:
        return None
    flipped = bool(options["transB"])
    weight = node.inputs[1] if flipped else _untransposed(node.inputs[1])
    held = constant(graph, weight)
    if held is None or len(held.shape) != 2:
        return None
    narrow = held.dtype in (F16, BF16) or isinstance(held.dtype, BlockType)
    return weight if narrow or (held.dtype is F32 and not flipped) else None


def _variable(node: Node) -> Value | None:
    """The matrix whose transpose is a product's second input, where that is not a constant."""
    if node.op is not onnx.MatMul or node.inputs[1] is None:
        return None
    return _untransposed(node.inputs[1])


def _of_variable(node: Node, build: Builder) -> bool:
    """Stacks of matrices times one; of two matrices, Gemm reads either transposed."""
    x, weight = node.inputs[0], _variable(node)
    if x is None or weight is None or x.shape is None or len(x.shape) < 3 or (x.dtype, weight.dtype) != (F32, F32):
        return False
    if weight.shape is None or len(weight.shape) != 2 or constant(build.graph, weight) is not None:
        return False
    build.add("Linear", [x, weight], domain=CANDLE, outputs=node.outputs, name=node.name)
    return True


def _untransposed(value: Value) -> Value | None:
    """The matrix that a value is the transpose of."""
    made = value.producer
    if made is None or made.op is not onnx.Transpose or made.attributes.get("perm", [1, 0]) not in ([1, 0], (1, 0)):
        return None
    return made.inputs[0]


def _quantized(graph: Graph, value: Value | None) -> bool:
    held = constant(graph, value)
    return held is not None and isinstance(held.dtype, BlockType)


def _is_bias(graph: Graph, value: Value, count: int) -> bool:
    held = constant(graph, value)
    return held is not None and held.shape == (count,) and held.dtype is F32


def _bias(node: Node, build: Builder, single: dict[Value, Graph]) -> bool:
    for product, bias in (node.inputs, node.inputs[::-1]):
        linear = product.producer if product is not None else None
        if (
            product is None
            or bias is None
            or linear is None
            or (linear.op.domain, linear.op.name) != (CANDLE, "Linear")
        ):
            continue
        weight = constant(build.graph, linear.inputs[1])
        if (
            len(linear.inputs) == 2
            and weight is not None
            and single.get(product) is build.graph
            and _is_bias(build.graph, bias, weight.shape[0])
        ):
            build.add(linear.op, [*linear.inputs, bias], linear.attributes, outputs=node.outputs, name=linear.name)
            return True
    return False


PIPELINE = (
    PipelinePass("prepare", lambda options: FuseLinear(options.activations, biases=False)),
    PipelinePass("linear", lambda options: FuseLinear(), backends=("cuda",)),
    PipelinePass("linear", lambda options: FuseLinear(variables=True), backends=("cpu",)),
)
