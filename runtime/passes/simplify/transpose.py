"""Transpose simplification: consecutive transposes are composed, and folded into matrix products."""

from __future__ import annotations

from ...ir.builder import Builder
from ...ir.graph import Node, Value
from ...ir.registry import onnx
from ..pattern.pattern import call, var
from ..pattern.replace_nodes import constant
from ..pattern.rewrite_rules import Match, Rule, is_float

Order = tuple[int, ...]
"""For each axis after a transposition, the one that it was before."""


def order_of(node: Node | None) -> Order | None:
    """The permutation of a Transpose."""
    if node is None or node.op is not onnx.Transpose or node.inputs[0] is None:
        return None
    perm, shape = node.attributes.get("perm"), node.outputs[0].shape
    return tuple(perm) if perm is not None else None if shape is None else tuple(range(len(shape)))[::-1]


def compose(first: Order, second: Order) -> Order:
    """The composition of two permutations."""
    return tuple(first[axis] for axis in second)


def _once(match: Match, build: Builder) -> Value | None:
    first, second = order_of(match.node("first")), order_of(match.root)
    if first is None or second is None:
        return None
    both = compose(first, second)
    return match["x"] if both == tuple(sorted(both)) else build.add("Transpose", [match["x"]], {"perm": list(both)})


def _into_gemm(match: Match, build: Builder) -> Value | None:
    """A transpose flag of Gemm in place of a Transpose."""
    node = match.root
    inputs, attributes = list(node.inputs), dict(node.attributes)
    for index, name in ((0, "transA"), (1, "transB")):
        maker = match.view.maker(inputs[index])
        if maker is not None and order_of(maker) == (1, 0):
            inputs[index] = maker.inputs[0]
            attributes[name] = 1 - attributes.get(name, 0)
    return build.add(node.op, inputs, attributes) if inputs != node.inputs else None


def _of_gemm(match: Match, build: Builder) -> Value | None:
    """The product of the transposed factors in the other order in place of a transposed product."""
    product = match.node("product")
    a, b, *others = product.inputs
    if order_of(match.root) != (1, 0) or any(value is not None for value in others):
        return None
    attributes = dict(product.attributes)
    flags = {"transA": 1 - attributes.get("transB", 0), "transB": 1 - attributes.get("transA", 0)}
    return build.add(product.op, [b, a], attributes | flags)


def _into_product(match: Match, build: Builder) -> Value | None:
    """Gemm with a transpose flag in place of MatMul and Transpose."""
    node = match.root
    known = all(value is not None and value.shape is not None and len(value.shape) == 2 for value in node.inputs)
    made = [
        order_of(match.view.maker(value)) == (1, 0) and constant(match.graph, value) is None for value in node.inputs
    ]
    if not known or not any(made) or not is_float(*node.inputs):
        return None
    makers = [match.view.maker(value) for value in node.inputs]
    inputs = [
        maker.inputs[0] if found and maker is not None else value
        for maker, found, value in zip(makers, made, node.inputs, strict=True)
    ]
    return build.add("Gemm", inputs, {name: 1 for name, found in zip(("transA", "transB"), made, strict=True) if found})


RULES = (
    Rule("two transpositions", call("Transpose", call("Transpose", var("x"), name="first", shared=True)), _once),
    Rule("transposed matrix in Gemm", call("Gemm", ...), _into_gemm),
    Rule("transposed Gemm", call("Transpose", call("Gemm", ..., name="product")), _of_gemm),
    Rule("transposed matrix in a product", call("MatMul", var("a"), var("b")), _into_product),
)
