"""QDQ fusion: a node between DequantizeLinear and QuantizeLinear becomes an integer operator.

Conv and MatMul become QLinearConv and QLinearMatMul; a Relu or Clip before the QuantizeLinear is dropped if the
range of the codes implies it. A MatMul without QuantizeLinear becomes MatMulInteger and a scaling. Operators that
only move values move codes. With onnxruntime's operators, sums, products, concatenations, averages and Gemm become
QLinearAdd, QLinearMul, QLinearConcat, QLinearGlobalAveragePool and QGemm, and a MatMul without QuantizeLinear becomes
MatMulIntegerToFloat. Other nodes stay. Source: the ONNX operators' definitions, and onnxruntime's of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field

from ...base.dataclass import dataclass
from ...ir.builder import Builder
from ...ir.domain import MICROSOFT
from ...ir.graph import Graph, Node, Value
from ...ir.registry import onnx
from ...tensor.stored_tensor import StoredTensor
from ..pattern.dead_code import RemoveDeadCode
from ..pattern.replace_nodes import constant, graphs, output_axis, rewrite, substitute
from ..pattern.stage import PipelinePass

F32 = 1
MAX_CODE = {"u8": (0, 255), "i8": (-128, 127)}
MIN_SCALE, MAX_SCALE = 1e-30, 1e30
"""Between these, codes that become real and are rounded with the same step are what they were."""


@dataclass
class FuseQDQ:
    """Fuse in place.

    Attributes:
        contrib: whether onnxruntime's operators may be used; products of two computed values stay real then, which is
            faster.
        fused: how many nodes were.
    """

    contrib: bool = False
    fused: int = 0
    _readers: dict[Value, list[Node]] = field(default_factory=dict, repr=False)
    _ends: set[Value] = field(default_factory=set, repr=False)
    _gone: set[Node] = field(default_factory=set, repr=False)
    _same: dict[Value, Value] = field(default_factory=dict, repr=False)

    def run(self, graph: Graph) -> bool:
        """Return whether anything was fused."""
        if not any(node.op is onnx.DequantizeLinear for inner in graphs(graph) for node in inner.nodes):
            return False
        for inner in graphs(graph):
            self._ends.update(inner.outputs)
            for node in inner.nodes:
                for value in node.inputs:
                    if value is not None:
                        self._readers.setdefault(value, []).append(node)
        changed = rewrite(graph, self._replace)
        changed |= substitute(graph, self._same)
        RemoveDeadCode().run(graph)
        return changed

    def _replace(self, node: Node, build: Builder) -> bool:
        if node in self._gone:
            return True
        maker = MAKERS.get(node.op.name)
        if node.op.domain or maker is None:
            return False
        read = [_dequantized(value) for value in node.inputs]
        pairs = [each for each in read if each is not None]
        moving = maker is FuseQDQ._moved
        if (
            not pairs
            or read[0] is None
            or (len(pairs) < len(read) and not moving and node.op is not onnx.QuantizeLinear)
        ):
            return False
        done = maker(self, node, pairs, build)
        self.fused += done
        return done

    def _rounding(self, value: Value, graph: Graph) -> list[Node]:
        """The nodes from a value to its QuantizeLinear; empty if the value has other uses."""
        path: list[Node] = []
        while value not in self._ends and len(self._readers.get(value, ())) == 1:
            node = self._readers[value][0]
            path.append(node)
            if node.op is onnx.QuantizeLinear and len(node.inputs) == 3 and not node.attributes.get("block_size", 0):
                return path if all(_is_free(each, node, graph) for each in path[:-1]) else []
            if node.op not in (onnx.Clip, onnx.Relu) or len(path) > 1:
                return []
            value = node.outputs[0]
        return []

    def _weighted(self, node: Node, pairs: list[Node], build: Builder) -> bool:
        """Conv and MatMul."""
        graph = build.graph
        if not _is_by_channel(node, pairs, graph) or (len(pairs) == 3 and not _fits(pairs, graph)):
            return False
        if self.contrib and constant(graph, pairs[1].inputs[0]) is None:
            return False
        path = self._rounding(node.outputs[0], graph)
        if not path or quantization_of(path[-1], graph) is None:
            return node.op is onnx.MatMul and not path and self._product(node, pairs, build)
        biases = [pair.inputs[0] for pair in pairs[2:]]
        inputs = [*_quantity(pairs[0], build), *_quantity(pairs[1], build), *path[-1].inputs[1:3], *biases]
        return self._made(f"QLinear{node.op.name}", inputs, node, path, build, node.attributes)

    def _product(self, node: Node, pairs: list[Node], build: Builder) -> bool:
        """An integer product with a float result."""
        if self.contrib:
            each = zip(*(_quantity(pair, build) for pair in pairs), strict=True)
            inputs = [value for both in each for value in both]
            return self._made("MatMulIntegerToFloat", inputs, node, [], build, {}, MICROSOFT)
        (left, left_step, *left_zero), (right, right_step, *right_zero) = (pair.inputs for pair in pairs)
        sums = build.add(
            "MatMulInteger", [left, right, *(left_zero or [None]), *(right_zero or [None])], name=node.name
        )
        factor = build.add("Mul", [left_step, right_step])
        build.add("Mul", [build.add("Cast", [sums], {"to": F32}), factor], outputs=node.outputs)
        return True

    def _gemm(self, node: Node, pairs: list[Node], build: Builder) -> bool:
        graph, attributes = build.graph, node.attributes
        scaled = attributes.get("beta", 1.0) != 1 or attributes.get("alpha", 1.0) != 1 or attributes.get("transA", 0)
        if (
            not self.contrib
            or scaled
            or constant(graph, pairs[1].inputs[0]) is None
            or not _is_by_channel(node, pairs, graph)
        ):
            return False
        if len(pairs) == 3 and not _fits(pairs, graph):
            return False
        path = self._rounding(node.outputs[0], graph)
        if path and quantization_of(path[-1], graph) is None:
            return False
        bias = pairs[2].inputs[0] if len(pairs) == 3 else None
        inputs = [
            *_quantity(pairs[0], build),
            *_quantity(pairs[1], build),
            bias,
            *(path[-1].inputs[1:3] if path else []),
        ]
        return self._made("QGemm", inputs, node, path, build, {"transB": attributes.get("transB", 0)}, MICROSOFT)

    def _pair(self, node: Node, pairs: list[Node], build: Builder) -> bool:
        """QLinearAdd and QLinearMul."""
        path = self._like(node, pairs, build.graph)
        if not self.contrib or not path:
            return False
        inputs = [*_quantity(pairs[0], build), *_quantity(pairs[1], build), *path[-1].inputs[1:3]]
        return self._made(
            "QLinearAdd" if node.op is onnx.Add else "QLinearMul", inputs, node, path, build, {}, MICROSOFT
        )

    def _averaged(self, node: Node, pairs: list[Node], build: Builder) -> bool:
        """GlobalAveragePool."""
        path = self._like(node, pairs, build.graph)
        if not self.contrib or not path:
            return False
        inputs = [*_quantity(pairs[0], build), *path[-1].inputs[1:3]]
        return self._made("QLinearGlobalAveragePool", inputs, node, path, build, {}, MICROSOFT)

    def _joined(self, node: Node, pairs: list[Node], build: Builder) -> bool:
        """Concat."""
        path = self._like(node, pairs, build.graph)
        if not path:
            return False
        if all(quantization_of(pair, build.graph) == quantization_of(path[-1], build.graph) for pair in pairs):
            return self._made("Concat", [pair.inputs[0] for pair in pairs], node, path, build, node.attributes)
        inputs = [*path[-1].inputs[1:3], *(value for pair in pairs for value in _quantity(pair, build))]
        return self.contrib and self._made("QLinearConcat", inputs, node, path, build, node.attributes, MICROSOFT)

    def _moved(self, node: Node, pairs: list[Node], build: Builder) -> bool:
        path = self._like(node, pairs[:1], build.graph)
        if (
            not path
            or quantization_of(pairs[0], build.graph) != quantization_of(path[-1], build.graph)
            or any(value.name for value in node.outputs[1:])
        ):
            return False
        return self._made(node.op.name, [pairs[0].inputs[0], *node.inputs[1:]], node, path, build, node.attributes)

    def _again(self, node: Node, pairs: list[Node], build: Builder) -> bool:
        """A DequantizeLinear and QuantizeLinear with the same scale."""
        grid, codes = quantization_of(pairs[0], build.graph), pairs[0].inputs[0]
        if grid is None or grid != quantization_of(node, build.graph) or node.outputs[0] in self._ends or codes is None:
            return False
        if not MIN_SCALE < abs(grid[0]) < MAX_SCALE:
            return False
        self._same[node.outputs[0]] = codes
        return True

    def _like(self, node: Node, pairs: list[Node], graph: Graph) -> list[Node]:
        """The path to a QuantizeLinear with the dtype of all inputs, and one scale each; else empty."""
        path = self._rounding(node.outputs[0], graph)
        grids = [quantization_of(each, graph) for each in (*pairs, *path[-1:])]
        return (
            path
            if len({None if grid is None else grid[2] for grid in grids} - {None}) == 1 and None not in grids
            else []
        )

    def _made(
        self,
        name: str,
        inputs: list[Value | None],
        node: Node,
        path: list[Node],
        build: Builder,
        attributes: dict[str, object],
        domain: str = "",
    ) -> bool:
        """Add the integer node that replaces a node and the path to its QuantizeLinear."""
        build.add(
            name, inputs, attributes, domain=domain, outputs=path[-1].outputs if path else node.outputs, name=node.name
        )
        self._gone.update(path)
        return True


MAKERS: dict[str, Callable[[FuseQDQ, Node, list[Node], Builder], bool]] = {
    "Conv": FuseQDQ._weighted,
    "MatMul": FuseQDQ._weighted,
    "Gemm": FuseQDQ._gemm,
    "Concat": FuseQDQ._joined,
    "GlobalAveragePool": FuseQDQ._averaged,
    "QuantizeLinear": FuseQDQ._again,
    **dict.fromkeys(("Add", "Mul"), FuseQDQ._pair),
    **dict.fromkeys(("Flatten", "MaxPool", "Reshape", "Squeeze", "Transpose", "Unsqueeze"), FuseQDQ._moved),
}


def quantization_of(node: Node, graph: Graph) -> tuple[float, int, str] | None:
    """Scale, zero point and dtype of an 8-bit per-tensor DequantizeLinear or QuantizeLinear; None for others."""
    step, zero = (constant(graph, value) for value in (*node.inputs[1:3], None)[:2])
    if step is None or step.count != 1 or step.dtype.name != "f32":
        return None
    if zero is None:
        codes = (node.inputs if node.op is onnx.DequantizeLinear else node.outputs)[0]
        known = None if codes is None or len(node.inputs) > 2 else codes.dtype
        return (
            (float(step.numpy().reshape(())), 0, known.name) if known is not None and known.name in MAX_CODE else None
        )
    return (
        (float(step.numpy().reshape(())), int(zero.numpy().reshape(())), zero.dtype.name)
        if zero.dtype.name in MAX_CODE
        else None
    )


def _quantity(pair: Node, build: Builder) -> list[Value | None]:
    """Codes, scale and zero point of a DequantizeLinear."""
    codes, step, *zero = pair.inputs
    if zero:
        return [codes, step, zero[0]]
    import numpy

    held, scale = constant(build.graph, codes), constant(build.graph, step)
    dtype = held.dtype if held is not None else codes.dtype if codes is not None else None
    assert dtype is not None
    assert scale is not None
    return [
        codes,
        step,
        build.weight(
            StoredTensor.of(
                numpy.zeros([length for length in scale.shape if isinstance(length, int)], dtype.as_numpy())
            )
        ),
    ]


def _is_by_channel(node: Node, pairs: list[Node], graph: Graph) -> bool:
    """Whether the first input has one scale, and the second one scale or one per output channel."""
    left, right = (constant(graph, pair.inputs[1]) for pair in pairs[:2])
    codes = constant(graph, pairs[1].inputs[0])
    known = all(len(pair.inputs) == 3 or _typed(pair, graph) for pair in pairs[:2])
    if left is None or left.count != 1 or right is None or not known:
        return False
    if right.count == 1:
        return True
    axis = pairs[1].attributes.get("axis", 1)
    return codes is not None and (axis - output_axis(node)) % len(codes.shape) == 0


def _typed(pair: Node, graph: Graph) -> bool:
    """Whether the dtype of the codes is known."""
    value = pair.inputs[0]
    held = constant(graph, value)
    dtype = held.dtype if held is not None else value.dtype if value is not None else None
    return dtype is not None and dtype.name in MAX_CODE


def _is_free(node: Node, rounding: Node, graph: Graph) -> bool:
    """Whether the following QuantizeLinear makes a Relu or Clip redundant."""
    step, zero = (constant(graph, value) for value in rounding.inputs[1:3])
    if step is None or zero is None or step.count != 1 or zero.dtype.name not in MAX_CODE:
        return False
    scale = float(step.numpy().reshape(()))
    least, most = (scale * (code - int(zero.numpy().reshape(()))) for code in MAX_CODE[zero.dtype.name])
    if node.op is onnx.Relu:
        return least >= 0
    bounds = [constant(graph, value) for value in node.inputs[1:]]
    if any(value is not None and bound is None for value, bound in zip(node.inputs[1:], bounds, strict=True)):
        return False
    low, high = [None if bound is None else float(bound.numpy().reshape(())) for bound in (*bounds, None, None)][:2]
    return (low is None or least >= low - scale / 2) and (high is None or most <= high + scale / 2)


def _dequantized(value: Value | None) -> Node | None:
    """The DequantizeLinear (not blocked) that computes a value."""
    node = None if value is None else value.producer
    if node is None or node.op is not onnx.DequantizeLinear or node.attributes.get("block_size", 0):
        return None
    return node


def _fits(pairs: list[Node], graph: Graph) -> bool:
    """Whether a bias is int32 in units of the product of the scales."""
    import numpy

    steps = [constant(graph, pair.inputs[1]) for pair in pairs]
    codes = constant(graph, pairs[2].inputs[0])
    if codes is None or codes.dtype.name != "i32" or any(step is None for step in steps):
        return False
    left, right, bias = (step.numpy() for step in steps if step is not None)
    return bool(numpy.allclose(left.reshape(-1) * right.reshape(-1), bias.reshape(-1), rtol=1e-6, atol=0))


PIPELINE = (PipelinePass("integers", lambda options: FuseQDQ(contrib=True), backends=("cpu",)),)
