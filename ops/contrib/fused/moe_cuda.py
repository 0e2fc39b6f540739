"""MoE and QMoE on the device: grouped products of the tokens with their experts' matrices."""

from __future__ import annotations

from ....runtime.cuda.plan.kernel_api import decomposed
from ....runtime.ir.domain import CANDLE
from ....runtime.ir.op import Undecomposable
from ....runtime.tensor.dtype import F32
from ...rules.decompose_cuda import Form, forms
from ...rules.expression import Term
from .moe import moe, qmoe

ACTIVATIONS = {
    "relu": lambda x: x.call("Relu"),
    "gelu": lambda x: x.call("Gelu", approximate="tanh"),
    "silu": lambda x: x * x.call("Sigmoid"),
    "identity": lambda x: x,
}

Layer = tuple[Term, "Term | None"]
"""Matrices [experts, out, in] and biases [experts, out]."""


def unpacked(form: Form, codes: Term, bits: int) -> Term:
    """Integers of so many bits, the first in the lowest ones, as u8 with the last axis longer."""
    if bits == 8:
        return codes
    parts = [
        codes.call("BitShift", form.constant(place, "uint8"), direction="RIGHT").call(
            "BitwiseAnd", form.constant((1 << bits) - 1, "uint8")
        )
        for place in range(0, 8, bits)
    ]
    spread = [part.call("Unsqueeze", form.constant([-1])) for part in parts]
    return spread[0].call("Concat", *spread[1:], axis=-1).reshaped(*codes.lengths[:-1], -1)


def _through(form: Form, x: Term, layer: Layer, ids: Term, each: int) -> Term:
    weight, bias = layer
    y = form.node_of("MatMulExperts", [x, weight, ids], 1, CANDLE, each=each)[0]
    return y if bias is None else y + bias.call("Gather", ids)


def _gated(form: Form, x: Term, other: Term | None) -> Term:
    given = form.attributes
    if given["activation_type"] != "swiglu":
        y: Term = ACTIVATIONS[given["activation_type"]](x)
        return y if other is None else y * other
    width = x.lengths[-1]
    if given["swiglu_fusion"] == 1:
        x, other = (x.part(-1, start, width, 2) for start in (0, 1))
    elif given["swiglu_fusion"]:
        x, other = x.part(-1, 0, width // 2), x.part(-1, width // 2, width)
    if other is None:
        raise Undecomposable("a SwiGLU that is not fused needs a third layer")
    if given["swiglu_limit"] is not None:
        limit = x.number(given["swiglu_limit"])
        x, other = x.call("Min", limit), other.call("Clip", other.number(-given["swiglu_limit"]), limit)
    return x * (x * given["activation_alpha"]).call("Sigmoid") * (other + given["activation_beta"])


def _mixed(form: Form, layers: tuple[Layer, Layer, Layer | None], mixing: Term | None) -> None:
    given, x = form.attributes, form.input(0)
    if given["use_sparse_mixer"]:
        raise Undecomposable("a sparse mixer runs nowhere")
    scores, count = form.input(1), given["k"]
    tokens = x.reshaped(-1, x.lengths[-1])
    ids = form.node_of("TopK", [scores, form.constant([count])], 2, axis=1)[1]
    shares = (scores.call("Softmax", axis=1) if mixing is None else mixing).call("GatherElements", ids, axis=1)
    if given["normalize_routing_weights"]:
        total = shares.call("ReduceSum", form.constant([1]), keepdims=1)
        shares = shares / total.call("Equal", total.number(0)).where(1.0, total)
    first, second, third = layers
    inner = _gated(
        form, _through(form, tokens, first, ids, 0), None if third is None else _through(form, tokens, third, ids, 0)
    )
    y = _through(form, inner, second, ids, 1) * shares.cast(inner.dtype).call("Unsqueeze", form.constant([2]))
    form.give(0, y.call("ReduceSum", form.constant([1]), keepdims=0).reshaped(*x.lengths))


def _experts(form: Form) -> None:
    third = form.optional_input(6)
    _mixed(
        form,
        (
            (form.input(2), form.optional_input(3)),
            (form.input(4), form.optional_input(5)),
            None if third is None else (third, form.optional_input(7)),
        ),
        None,
    )


def _real(form: Form, index: int, zero: int, bits: int) -> Term:
    """Weights of integers as numbers."""
    codes, scales, zeros = form.input(index), form.optional_input(index + 1), form.optional_input(zero)
    if scales is None or bits not in (2, 4, 8):
        raise Undecomposable("weights without scales, or of other than 2, 4 or 8 bits")
    whole = unpacked(form, codes, bits).cast(F32)
    experts, out, count = whole.lengths
    blocks = 1 if len(scales.lengths) == 2 else scales.lengths[2]
    if zeros is None:
        middle = form.constant(1 << (bits - 1), "float32")
    elif len(scales.lengths) == 2:
        middle = unpacked(form, zeros.reshaped(experts, -1), bits).part(1, 0, out).reshaped(experts, out, 1, 1)
    else:
        middle = (
            unpacked(form, zeros.reshaped(experts, out, -1), bits).part(2, 0, blocks).reshaped(experts, out, blocks, 1)
        )
    spread = scales.cast(F32).reshaped(experts, out, blocks, 1)
    wide = whole.reshaped(experts, out, blocks, count // blocks)
    return ((wide - middle.cast(F32)) * spread).reshaped(experts, out, count)


def _experts_of_integers(form: Form) -> None:
    given = form.attributes
    if given["quant_type"] != "int" or given["weights_prepacked"] == 1 or form.input(0).dtype is not F32:
        raise Undecomposable(
            "weights of narrow floats, prepacked ones, and activations of half precision are decoded on the CPU"
        )
    bits = [given[f"fc{number}_expert_weight_bits"] or given["expert_weight_bits"] for number in (1, 2, 3)]
    layers = [
        None
        if form.optional_input(index) is None
        else (_real(form, index, 11 + place, bits[place]), form.optional_input(index + 2))
        for place, index in enumerate((2, 5, 8))
    ]
    first, second, third = layers
    assert first is not None
    assert second is not None
    _mixed(form, (first, second, third), form.optional_input(14))


decomposed(moe)(forms(_experts))
decomposed(qmoe)(forms(_experts_of_integers))
