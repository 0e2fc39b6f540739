"""Lowering of onnxruntime's fused operators: FusedConv, FusedGemm, FusedMatMul and NHWC forms become standard
operators."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...base.dataclass import dataclass
from ...ir.builder import Builder
from ...ir.graph import Graph, Node, Value
from ...ir.shape_inference import infer
from ...tensor.dtype import F16, F32, F64
from ..pattern.replace_nodes import graphs, rewrite
from ..pattern.stage import PipelinePass

CONTRIB = "com.microsoft"
ACTIVATIONS = {"Relu": (), "Tanh": (), "Sigmoid": (), "LeakyRelu": ("alpha",), "HardSigmoid": ("alpha", "beta")}
"""Activations of fused operators, with the attributes that hold their parameters."""
NUMPY = {F16: "float16", F32: "float32", F64: "float64"}


@dataclass(frozen=True)
class LowerFusedOperators:
    """Lower fused operators in place."""

    def run(self, graph: Graph) -> bool:
        """Return whether any were replaced."""
        if not any(
            node.op.domain == CONTRIB and node.op.name in MAKERS for inner in graphs(graph) for node in inner.nodes
        ):
            return False
        infer(graph)
        return rewrite(graph, _replace)


def _replace(node: Node, build: Builder) -> bool:
    return node.op.domain == CONTRIB and node.op.name in MAKERS and MAKERS[node.op.name](node, build)


def _end(
    node: Node, build: Builder, name: str, parameters: Sequence[float], made: Callable[[Sequence[Value] | int], Value]
) -> bool:
    """Add the node that computes a value, and its activation."""
    if not name:
        made(node.outputs)
    elif name == "Clip" and len(parameters) == 2 and node.outputs[0].dtype in NUMPY:
        dtype = node.outputs[0].dtype
        assert dtype is not None
        bounds = [build.constant(number, NUMPY[dtype]) for number in parameters]
        build.add("Clip", [made(1), *bounds], outputs=node.outputs)
    elif name in ACTIVATIONS and len(parameters) <= len(ACTIVATIONS[name]):
        build.add(name, [made(1)], dict(zip(ACTIVATIONS[name], parameters, strict=False)), outputs=node.outputs)
    else:
        return False
    return True


def _conv(node: Node, build: Builder) -> bool:
    given = dict(node.attributes)
    name, parameters = given.pop("activation", ""), given.pop("activation_params", [])
    inputs, added = node.inputs[:3], node.inputs[3] if len(node.inputs) > 3 else None

    def made(outputs: Sequence[Value] | int) -> Value:
        if added is None:
            return build.add("Conv", inputs, given, outputs=outputs, name=node.name)
        return build.add("Add", [build.add("Conv", inputs, given, name=node.name), added], outputs=outputs)

    return _end(node, build, name, parameters, made)


def _gemm(node: Node, build: Builder) -> bool:
    given = dict(node.attributes)
    name = given.pop("activation", "")
    parameters = [given.pop(key) for key in ("activation_alpha", "activation_beta", "activation_gamma") if key in given]
    return _end(
        node,
        build,
        name,
        parameters,
        lambda outputs: build.add("Gemm", node.inputs, given, outputs=outputs, name=node.name),
    )


def _matmul(node: Node, build: Builder) -> bool:
    given, dtype = node.attributes, node.outputs[0].dtype
    ranks = [None if value is None or value.shape is None else len(value.shape) for value in node.inputs]
    if given.get("transBatchA", 0) or given.get("transBatchB", 0) or dtype not in NUMPY or None in ranks:
        return False
    factors: list[Value | None] = []
    for value, rank, flag in zip(node.inputs, ranks, (given.get("transA", 0), given.get("transB", 0)), strict=True):
        assert rank is not None
        axes = [*range(rank - 2), rank - 1, rank - 2]
        factors.append(build.add("Transpose", [value], {"perm": axes}) if flag and rank > 1 else value)
    alpha = given.get("alpha", 1.0)
    if alpha == 1:
        build.add("MatMul", factors, outputs=node.outputs, name=node.name)
    else:
        build.add(
            "Mul",
            [build.add("MatMul", factors, name=node.name), build.constant(alpha, NUMPY[dtype])],
            outputs=node.outputs,
        )
    return True


def _last_first(node: Node, build: Builder) -> bool:
    """Lower operators in NHWC layout."""
    x = node.inputs[0]
    if x is None or x.shape is None:
        return False
    rank = len(x.shape)
    before, after = [0, rank - 1, *range(1, rank - 1)], [0, *range(2, rank), 1]
    channels_first: list[Value | None] = [
        build.add("Transpose", [value], {"perm": before}) if value is not None else None for value in node.inputs[:2]
    ]
    made = build.add(LAST[node.op.name], [*channels_first, *node.inputs[2:]], node.attributes, name=node.name)
    build.add("Transpose", [made], {"perm": after}, outputs=node.outputs)
    return True


LAST = {"NhwcConv": "Conv", "NhwcMaxPool": "MaxPool"}
MAKERS: dict[str, Callable[[Node, Builder], bool]] = {
    "FusedConv": _conv, "FusedGemm": _gemm, "FusedMatMul": _matmul, **dict.fromkeys(LAST, _last_first),
}  # fmt: skip

PIPELINE = (PipelinePass("unfuse", lambda options: LowerFusedOperators(), backends=("cpu",)),)
