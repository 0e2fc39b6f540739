"""Quantization of ONNX networks: the pass of a request, its changes, and the nodes that stay in floating point."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
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
from ....runtime.passes.quantize.stored_codes import dequantizes, stored_codes
from ....runtime.passes.simplification import Simplify
from ....runtime.passes.simplify.loop_invariant import HoistLoopInvariants
from ....runtime.tensor.dtype import DTYPES, DType
from .request import REQUANTIZE_HINT, Request

Ranges = Mapping[str, tuple[float, float]]
Step = tuple[Request, Ranges]
"""How a graph is quantized, and the ranges of its activations."""
WEIGHTS = {
    "dynamic": dynamic_int8.OPERATORS,
    "static": ("Conv", "ConvTranspose", "Gemm", "MatMul"),
    "blocks": weight_only.OPERATORS,
}
"""Operators whose weights a kind of quantization takes; float8 takes those of every operator that declares weights."""
BITS = {"int8": 8, "uint8": 8, "int4": 4, "fp8": 8}
"""Bits of a code by type."""
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
    """The result of quantizing a network.

    Attributes:
        weights: names of those that were quantized.
        before, after: bytes of all weights.
        stored: weights that were quantized in the source and keep their codes, with the dtypes of these.
    """

    weights: list[str]
    before: int
    after: int
    kept: list[Kept] = field(default_factory=list)
    stored: dict[str, DType] = field(default_factory=dict)

    def note(self, graph: Graph, name: str = "") -> None:
        """Add to the notes of a graph what stays as it is; `name` is that of a variant."""
        prefix = f"{name}: " if name else ""
        if self.kept:
            first, count = self.kept[0], counted(len(self.kept), "node", verb="remains")
            where = f"{first.operator} {first.node!r}: {first.why}"
            graph.event("W-ONNX-KEPT", f"{prefix}{count} in floating point, such as {where}")
        if self.stored:
            (weight, codes), count = next(iter(self.stored.items())), counted(len(self.stored), "weight", verb="keeps")
            graph.event("W-ONNX-STORED", f"{prefix}{count} stored codes, such as {weight!r} ({codes.name})")

    def to_json(self) -> dict[str, Any]:
        """Its fields."""
        kept = [vars(item) for item in self.kept]
        return {
            "quantized": self.weights,
            "weights_bytes": {"before": self.before, "after": self.after},
            "kept": kept,
            "already_quantized": {name: dtype.name for name, dtype in self.stored.items()},
        }


def settings(steps: Sequence[Step]) -> list[str]:
    """All that decides the bytes of quantized networks besides the graphs, the same text in every process."""
    found = []
    for request, ranges in steps:
        decided = {**vars(request), "wide": sorted(request.wide)}
        found.append(f"{sorted(decided.items())!r} {sorted(ranges.items())!r}")
    return found


def simplified(graph: Graph, request: Request | None = None) -> Graph:
    """The graph with constants folded and dtypes inferred, as calibration and quantizing both see it; changed in place.
    Inputs whose defaults are weights, as exporters of 2019 made of all of them, become constants, as in onnxruntime's
    quantization.

    What is made of large weights is computed when it is read, here and in quantizing, so that no more than one of them
    is in memory at once.

    Weights that are dequantized keep their codes, except those that `request` quantizes again: these become constants.
    """
    graph.inputs = [value for value in graph.inputs if value.name not in graph.weights]
    HoistLoopInvariants().run(graph)
    simplify = Simplify(skip=frozenset({"patterns"}), deferred=True, unfolded=dequantizes)
    simplify.run(graph)
    if request is not None and request.allow_requantize:
        again = _dequantized_for(graph, request)
        dataclasses.replace(simplify, unfolded=lambda node: dequantizes(node) and node not in again).run(graph)
    infer(graph)
    return graph


def _dequantized_for(graph: Graph, request: Request) -> set[Node]:
    """The nodes that compute, of stored codes, what nodes to be quantized read."""
    codes = stored_codes(graph)
    pending = [
        value
        for inner in graphs(graph)
        for node in inner.nodes
        if request.names(node) and (request.kind == "half" or _supports(request.kind, node))
        for value in node.inputs
    ]
    found: set[Node] = set()
    while pending:
        value = pending.pop()
        if value is not None and value in codes and value.producer is not None and value.producer not in found:
            found.add(value.producer)
            pending += value.producer.inputs
    return found


def quantize(graph: Graph, request: Request, ranges: Ranges | None = None) -> Outcome:
    """Quantize a simplified graph in place.

    Raises:
        UsageError: no node could be quantized.
        UnsafeFileError: a node stays in floating point, or a weight has codes of more bits than asked for, and the
            request does not allow it.
    """
    before, stored = _nbytes(graph), _stored(graph, request)
    if stored and not request.allow_requantize:
        _refuse_wider(_stored(graph, request, supported=True), request)
    fixed = {value.name for value in stored_codes(graph)}
    ranges = {name: span for name, span in (ranges or {}).items() if name not in fixed}
    changed, rewritten = _run(graph, request, ranges)
    RemoveDeadCode().run(graph)
    outcome = Outcome(list(dict.fromkeys(changed)), before, _nbytes(graph), _kept(graph, request), stored)
    unchanged = not changed and not rewritten
    if stored and unchanged and not request.allow_requantize:
        name, codes = next(iter(stored.items()))
        count = counted(len(stored), "weight", verb="is")
        why = f"nothing to quantize: {count} already quantized, such as {name!r} ({codes.name})"
        raise UsageError("E-QUANT-NODES", None, why, hint=REQUANTIZE_HINT)
    if unchanged or not (changed or stored):
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


def _stored(graph: Graph, request: Request, *, supported: bool = False) -> dict[str, DType]:
    """Dequantized weights of selected nodes, with the dtypes of their codes.

    Args:
        supported: only those that this kind of quantization would take if they were floats.
    """
    codes = stored_codes(graph)
    found = {}
    for inner in graphs(graph):
        for node in inner.nodes:
            if node.op.weights and not node.op.domain and request.names(node):
                if supported and not _supports(request.kind, node):
                    continue
                both = node.op is onnx.MatMul and (request.kind in BYTES or not supported)
                sides = node.inputs[:2] if both else [node.inputs[min(node.op.weights)]]
                found.update({value.name: codes[value] for value in sides if value is not None and value in codes})
    return found


def _refuse_wider(stored: dict[str, DType], request: Request) -> None:
    """UnsafeFileError where weights have codes of more bits than asked for: they would be larger than expected."""
    bits = BITS.get(request.type, 64)
    wider = [(name, dtype) for name, dtype in stored.items() if dtype.bits > bits]
    if wider:
        name, dtype = wider[0]
        why = (
            f"{counted(len(wider), 'weight', verb='is')} already quantized, such as {name!r} ({dtype.name}), "
            f"which {request.type} would round again"
        )
        raise UnsafeFileError("E-QUANT-AGAIN", None, why, hint=REQUANTIZE_HINT)


def _run(graph: Graph, request: Request, ranges: Ranges) -> tuple[list[str], bool]:
    """Run the pass that a request stands for; the names of the weights that it changed, and whether it changed any
    node."""
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
        made = weight_only.WeightOnly(
            bits, request.block, request.symmetric, request.form, request.tables, request.selects
        )
    elif request.kind == "float8":
        made = float8_weights.Float8Weights(request.per_channel, request.selects)
    elif request.kind == "dynamic":
        made = dynamic_int8.DynamicInt8(request.type, request.per_channel, request.reduce_range, request.selects)
    else:
        made = static_qdq_int8.StaticInt8(
            ranges, request.activation, request.type, request.per_channel, request.reduce_range, request.selects
        )
    rewritten = made.run(graph)
    if request.kind == "static" and request.form == "qoperator":
        FuseQDQ().run(graph)
    if request.kind == "half":
        UnfuseHalfProducts().run(graph)
    return made.changed, rewritten


def _operators(kind: str) -> list[str]:
    """Names of the operators whose weights a kind of quantization takes."""
    declared = [name for (domain, name), op in operators().items() if op.weights and not domain]
    return sorted(WEIGHTS.get(kind, declared if kind == "float8" else ()))


def _supports(kind: str, node: Node) -> bool:
    """Whether a kind of quantization takes the weights of a node's operator."""
    declared = bool(node.op.weights) and not node.op.domain
    return declared and (kind == "float8" or node.op.name in WEIGHTS.get(kind, ()))


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
    if request.kind in WEIGHTS and not _supports(request.kind, node):
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
