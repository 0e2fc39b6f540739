"""onnxruntime's fused operators on the device: made of the standard's, and norms that also give a sum."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...runtime.build import Builder
from ...runtime.cuda.kernel import Launch
from ...runtime.cuda.operand import over
from ...runtime.cuda.place import Planned, Step, composed, cuda
from ...runtime.cuda.zip import Apply, Chain, applied, copied, mapped
from ...runtime.graph import Node
from ..attention.attention_cuda import in_heads, rotated
from ..nn.norm_cuda import MOMENTS, ROOT, _scaled, _shifted, _the_inverse, _the_mean, normalized, rooted, wide
from ..nn.recurrent import ACTIVATIONS
from ..nn.recurrent_cuda import OPERATORS
from ..term import Term, lowered
from .fused import _order as order
from .fused import fused_conv, fused_gemm, fused_matmul, nhwc_conv, nhwc_max_pool
from .gelu import bias_gelu, fast_gelu, gelu, quick_gelu
from .norm import simplified_layer_normalization, skip_layer_normalization, skip_simplified_layer_normalization
from .rotary_embedding import rotary_embedding

composed(gelu)(lowered(lambda x: x.call("Gelu")))
composed(bias_gelu)(lowered(lambda a, b: (a + b).call("Gelu")))
composed(fast_gelu)(lowered(lambda x, bias=None: (x if bias is None else x + bias).call("Gelu", approximate="tanh")))
composed(quick_gelu)(lowered(lambda x, alpha: x.call("Swish", alpha=alpha)))
CONV = ("auto_pad", "dilations", "group", "kernel_shape", "pads", "strides")


def _activated(term: Term, name: str, given: list[float]) -> Term:
    key = name.lower()
    if not key:
        return term
    if key == "clip":
        return term.call("Clip", *(term.number(value) for value in given))
    _, *defaults = ACTIVATIONS[key]
    left = list(given)
    values = {word: left.pop(0) if left else default for word, default in zip(("alpha", "beta"), defaults, strict=True) if default is not None}
    if key == "affine":
        return term * values["alpha"] + values["beta"]
    if key == "scaledtanh":
        return (term * values["beta"]).call("Tanh") * values["alpha"]
    return term.call(OPERATORS[key], **values)


def _matmul(a: Term, b: Term, alpha: float, transA: int, transB: int, transBatchA: int, transBatchB: int) -> Term:  # noqa: N803 (attributes)
    pairs = (a, transA, transBatchA), (b, transB, transBatchB)
    left, right = (item.call("Transpose", perm=order(item.rank or 0, turned, batch)) for item, turned, batch in pairs)
    found = left.call("MatMul", right)
    return found if alpha == 1 else found * alpha


composed(fused_matmul)(lowered(_matmul))


def _conv(x: Term, w: Term, b: Term | None = None, z: Term | None = None, **attributes: Any) -> Term:
    found = x.call("Conv", w, b, **{name: attributes[name] for name in CONV})
    return _activated(found if z is None else found + z, attributes["activation"], attributes["activation_params"] or [])


composed(fused_conv)(lowered(_conv))


def _gemm(a: Term, b: Term, c: Term | None = None, **attributes: Any) -> Term:
    found = a.call("Gemm", b, c, **{name: attributes[name] for name in ("alpha", "beta", "transA", "transB")})
    given = [attributes[f"activation_{word}"] for word in ("alpha", "beta", "gamma")]
    return _activated(found, attributes["activation"], [value for value in given if value is not None])


composed(fused_gemm)(lowered(_gemm))


def _first(term: Term) -> Term:
    rank = term.rank or 0
    return term.call("Transpose", perm=[0, rank - 1, *range(1, rank - 1)])


def _last(term: Term, rank: int) -> Term:
    return term.call("Transpose", perm=[0, *range(2, rank), 1])


@composed(nhwc_conv)
def nhwc_conv_of_others(node: Node, build: Builder) -> None:
    """Conv between two transposes."""
    def formula(x: Term, w: Term, b: Term | None = None, **attributes: Any) -> Term:
        return _last(_first(x).call("Conv", _first(w), b, **attributes), x.rank or 0)

    lowered(formula)(node, build)


@composed(nhwc_max_pool)
def nhwc_max_pool_of_others(node: Node, build: Builder) -> None:
    """MaxPool between two transposes."""
    lowered(lambda x, **attributes: _last(_first(x).call("MaxPool", **attributes), x.rank or 0))(node, build)


@cuda(simplified_layer_normalization)
def simplified_norm_on_device(step: Step) -> Planned:
    """The root of the mean square."""
    x, scale = step.input(0), step.input(1)
    axes = range(step.attributes["axis"] % len(x.shape), len(x.shape))
    statistics = [(_the_inverse, step.output(1))] if step.wanted(1) else []
    operands = {"x": x, "scale": scale}
    return normalized(x.shape, axes, operands, step.output(), rooted, ROOT, wide(x.dtype), statistics, epsilon=step.attributes["epsilon"])


def _plus(x: float, other: float) -> float:
    return x + other


def _nothing(x: float) -> float:
    return 0


@cuda(skip_layer_normalization, skip_simplified_layer_normalization)
def skip_norm_on_device(step: Step) -> Planned:
    """The sum first."""
    simple = step.node.op is skip_simplified_layer_normalization
    x, skip, scale = step.input(0), step.input(1), step.input(2)
    beta, bias = (None, step.given(3)) if simple else (step.given(3), step.given(4))
    kind = wide(x.dtype)
    total = step.temporary(kind, x.shape)
    steps: list[Apply] = [applied(_plus, [x, skip], kind, compute=kind)]
    if bias is not None:
        steps.append(applied(_plus, [None, bias], kind, compute=kind))
    launches: list[Launch | Chain] = [Chain(tuple(steps), total)]
    operands = {"x": total, "scale": scale} | ({"bias": beta} if beta is not None else {})
    form = rooted if simple else _scaled if beta is None else _shifted
    statistics = [(function, step.output(index)) for index, function in ((1, _the_mean), (2, _the_inverse)) if step.wanted(index)]
    if simple:
        launches += [mapped(_nothing, [item], item) for function, item in statistics if function is _the_mean]
        statistics = [pair for pair in statistics if pair[0] is _the_inverse]
    axes = [len(x.shape) - 1]
    folds = ROOT if simple else MOMENTS
    y = step.output() if step.wanted(0) else step.temporary(x.dtype, x.shape)
    launches.append(normalized(x.shape, axes, operands, y, form, folds, kind, statistics, epsilon=step.attributes["epsilon"]))
    if step.wanted(3):
        launches.append(copied(x.shape, over(total, x.shape), over(step.output(3), x.shape)))
    return launches


@cuda(rotary_embedding)
def rotary_on_device(step: Step) -> Planned:
    """Positions for each token, or one where every row starts."""
    x, positions, cos, sin = (step.input(index) for index in range(4))
    half = cos.shape[-1]
    heads = None if len(x.shape) == 4 else step.attributes["num_heads"] or x.shape[2] // (2 * half)
    one, two = in_heads(x, heads), in_heads(step.output(), heads)
    batch, length = one.shape[0], one.shape[2]
    launches: list[Launch | Chain] = []
    if positions.count == 1 and len(positions.shape) < 2:
        table = step.temporary(np.int64, (1, length))
        launches.append(mapped(_plus, [positions.view(()), step.held(np.arange(length))], table, compute=np.dtype(np.int64)))
    elif positions.count == batch * length:
        table = positions.view((batch, length))
    else:
        return "its positions do not fit"
    return [*launches, *rotated(step, one, two, cos, sin, table, bool(step.attributes["interleaved"]), 2 * half)]
