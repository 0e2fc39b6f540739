"""Gradients of experts: every token goes through all of them, and those that its router does not choose count zero."""

from __future__ import annotations

from ....runtime.ir.op import Undecomposable
from ...contrib.fused.moe import moe
from ...rules.expression import Term
from ..gradient_rule import Step, differentiated_as


def _shares(scores: Term, k: int, normalize: bool) -> Term:
    """The weight of each expert for each token [tokens, experts]: softmax of the `k` highest scores, zero elsewhere."""
    _, places = scores.calls("TopK", scores.integers([k]), outputs=2, axis=1, largest=1)
    count = scores.integers(scores.lengths[1])
    chosen = places.call("OneHot", count, scores.constant([0.0, 1.0], scores.dtype.as_numpy()), axis=-1)
    shares = scores.call("Softmax", axis=1) * chosen.call("ReduceSum", scores.integers([1]), keepdims=0)
    if not normalize:
        return shares
    total = shares.call("ReduceSum", scores.integers([1]), keepdims=1)
    return shares / total.call("Equal", total.number(0)).where(1.0, total)


def _gated(x: Term, other: Term | None, step: Step) -> Term:
    """The activation between the two layers, on [experts, tokens, size]."""
    options = step.attributes
    name, fusion, limit = options["activation_type"], options["swiglu_fusion"], options["swiglu_limit"]
    if name == "swiglu":
        if fusion:
            size = x.lengths[2]
            halves = ((0, size, 2), (1, size, 2)) if fusion == 1 else ((0, size // 2, 1), (size // 2, size, 1))
            x, other = (x.part(2, *each) for each in halves)
        if other is None:
            raise Undecomposable("a SwiGLU that is not fused needs a third layer")
        if limit is not None:
            x, other = x.call("Min", x.number(limit)), other.call("Clip", x.number(-limit), x.number(limit))
        return x * (x * options["activation_alpha"]).call("Sigmoid") * (other + options["activation_beta"])
    if name == "relu":
        x = x.call("Relu")
    elif name == "gelu":
        x = x.call("Gelu", approximate="tanh")
    elif name == "silu":
        x = x * x.call("Sigmoid")
    elif name != "identity":
        raise Undecomposable(f"activation {name!r} is not known")
    return x if other is None else x * other


@differentiated_as(moe)
def _moe(step: Step) -> list[Term | None]:
    x, scores, fc1, fc1_bias, fc2, fc2_bias, fc3, fc3_bias = (*step.x, None, None, None)[:8]
    assert x is not None
    assert scores is not None
    assert fc1 is not None
    assert fc2 is not None

    def layer(x: Term, weight: Term, bias: Term | None) -> Term:
        found = x.call("MatMul", weight.transposed([0, 2, 1]))
        return found if bias is None else found + bias.unsqueezed(1)

    tokens = x.reshaped(-1, x.lengths[-1]).unsqueezed(0)
    other = None if fc3 is None else layer(tokens, fc3, fc3_bias)
    found = layer(_gated(layer(tokens, fc1, fc1_bias), other, step), fc2, fc2_bias)
    shares = _shares(scores, step.attributes["k"], bool(step.attributes["normalize_routing_weights"]))
    mixed = found * shares.transposed([1, 0]).unsqueezed(2)
    return [mixed.call("ReduceSum", step.integers([0]), keepdims=0).like(x)]
