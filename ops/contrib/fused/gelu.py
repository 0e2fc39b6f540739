"""Gelu, BiasGelu, FastGelu and QuickGelu: x times the normal distribution function of x, exact or approximated
(arXiv:1606.08415)."""

from __future__ import annotations

from ....runtime.ir.domain import MICROSOFT
from ....runtime.ir.op import case
from ...rules.decomposition import composed
from ...rules.expression import Term
from ...rules.shape_rules import broadcast_to_input, same_as_input


@composed("Gelu", MICROSOFT, types="float", infer=same_as_input, examples=[case("f32[2,3]"), case("f32[0,2]")])
def gelu(x: Term) -> Term:
    """``x * (1 + erf(x / sqrt(2))) / 2``."""
    return x.call("Gelu")


@composed("BiasGelu", MICROSOFT, types="T=float T", infer=broadcast_to_input, examples=[case("f32[2,3,4]", "f32[4]")])
def bias_gelu(a: Term, b: Term) -> Term:
    """Gelu of ``a + b``; `b` belongs to the last axis."""
    return (a + b).call("Gelu")


@composed(
    "FastGelu",
    MICROSOFT,
    types="T=float T",
    infer=broadcast_to_input,
    examples=[case("f32[2,3,4]", "f32[4]"), case("f32[2,5]")],
)
def fast_gelu(x: Term, bias: Term | None = None) -> Term:
    """Gelu of ``x + bias`` by tanh."""
    return (x if bias is None else x + bias).call("Gelu", approximate="tanh")


@composed(
    "QuickGelu",
    MICROSOFT,
    types="float",
    infer=same_as_input,
    examples=[case("f32[2,3]"), case("f32[2,3]", alpha=-0.7), case("f32[0]")],
)
def quick_gelu(x: Term, *, alpha: float = 1.702) -> Term:
    """``x * sigmoid(alpha * x)``."""
    return x.call("Swish", alpha=alpha)
