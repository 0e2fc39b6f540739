"""onnxruntime's fused products and convolutions on the device, decomposed into standard operators."""

from __future__ import annotations

from typing import Any

from ....runtime.cuda.plan.kernel_api import decomposed
from ....runtime.ir.builder import Builder
from ....runtime.ir.graph import Node
from ...recurrent.recurrent import ACTIVATIONS
from ...recurrent.recurrent_cuda import OPERATORS
from ...rules.expression import Term, lowered
from .fused import _order as order
from .fused import fused_conv, fused_gemm, fused_matmul, nhwc_conv, nhwc_max_pool

CONV = ("auto_pad", "dilations", "group", "kernel_shape", "pads", "strides")


def _activated(term: Term, name: str, given: list[float]) -> Term:
    key = name.lower()
    if not key:
        return term
    if key == "clip":
        return term.call("Clip", *(term.number(value) for value in given))
    _, *defaults = ACTIVATIONS[key]
    left = list(given)
    values = {
        word: left.pop(0) if left else default
        for word, default in zip(("alpha", "beta"), defaults, strict=True)
        if default is not None
    }
    if key == "affine":
        return term * values["alpha"] + values["beta"]
    if key == "scaledtanh":
        return (term * values["beta"]).call("Tanh") * values["alpha"]
    return term.call(OPERATORS[key], **values)


def _matmul(
    a: Term,
    b: Term,
    alpha: float,
    transA: int,  # noqa: N803
    transB: int,  # noqa: N803
    transBatchA: int,  # noqa: N803
    transBatchB: int,  # noqa: N803
) -> Term:
    pairs = (a, transA, transBatchA), (b, transB, transBatchB)
    left, right = (
        item.call("Transpose", perm=order(item.rank or 0, transposed, batch)) for item, transposed, batch in pairs
    )
    found = left.call("MatMul", right)
    return found if alpha == 1 else found * alpha


decomposed(fused_matmul)(lowered(_matmul))


def _conv(x: Term, w: Term, b: Term | None = None, z: Term | None = None, **attributes: Any) -> Term:
    found = x.call("Conv", w, b, **{name: attributes[name] for name in CONV})
    return _activated(
        found if z is None else found + z, attributes["activation"], attributes["activation_params"] or []
    )


decomposed(fused_conv)(lowered(_conv))


def _gemm(a: Term, b: Term, c: Term | None = None, **attributes: Any) -> Term:
    found = a.call("Gemm", b, c, **{name: attributes[name] for name in ("alpha", "beta", "transA", "transB")})
    given = [attributes[f"activation_{word}"] for word in ("alpha", "beta", "gamma")]
    return _activated(found, attributes["activation"], [value for value in given if value is not None])


decomposed(fused_gemm)(lowered(_gemm))


def _first(term: Term) -> Term:
    rank = term.rank or 0
    return term.call("Transpose", perm=[0, rank - 1, *range(1, rank - 1)])


def _last(term: Term, rank: int) -> Term:
    return term.call("Transpose", perm=[0, *range(2, rank), 1])


@decomposed(nhwc_conv)
def nhwc_conv_of_others(node: Node, build: Builder) -> None:
    """Conv between two transposes."""

    def formula(x: Term, w: Term, b: Term | None = None, **attributes: Any) -> Term:
        return _last(_first(x).call("Conv", _first(w), b, **attributes), x.rank or 0)

    lowered(formula)(node, build)


@decomposed(nhwc_max_pool)
def nhwc_max_pool_of_others(node: Node, build: Builder) -> None:
    """MaxPool between two transposes."""
    lowered(lambda x, **attributes: _last(_first(x).call("MaxPool", **attributes), x.rank or 0))(node, build)
