"""Piecewise activations: Relu, LeakyRelu, PRelu, ThresholdedRelu, Elu, Selu, Celu, Clip, Shrink, Softsign."""

from __future__ import annotations

import math

import numpy as np

from ...runtime.ir.builder import Builder
from ...runtime.ir.graph import Node
from ...runtime.ir.op import Trait, case, upgrade
from ...runtime.ir.shape_inference import Inference
from ..rules.shape_rules import broadcast_to_input, same_as_input
from .declare import elementwise


@elementwise(
    "Relu",
    14,
    case("f32[2,3]"),
    case("i32[2,3]"),
    case("f32[0,2]"),
    types="float+int",
    traits=(Trait.NON_NEGATIVE, Trait.FINITE_AT_ZERO),
    scalar=lambda x: x if x != x or x > 0 else 0,
)
def relu(x: np.ndarray) -> np.ndarray:
    """max(x, 0)."""
    return np.maximum(x, x.dtype.type(0))


@elementwise(
    "LeakyRelu",
    16,
    case("f32[2,3]"),
    case("f32[2,3]", alpha=0.2),
    case("f32[0,2]"),
    types="float",
    traits=(Trait.FINITE_AT_ZERO,),
    scalar=lambda x, alpha: alpha * x if x < 0 else x,
)
def leaky_relu(x: np.ndarray, *, alpha: float = 0.01) -> np.ndarray:
    """x, or `alpha` times x below zero."""
    return np.where(x < 0, alpha * x, x)


@elementwise(
    "PRelu",
    16,
    case("f32[2,3,4]", "f32[3,1]"),
    case("f32[2,3]", "f32[2,3]"),
    case("f32[0,2]", "f32[1]"),
    types="T=float+long T",
    infer=broadcast_to_input,
    scalar=lambda x, slope: slope * x if x < 0 else x,
)
def prelu(x: np.ndarray, slope: np.ndarray) -> np.ndarray:
    """x, or `slope` times x below zero; `slope` broadcasts to x."""
    return np.where(x < 0, slope * x, x)


@upgrade(prelu, below=7)
def slope_per_channel(node: Node, build: Builder) -> None:
    """Before opset 7 a slope of one dim stood for the channels, axis 1."""
    x, slope = node.inputs
    if x is None or slope is None or (slope.shape is not None and len(slope.shape) != 1) or slope.shape == (1,):
        return
    if x.shape is not None:
        behind = build.constant([1] * max(len(x.shape) - 2, 0))
    else:
        rank = build.add("Shape", [build.add("Shape", [x])])
        count = build.add("Max", [build.add("Sub", [rank, build.constant([2])]), build.constant([0])])
        behind = build.add("ConstantOfShape", [count], {"value": np.array([1], np.int64)})
    node.inputs[1] = build.add(
        "Reshape", [slope, build.add("Concat", [build.add("Shape", [slope]), behind], {"axis": 0})]
    )
    build.keep(node)


@elementwise(
    "ThresholdedRelu",
    22,
    case("f32[2,3]"),
    case("f32[2,3]", alpha=0.2),
    case("f32[0,2]"),
    types="float",
    scalar=lambda x, alpha: x if x > alpha else 0,
)
def thresholded_relu(x: np.ndarray, *, alpha: float = 1.0) -> np.ndarray:
    """x above `alpha`, else zero."""
    return np.where(x > alpha, x, x.dtype.type(0))


@elementwise(
    "Elu",
    22,
    case("f32[2,3]"),
    case("f32[2,3]", alpha=2.0),
    case("f32[0,2]"),
    types="float",
    scalar=lambda x, alpha: alpha * math.expm1(x) if x < 0 else x,
)
def elu(x: np.ndarray, *, alpha: float = 1.0) -> np.ndarray:
    """x, or alpha * (exp(x) - 1) below zero."""
    return np.where(x < 0, alpha * np.expm1(x), x)


