"""Integer operators in place of QDQ form: Conv and MatMul between DequantizeLinear and QuantizeLinear become QLinearConv and QLinearMatMul.

A Relu or Clip before the rounding goes into it where the codes reach no farther. A MatMul whose result is not rounded becomes MatMulInteger
and a scaling. What else stands between such pairs stays as it is. Source: the ONNX operators' definitions.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ..build import Builder
from ..graph import Graph, Node, Value
from .dead import DropDead
from .rewrite import constant, graphs, rewrite

NAMES = {"Conv": "QLinearConv", "MatMul": "QLinearMatMul"}
F32 = 1
MOST_CODE = {"u8": (0, 255), "i8": (-128, 127)}


@dataclass
class IntegerOperators:
    """Fuse in place; `fused` counts the nodes."""

    fused: int = 0
    _readers: dict[Value, list[Node]] = field(default_factory=dict, repr=False)
    _ends: set[Value] = field(default_factory=set, repr=False)
    _gone: set[Node] = field(default_factory=set, repr=False)

    def run(self, graph: Graph) -> bool:
        """Whether anything was fused."""
        for inner in graphs(graph):
            self._ends.update(inner.outputs)
            for node in inner.nodes:
                for value in node.inputs:
                    if value is not None:
                        self._readers.setdefault(value, []).append(node)
        changed = rewrite(graph, self._replace)
        DropDead().run(graph)
        return changed

    def _replace(self, node: Node, build: Builder) -> bool:
        if node in self._gone:
            return True
        if node.op.domain or node.op.name not in NAMES:
            return False
        read = [_dequantized(value) for value in node.inputs]
        found = self._rounding(node.outputs[0], build.graph)
        if any(each is None for each in read):
            return False
        pairs = [each for each in read if each is not None]
        if not _is_by_channel(node, pairs, build.graph):
            return False
        if found is None:
            return node.op.name == "MatMul" and self._product(node, pairs, build)
        if len(pairs) == 3 and not _fits(pairs, build.graph):
            return False
        *between, last = found
        inputs = [*pairs[0].inputs, *pairs[1].inputs, *last.inputs[1:3], *(pair.inputs[0] for pair in pairs[2:])]
        build.add(NAMES[node.op.name], inputs, node.attributes, outputs=last.outputs, name=node.name)
        self._gone.update((*between, last))
        self.fused += 1
        return True

    def _rounding(self, value: Value, graph: Graph) -> list[Node] | None:
        """The nodes from a value to its rounding; None where it is used in another way too."""
        path: list[Node] = []
        while value not in self._ends and len(self._readers.get(value, ())) == 1:
            node = self._readers[value][0]
            path.append(node)
            if node.op.name == "QuantizeLinear" and len(node.inputs) == 3:
                return path if all(_is_free(each, node, graph) for each in path[:-1]) else None
            if node.op.name not in ("Clip", "Relu") or len(path) > 1:
                return None
            value = node.outputs[0]
        return None


    def _product(self, node: Node, pairs: list[Node], build: Builder) -> bool:
        """The real product of integers."""
        (left, left_step, left_zero), (right, right_step, right_zero) = (pair.inputs for pair in pairs)
        sums = build.add("MatMulInteger", [left, right, left_zero, right_zero], name=node.name)
        factor = build.add("Mul", [left_step, right_step])
        build.add("Mul", [build.add("Cast", [sums], {"to": F32}), factor], outputs=node.outputs)
        self.fused += 1
        return True


def _is_by_channel(node: Node, pairs: list[Node], graph: Graph) -> bool:
    """Whether the first input has one step, and the second one step or one for each output channel."""
    left, right = (constant(graph, pair.inputs[1]) for pair in pairs[:2])
    codes = constant(graph, pairs[1].inputs[0])
    if left is None or left.shape or right is None:
        return False
    if not right.shape:
        return True
    axis = pairs[1].attributes.get("axis", 1)
    return codes is not None and axis % len(codes.shape) == (0 if node.op.name == "Conv" else len(codes.shape) - 1)


def _is_free(node: Node, rounding: Node, graph: Graph) -> bool:
    """Whether a Relu or Clip changes nothing that the rounding after it would not."""
    step, zero = (constant(graph, value) for value in rounding.inputs[1:3])
    if step is None or zero is None or step.shape or zero.dtype.name not in MOST_CODE:
        return False
    least, most = (float(step.numpy()) * (code - int(zero.numpy())) for code in MOST_CODE[zero.dtype.name])
    if node.op.name == "Relu":
        return least >= 0
    bounds = [constant(graph, value) for value in node.inputs[1:]]
    if any(value is not None and bound is None for value, bound in zip(node.inputs[1:], bounds, strict=True)):
        return False
    low, high = [None if bound is None else float(bound.numpy()) for bound in (*bounds, None, None)][:2]
    half = float(step.numpy()) / 2
    return (low is None or least >= low - half) and (high is None or most <= high + half)


def _dequantized(value: Value | None) -> Node | None:
    """The DequantizeLinear, not in blocks, that makes a value."""
    node = None if value is None else value.producer
    plain = node is not None and not node.op.domain and node.op.name == "DequantizeLinear" and len(node.inputs) == 3
    return node if plain and node is not None and not node.attributes.get("block_size", 0) else None


def _fits(pairs: list[Node], graph: Graph) -> bool:
    """Whether a bias is in int32, in steps of the products."""
    import numpy

    steps = [constant(graph, pair.inputs[1]) for pair in pairs]
    codes = constant(graph, pairs[2].inputs[0])
    if codes is None or codes.dtype.name != "i32" or any(step is None for step in steps):
        return False
    left, right, bias = (step.numpy() for step in steps if step is not None)
    return bool(numpy.allclose(left * right, bias, rtol=1e-6, atol=0))
