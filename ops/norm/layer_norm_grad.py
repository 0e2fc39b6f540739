"""LayerNormGrad and RMSNormGrad: the gradients of layer and RMS normalization by their input, scale and bias."""

from __future__ import annotations

from ...runtime.ir.domain import CANDLE
from ...runtime.ir.op import case
from ...runtime.ir.shape_inference import Inference
from ..rules.decomposition import composed
from ..rules.expression import Term


def standardized(x: Term, axes: Term, epsilon: float) -> tuple[Term, Term]:
    """Zero mean and unit variance along axes, and the reciprocal of the deviation."""
    moved = x - x.call("ReduceMean", axes)
    scale = 1 / ((moved * moved).call("ReduceMean", axes) + epsilon).call("Sqrt")
    return moved * scale, scale


def through_standardized(grad: Term, normal: Term, scale: Term, axes: Term) -> Term:
    """The gradient by what was standardized."""
    return scale * (grad - grad.call("ReduceMean", axes) - normal * (grad * normal).call("ReduceMean", axes))


def last_axes(x: Term, axis: int) -> Term:
    """An axis and all after it."""
    if axis < 0 or x.rank is not None:
        return x.integers(list(range(axis, 0) if axis < 0 else range(axis, x.rank or 0)))
    return x.integers(axis).call("Range", x.shape.call("Size"), x.integers(1))


def _infer(node: Inference) -> None:
    node.set(0, node.dtype(1), node.shape(1))
    for index in range(1, len(node.node.outputs)):
        node.set(index, node.dtype(2), node.shape(2))


@composed(
    "LayerNormGrad",
    CANDLE,
    types="T=float T T -> 3",
    infer=_infer,
    examples=[
        case("f32[2,3,20]", "f32[2,3,20]", "f32[20]", outputs=3),
        case("f32[2,3,4]", "f32[2,3,4]", "f32[3,4]", axis=1, epsilon=0.1, outputs=3),
        case("f32[5,33]", "f32[5,33]", "f32[1]", outputs=3),
    ],
)
def layer_norm_grad(
    grad: Term, x: Term, scale: Term, *, axis: int = -1, epsilon: float = 1e-5
) -> tuple[Term, Term, Term]:
    """The gradients by x, scale and bias, whose shape is that of scale, of a normalization over `axis` and all after
    it; `grad` is that of its result."""
    axes = last_axes(x, axis)
    normal, inverse = standardized(x, axes, epsilon)
    by_x = through_standardized(grad * scale, normal, inverse, axes)
    return by_x, (grad * normal).summed_to(scale), grad.summed_to(scale)


@composed(
    "RMSNormGrad",
    CANDLE,
    types="T=float T T -> 2",
    infer=_infer,
    examples=[
        case("f32[2,3,20]", "f32[2,3,20]", "f32[20]", outputs=2),
        case("f32[2,3,4]", "f32[2,3,4]", "f32[3,4]", axis=1, epsilon=0.1, outputs=2),
    ],
)
def rms_norm_grad(grad: Term, x: Term, scale: Term, *, axis: int = -1, epsilon: float = 1e-5) -> tuple[Term, Term]:
    """The gradients by x and scale; as LayerNormGrad without means."""
    axes = last_axes(x, axis)
    inverse = 1 / ((x * x).call("ReduceMean", axes) + epsilon).call("Sqrt")
    normal, scaled = x * inverse, grad * scale
    by_x = inverse * (scaled - normal * (scaled * normal).call("ReduceMean", axes))
    return by_x, (grad * normal).summed_to(scale)
