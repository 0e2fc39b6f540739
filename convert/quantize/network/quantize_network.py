"""Quantization of ONNX networks: the pass of a request, its changes, and the nodes that stay in floating point."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any

from ....runtime.base.dataclass import dataclass
from ....runtime.base.errors import UnsafeFileError, UsageError
from ....runtime.base.units import counted
from ....runtime.ir.graph import Graph, Node
from ....runtime.ir.registry import onnx, operators
from ....runtime.ir.shape_inference import infer
from ....runtime.passes.pattern.dead_code import RemoveDeadCode
from ....runtime.passes.pattern.replace_nodes import constant, graphs
from ....runtime.passes.precision.half import HalfPrecision
from ....runtime.passes.precision.transposed_half_products import UnfuseHalfProducts
from ....runtime.passes.quantize import dynamic_int8, float8_weights, static_qdq_int8, weight_only
from ....runtime.passes.quantize.qdq_fusion import FuseQDQ
from ....runtime.passes.simplification import Simplify
from ....runtime.passes.simplify.loop_invariant import HoistLoopInvariants
from ....runtime.tensor.dtype import DTYPES, DType
from .request import Request

Ranges = Mapping[str, tuple[float, float]]
WEIGHTS = {
    "dynamic": dynamic_int8.OPERATORS,
    "static": ("Conv", "ConvTranspose", "Gemm", "MatMul"),
    "blocks": weight_only.OPERATORS,
}
"""Operators whose weights a kind of quantization takes; float8 takes those of every operator that declares weights."""
BYTES = ("dynamic", "static")
"""Kinds whose activations are bytes."""
SATURATES = (
    "onnxruntime saturates sums of u8 x s8 products on AVX2 without VNNI, which costs 12 to 24 dB there; "
    "--reduce-range avoids it"
)


@dataclass(frozen=True)
class Kept:
    """A node that was to be quantized and was not."""

    node: str
    operator: str
    why: str


@dataclass
class Outcome:
    """What quantizing did.

    Attributes:
        weights: names of those that were quantized.
        before, after: bytes of all weights.
    """

    weights: list[str]
    before: int
    after: int
    kept: list[Kept] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """Its fields."""
        kept = [vars(item) for item in self.kept]
        return {"quantized": self.weights, "weights_bytes": {"before": self.before, "after": self.after}, "kept": kept}


def simplified(graph: Graph) -> Graph:
    """The graph with constants folded and dtypes inferred, as calibration and quantizing both see it; changed in place.
    Inputs whose defaults are weights, as exporters of 2019 made of all of them, become constants, as in onnxruntime's
    quantization.

    What is made of large weights is computed when it is read, here and in quantizing, so that no more than one of them
    is in memory at once.
    """
    graph.inputs = [value for value in graph.inputs if value.name not in graph.weights]
    HoistLoopInvariants().run(graph)
    Simplify(skip=frozenset({"patterns"}), deferred=True).run(graph)
    infer(graph)
    return graph


def quantize(graph: Graph, request: Request, ranges: Ranges | None = None) -> Outcome:
    """Quantize a simplified graph in place.

    Raises:
        UsageError: no node could be quantized.
        UnsafeFileError: a node stays in floating point, and the request does not allow it.
    """
    before = _nbytes(graph)
    changed = _run(graph, request, ranges or {})
    RemoveDeadCode().run(graph)
    outcome = Outcome(list(dict.fromkeys(changed)), before, _nbytes(graph), _kept(graph, request))
    if not changed:
        why = "no selected node has a constant weight that can be quantized"
        if outcome.kept:
            first = outcome.kept[0]
            why = f"no node can be quantized, such as {first.operator} {first.node!r}: {first.why}"
        raise UsageError(
            "E-QUANT-NODES",
            None,
            why,
            expected=", ".join(_operators(request.kind)) or None,
            hint="See them with candle-convert inspect",
        )
    if request.type == "int8" and request.activation == "uint8" and not request.reduce_range and request.kind in BYTES:
        graph.note("W-QUANT-SATURATES", SATURATES)
    if outcome.kept and request.no_fallback:
        first = outcome.kept[0]
        count = counted(len(outcome.kept), "node", verb="remains")
        why = f"{count} in floating point, such as {first.operator} {first.node!r}: {first.why}"
        raise UnsafeFileError(
            "E-QUANT-FALLBACK", None, why, hint="Skip them with --exclude-nodes, or omit --no-fallback"
        )
    return outcome


def _run(graph: Graph, request: Request, ranges: Ranges) -> list[str]:
    """Run the pass that a request stands for; the names of the weights that it changed."""
    made: (
        HalfPrecision
        | float8_weights.Float8Weights
        | dynamic_int8.DynamicInt8
        | static_qdq_int8.StaticInt8
        | weight_only.WeightOnly
    )
    if request.kind == "half":
        made = HalfPrecision(DTYPES[request.type], request.selects)
    elif request.kind == "blocks":
        bits = 4 if request.type == "int4" else 8
        made = weight_only.WeightOnly(bits, request.block, request.symmetric, request.form, request.selects)
    elif request.kind == "float8":
        made = float8_weights.Float8Weights(request.per_channel, request.selects)
    elif request.kind == "dynamic":
        made = dynamic_int8.DynamicInt8(request.type, request.per_channel, request.reduce_range, request.selects)
    else:
        made = static_qdq_int8.StaticInt8(
            ranges, request.activation, request.type, request.per_channel, request.reduce_range, request.selects
        )
    made.run(graph)
    if request.kind == "static" and request.form == "qoperator":
        FuseQDQ().run(graph)
    if request.kind == "half":
        UnfuseHalfProducts().run(graph)
    return made.changed


def _operators(kind: str) -> list[str]:
    """Names of the operators whose weights a kind of quantization takes."""
    declared = [name for (domain, name), op in operators().items() if op.weights and not domain]
    return sorted(WEIGHTS.get(kind, declared if kind == "float8" else ()))


def _nbytes(graph: Graph) -> int:
    return sum(inner.nbytes for inner in graphs(graph))


def _kept(graph: Graph, request: Request) -> list[Kept]:
    """Selected nodes that still compute with a constant floating-point weight."""
    found = []
    for inner in graphs(graph):
        for node in inner.nodes:
            if request.wide and request.names(node) and request.overflows(node) and node.op is not onnx.Cast:
                found.append(
                    Kept(
                        node.name or node.outputs[0].name,
                        node.op.name,
                        f"its values exceed the range of {request.type}",
                    )
                )
            elif node.op.weights and request.kind != "half" and request.names(node):
                tensor = constant(inner, node.inputs[min(node.op.weights)])
                if tensor is not None and tensor.dtype.is_float and len(tensor.shape) > 1:
                    found.append(
                        Kept(
                            node.name or node.outputs[0].name,
                            node.op.name,
                            _why(node, tensor.dtype, tensor.shape, request),
                        )
                    )
    return found


def _why(node: Node, dtype: DType, shape: tuple[int, ...], request: Request) -> str:
    if request.kind in WEIGHTS and node.op.name not in WEIGHTS[request.kind]:
        return f"{request.kind} quantization does not support {node.op.name}"
    if dtype.name != "f32" and not (dtype.name == "f16" and request.kind in ("blocks", "float8")):
        return f"its weight is {dtype.name}"
    blocks = request.kind in ("blocks", "float8")
    matrix = blocks if node.op is onnx.MatMul else request.kind != "static" and node.op not in (onnx.Conv, onnx.LSTM)
    if len(shape) != 2 and matrix:
        return f"its weight has {counted(len(shape), 'dimension')}"
    if request.kind == "static":
        return "its input has no calibrated range"
    if node.op is onnx.Gather and request.kind == "blocks" and shape[1] % request.block:
        return f"rows of {shape[1]} are not a multiple of the block size {request.block}"
    return "its attributes or shapes have no integer implementation"
