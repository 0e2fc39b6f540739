"""QLinear operators and onnxruntime's QuantizeLinear on the device, decomposed into other operators."""

from __future__ import annotations

import math
from collections.abc import Callable

from ....runtime.cuda.plan.kernel_api import decomposed
from ....runtime.ir.builder import Builder
from ....runtime.ir.graph import Node
from ...rules.expression import Term
from . import qlinear, quantize_linear


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


decomposed(qlinear.qlinear_add)(_of_two(lambda a, b: a + b))
decomposed(qlinear.qlinear_mul)(_of_two(lambda a, b: a * b))


@decomposed(qlinear.qlinear_sigmoid)
def sigmoid_of_others(node: Node, build: Builder) -> None:
    """Sigmoid of the real values."""
    _store(node, build, _real(node, build, 0).call("Sigmoid"), 3)


@decomposed(qlinear.qlinear_leaky_relu)
def leaky_relu_of_others(node: Node, build: Builder) -> None:
    """LeakyRelu of the real values."""
    _store(
        node, build, _real(node, build, 0).call("LeakyRelu", alpha={**node.op.defaults, **node.attributes}["alpha"]), 3
    )


def _lengths(node: Node) -> list[int]:
    shape = node.inputs[0].shape if node.inputs[0] is not None else None
    return [length for length in shape or () if isinstance(length, int)]


def _standard(name: str) -> Callable[[Node, Builder], None]:
    """The standard's operator of the same name; per tensor without an axis."""

    def formula(node: Node, build: Builder) -> None:
        axis = node.attributes.get("axis")
        build.add(name, node.inputs, {"axis": 1 if axis is None else axis}, outputs=node.outputs)

    return formula


decomposed(quantize_linear.quantize_linear)(_standard("QuantizeLinear"))
decomposed(quantize_linear.dequantize_linear)(_standard("DequantizeLinear"))


@decomposed(qlinear.qlinear_softmax)
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


@decomposed(qlinear.qlinear_where)
def where_of_others(node: Node, build: Builder) -> None:
    """Both sides in the result's steps, then the choice."""
    condition, scale, zero = node.inputs[0], node.inputs[7], node.inputs[8]
    sides = [build.add("QuantizeLinear", [_real(node, build, first).value, scale, zero]) for first in (1, 4)]
    build.add("Where", [condition, *sides], outputs=node.outputs)


@decomposed(qlinear.qlinear_concat)
def concat_of_others(node: Node, build: Builder) -> None:
    """Every part in the result's steps."""
    scale, zero = node.inputs[:2]
    parts = [
        build.add("QuantizeLinear", [_real(node, build, first).value, scale, zero])
        for first in range(2, len(node.inputs), 3)
    ]
    build.add("Concat", parts, {"axis": node.attributes["axis"]}, outputs=node.outputs)


@decomposed(qlinear.qlinear_global_average_pool)
def global_pool_of_others(node: Node, build: Builder) -> None:
    """The mean of each channel's real values."""
    wide = _real(node, build, 0)
    rank = len(_lengths(node))
    axes = range(1, rank - 1) if node.attributes.get("channels_last") else range(2, rank)
    _store(node, build, wide.call("ReduceMean", Term(build.constant(list(axes)), build), keepdims=1), 3)


@decomposed(qlinear.qlinear_average_pool)
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
