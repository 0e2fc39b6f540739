"""DynamicQuantizeMatMul, MatMulIntegerToFloat and QGemm on the device, decomposed into other operators."""

from __future__ import annotations

from collections.abc import Sequence

from ....runtime.cuda.plan.kernel_api import decomposed
from ....runtime.ir.builder import Builder
from ....runtime.ir.graph import Node, Value
from ....runtime.tensor.dtype import F32
from ...rules.decompose_cuda import Form, forms
from ...rules.expression import Term
from .dynamic_matmul import dynamic_quantize_matmul, matmul_integer_to_float, qgemm


def _scaled_sums(build: Builder, inputs: Sequence[Value | None], scales: tuple[Term, Term], bias: Value | None) -> Term:
    sums = Term(build.add("MatMulInteger", inputs), build).call("Cast", to=1)
    found = sums * (scales[0].call("Cast", to=1) * scales[1].call("Cast", to=1))
    return found if bias is None else found + Term(bias, build).call("Cast", to=1)


def _given(node: Node, index: int) -> Value | None:
    return node.inputs[index] if index < len(node.inputs) else None


@decomposed(dynamic_quantize_matmul)
def dynamic_product_of_others(node: Node, build: Builder) -> None:
    """The left side quantized as one, a product of integers, and its scale."""
    a, b, scale = node.inputs[:3]
    assert scale is not None
    codes, step, zero = build.node("DynamicQuantizeLinear", [a], outputs=3).outputs
    found = _scaled_sums(
        build, [codes, b, zero, _given(node, 3)], (Term(step, build), Term(scale, build)), _given(node, 4)
    )
    build.add("Identity", [found.value], outputs=node.outputs)


@decomposed(matmul_integer_to_float)
def product_to_float_of_others(node: Node, build: Builder) -> None:
    """A product of integers and its scales."""
    a, b, one, two = node.inputs[:4]
    assert one is not None
    assert two is not None
    found = _scaled_sums(
        build, [a, b, _given(node, 4), _given(node, 5)], (Term(one, build), Term(two, build)), _given(node, 6)
    )
    assert one.dtype is not None
    build.add("Cast", [found.value], {"to": one.dtype.onnx}, outputs=node.outputs)


@decomposed(qgemm)
@forms
def _gemm(form: Form) -> None:
    a, a_scale, a_zero, b, b_scale, b_zero = (form.input(index) for index in range(6))
    given, c = form.attributes, form.optional_input(6)
    left = a.call("Transpose", perm=[1, 0]) if given["transA"] else a
    right = b.call("Transpose", perm=[1, 0]) if given["transB"] else b
    sums = form.node_of("MatMulInteger", [left, right, a_zero, b_zero], 1)[0]
    multiplier = form.cast(a_scale, F32) * given["alpha"] * form.cast(b_scale, F32)
    real = form.cast(sums if c is None else sums + c, F32) * multiplier
    y_scale, y_zero = form.optional_input(7), form.optional_input(8)
    form.give(0, real if y_scale is None or y_zero is None else real.call("QuantizeLinear", y_scale, y_zero))
