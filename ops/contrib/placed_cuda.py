"""onnxruntime's operators of integers on the device, made of others."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from ...runtime.build import Builder
from ...runtime.cuda.place import composed
from ...runtime.graph import Node, Value
from ..term import Term
from . import dynamic_products, qlinear, quantize_linear


def _real(node: Node, build: Builder, first: int) -> Term:
    """The real values of an input, whose scale and zero point follow."""
    value = node.inputs[first]
    assert value is not None
    zero = node.inputs[first + 2] if first + 2 < len(node.inputs) else None
    return Term(build.add("DequantizeLinear", [value, node.inputs[first + 1], zero]), build)


def _store(node: Node, build: Builder, found: Term, scale: int) -> None:
    value = node.inputs[0]
    assert value is not None
    assert value.dtype is not None
    zero = node.inputs[scale + 1] if scale + 1 < len(node.inputs) else None
    attributes = {} if zero is not None else {"output_dtype": value.dtype.onnx}
    build.add("QuantizeLinear", [found.value, node.inputs[scale], zero], attributes, outputs=[node.outputs[0]])


def _of_two(function: Callable[[Term, Term], Term]) -> Callable[[Node, Builder], None]:
    def formula(node: Node, build: Builder) -> None:
        _store(node, build, function(_real(node, build, 0), _real(node, build, 3)), 6)

    return formula


composed(qlinear.qlinear_add)(_of_two(lambda a, b: a + b))
composed(qlinear.qlinear_mul)(_of_two(lambda a, b: a * b))


@composed(qlinear.qlinear_sigmoid)
def sigmoid_of_others(node: Node, build: Builder) -> None:
    """Sigmoid of the real values."""
    _store(node, build, _real(node, build, 0).call("Sigmoid"), 3)


@composed(qlinear.qlinear_leaky_relu)
def leaky_relu_of_others(node: Node, build: Builder) -> None:
    """LeakyRelu of the real values."""
    _store(node, build, _real(node, build, 0).call("LeakyRelu", alpha={**node.op.defaults, **node.attributes}["alpha"]), 3)


def _lengths(node: Node) -> list[int]:
    shape = node.inputs[0].shape if node.inputs[0] is not None else None
    return [length for length in shape or () if isinstance(length, int)]


def _standard(name: str) -> Callable[[Node, Builder], None]:
    """The standard's operator of the same name; one scale for all where there is no axis."""

    def formula(node: Node, build: Builder) -> None:
        axis = node.attributes.get("axis")
        build.add(name, node.inputs, {"axis": 1 if axis is None else axis}, outputs=node.outputs)

    return formula


composed(quantize_linear.quantize_linear)(_standard("QuantizeLinear"))
composed(quantize_linear.dequantize_linear)(_standard("DequantizeLinear"))


@composed(qlinear.qlinear_softmax)
def softmax_of_others(node: Node, build: Builder) -> None:
    """Softmax of the real values; below opset 13 over all axes from `axis` on."""
    attributes = {**node.op.defaults, **node.attributes}
    wide, axis = _real(node, build, 0), attributes["axis"]
    if attributes["opset"] < 13:
        shape = _lengths(node)
        rows = math.prod(shape[: axis % max(1, len(shape))])
        flat = wide.call("Reshape", Term(build.constant([rows, -1]), build)).call("Softmax", axis=-1)
        _store(node, build, flat.call("Reshape", Term(build.constant(shape), build)), 3)
    else:
        _store(node, build, wide.call("Softmax", axis=axis), 3)


@composed(qlinear.qlinear_where)
def where_of_others(node: Node, build: Builder) -> None:
    """Both sides in the result's steps, then the choice."""
    condition, scale, zero = node.inputs[0], node.inputs[7], node.inputs[8]
    sides = [build.add("QuantizeLinear", [_real(node, build, first).value, scale, zero]) for first in (1, 4)]
    build.add("Where", [condition, *sides], outputs=node.outputs)


@composed(qlinear.qlinear_concat)
def concat_of_others(node: Node, build: Builder) -> None:
    """Every part in the result's steps."""
    scale, zero = node.inputs[:2]
    parts = [build.add("QuantizeLinear", [_real(node, build, first).value, scale, zero]) for first in range(2, len(node.inputs), 3)]
    build.add("Concat", parts, {"axis": node.attributes["axis"]}, outputs=node.outputs)


@composed(qlinear.qlinear_global_average_pool)
def global_pool_of_others(node: Node, build: Builder) -> None:
    """The mean of each channel's real values."""
    wide = _real(node, build, 0)
    rank = len(_lengths(node))
    axes = range(1, rank - 1) if node.attributes.get("channels_last") else range(2, rank)
    _store(node, build, wide.call("ReduceMean", Term(build.constant(list(axes)), build), keepdims=1), 3)


@composed(qlinear.qlinear_average_pool)
def pool_of_others(node: Node, build: Builder) -> None:
    """AveragePool of the real values, channels first."""
    attributes = {**node.op.defaults, **node.attributes}
    last = attributes.pop("channels_last")
    wide = _real(node, build, 0)
    rank = len(_lengths(node))
    if last:
        wide = wide.call("Transpose", perm=[0, rank - 1, *range(1, rank - 1)])
    found = wide.call("AveragePool", **{name: value for name, value in attributes.items() if value is not None})
    _store(node, build, found.call("Transpose", perm=[0, *range(2, rank), 1]) if last else found, 3)


def _scaled_sums(build: Builder, inputs: Sequence[Value | None], scales: tuple[Term, Term], bias: Value | None) -> Term:
    sums = Term(build.add("MatMulInteger", inputs), build).call("Cast", to=1)
    found = sums * (scales[0].call("Cast", to=1) * scales[1].call("Cast", to=1))
    return found if bias is None else found + Term(bias, build).call("Cast", to=1)


def _given(node: Node, index: int) -> Value | None:
    return node.inputs[index] if index < len(node.inputs) else None


@composed(dynamic_products.dynamic_quantize_matmul)
def dynamic_product_of_others(node: Node, build: Builder) -> None:
    """The left side quantized as one, a product of integers, and its scale."""
    a, b, scale = node.inputs[:3]
    assert scale is not None
    codes, step, zero = build.node("DynamicQuantizeLinear", [a], outputs=3).outputs
    found = _scaled_sums(build, [codes, b, zero, _given(node, 3)], (Term(step, build), Term(scale, build)), _given(node, 4))
    build.add("Identity", [found.value], outputs=node.outputs)


@composed(dynamic_products.matmul_integer_to_float)
def product_to_float_of_others(node: Node, build: Builder) -> None:
    """A product of integers and its scales."""
    a, b, one, two = node.inputs[:4]
    assert one is not None
    assert two is not None
    found = _scaled_sums(build, [a, b, _given(node, 4), _given(node, 5)], (Term(one, build), Term(two, build)), _given(node, 6))
    assert one.dtype is not None
    build.add("Cast", [found.value], {"to": one.dtype.onnx}, outputs=node.outputs)
