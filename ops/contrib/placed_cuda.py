"""onnxruntime's operators of integers on the device, made of others, and those that run on the CPU."""

from __future__ import annotations

from collections.abc import Callable

from ...runtime.build import Builder
from ...runtime.cuda.place import composed, on_cpu, within
from ...runtime.graph import Node
from ..term import Term
from . import (
    attention,
    dynamic_lstm,
    dynamic_products,
    gather_block_quantized,
    group_query_attention,
    linear_attention,
    matmul_bnb4,
    moe,
    norm,
    paged_attention,
    qlinear,
    quantize_linear,
    rotary_embedding,
    sparse_attention,
)

on_cpu("no kernel has been written for it yet", *within(
    attention, dynamic_lstm, dynamic_products, gather_block_quantized, group_query_attention, linear_attention, matmul_bnb4, moe, norm,
    paged_attention, qlinear, quantize_linear, rotary_embedding, sparse_attention,
))


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