@elementwise(
    "Selu",
    22,
    case("f32[2,3]"),
    case("f32[2,3]", alpha=2.0, gamma=3.0),
    case("f32[0,2]"),
    types="float",
    scalar=lambda x, alpha, gamma: gamma * (alpha * math.expm1(x) if x <= 0 else x),
)
def selu(
    x: np.ndarray, *, alpha: float = 1.67326319217681884765625, gamma: float = 1.05070102214813232421875
) -> np.ndarray:
    """gamma * x, or gamma * alpha * (exp(x) - 1) up to zero (Klambauer et al., 2017)."""
    return gamma * np.where(x <= 0, alpha * np.expm1(x), x)


@upgrade(selu, below=6)
def rougher_constants(node: Node, build: Builder) -> None:
    """Before opset 6 the defaults had five digits."""
    node.attributes.setdefault("alpha", 1.6732)
    node.attributes.setdefault("gamma", 1.0507)


@elementwise(
    "Celu",
    28,
    case("f32[2,3]"),
    case("f32[2,3]", alpha=2.0),
    case("f32[0,2]"),
    types="float",
    scalar=lambda x, alpha: alpha * math.expm1(x / alpha) if x < 0 else x,
)
def celu(x: np.ndarray, *, alpha: float = 1.0) -> np.ndarray:
    """max(0, x) + min(0, alpha * (exp(x / alpha) - 1))."""
    return np.maximum(x, 0) + np.minimum(0, alpha * np.expm1(x / alpha))


@elementwise("Softsign", 22, case("f32[2,3]"), case("f32[0,2]"), types="float", scalar=lambda x: x / (1 + abs(x)))
def softsign(x: np.ndarray) -> np.ndarray:
    """x / (1 + abs(x))."""
    return x / (1 + np.abs(x))


def _shrink(x: float, bias: float, lambd: float) -> float:
    return x + bias if x < -lambd else x - bias if x > lambd else 0


@elementwise(
    "Shrink",
    9,
    case("f32[2,3]"),
    case("f32[2,3]", bias=0.5, lambd=1.0),
    case("i32[2,3]", lambd=5.0),
    case("f32[0,2]"),
    types="integer+ieee",
    scalar=_shrink,
)
def shrink(x: np.ndarray, *, bias: float = 0.0, lambd: float = 0.5) -> np.ndarray:
    """x moved toward zero by `bias` where it is farther away than `lambd`, else zero."""
    return np.where(x < -lambd, x + bias, np.where(x > lambd, x - bias, 0)).astype(x.dtype, copy=False)


def _clip(x: float, low: float, high: float) -> float:
    raised = low if x < low else x
    return high if raised > high else raised


def infer_clip(node: Inference) -> None:
    """As the input; bounds are scalars."""
    for index in (1, 2):
        shape = node.shape(index)
        if shape not in (None, (), (1,), (None,)):
            node.fail(f"a bound must be a scalar, it has shape {shape}")
    same_as_input(node)


@elementwise(
    "Clip",
    13,
    case("f32[2,3]", np.float32(-0.5), np.float32(0.5)),
    case("i64[2,3]", None, np.int64(3)),
    case("f32[2,3]", np.float32(0)),
    case("f32[2,3]", np.float32(2), np.float32(1)),
    case("f32[0,2]", np.float32(2)),
    case("f32[2]"),
    types="T=number T T",
    traits=(Trait.FINITE_AT_ZERO,),
    scalar=_clip,
    infer=infer_clip,
)
def clip(x: np.ndarray, low: np.ndarray | None = None, high: np.ndarray | None = None) -> np.ndarray:
    """x limited to [low, high]; a missing bound does not limit, and `high` wins where they cross."""
    raised = x if low is None else np.maximum(x, low.reshape(()))
    return raised if high is None else np.minimum(raised, high.reshape(()))


@upgrade(clip, below=11)
def bounds_were_attributes(node: Node, build: Builder) -> None:
    """Before opset 11 the bounds were attributes."""
    (x,) = node.inputs
    bounds = [node.attributes.pop("min", None), node.attributes.pop("max", None)]
    while bounds and bounds[-1] is None:
        bounds.pop()
    node.inputs += [
        None if bound is None else build.add("CastLike", [build.constant(bound, "float32"), x]) for bound in bounds
    ]
    if bounds:
        build.keep(node)
