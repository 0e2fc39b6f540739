"""Activations with exponentials: Sigmoid, HardSigmoid, HardSwish, Swish, Mish, Softplus, Gelu."""

from __future__ import annotations

import math

import numpy as np

from ...runtime.ir.op import Trait, case
from ..rules.expression import Term, lowered
from ..rules.shape_rules import model_error
from .declare import elementwise
from .erf import erf_of

FAR = np.array([-200, -30, -5, 0, 5, 30, 200], np.float32)


def sigmoid_of(x: np.ndarray) -> np.ndarray:
    """1 / (1 + exp(-x)), which never overflows."""
    small = np.exp(-np.abs(x))
    return np.where(x < 0, small, 1) / (1 + small)


@elementwise(
    "Sigmoid",
    13,
    case("f32[2,3]"),
    case(FAR),
    case("f32[0,2]"),
    types="float",
    traits=(Trait.NON_NEGATIVE, Trait.FINITE_AT_ZERO),
    scalar=lambda x: 1 / (1 + math.exp(-x)),
)
def sigmoid(x: np.ndarray) -> np.ndarray:
    """1 / (1 + exp(-x))."""
    return sigmoid_of(x)


def _hard_sigmoid(x: float, alpha: float, beta: float) -> float:
    y = alpha * x + beta
    return 0 if y < 0 else 1 if y > 1 else y


@elementwise(
    "HardSigmoid",
    22,
    case("f32[2,3]"),
    case(FAR, alpha=0.01, beta=0.6),
    case("f32[0,2]"),
    types="float",
    traits=(Trait.NON_NEGATIVE, Trait.FINITE_AT_ZERO),
    scalar=_hard_sigmoid,
)
def hard_sigmoid(x: np.ndarray, *, alpha: float = 0.2, beta: float = 0.5) -> np.ndarray:
    """alpha * x + beta within [0, 1]."""
    return np.clip(alpha * x + beta, 0, 1)


@elementwise(
    "HardSwish",
    22,
    case("f32[2,3]"),
    case(FAR),
    case("f32[0,2]"),
    types="float",
    traits=(Trait.FINITE_AT_ZERO,),
    scalar=lambda x: x * 0 if x <= -3 else x if x >= 3 else x * (x + 3) / 6,
)
def hard_swish(x: np.ndarray) -> np.ndarray:
    """x * min(max(x / 6 + 0.5, 0), 1) (Howard et al., 2019)."""
    return x * np.clip(x / 6 + 0.5, 0, 1).astype(x.dtype, copy=False)


@elementwise(
    "Swish",
    24,
    case("f32[2,3]"),
    case(FAR, alpha=0.5),
    case("f32[0,2]"),
    types="float",
    traits=(Trait.FINITE_AT_ZERO,),
    scalar=lambda x, alpha: x / (1 + math.exp(-alpha * x)),
    lower=lowered(lambda x, alpha: x * (alpha * x).call("Sigmoid")),
)
def swish(x: np.ndarray, *, alpha: float = 1.0) -> np.ndarray:
    """x * sigmoid(alpha * x) (Ramachandran et al., 2017)."""
    return x * sigmoid_of(alpha * x)


@elementwise(
    "Softplus",
    22,
    case("f32[2,3]"),
    case(FAR),
    case("f32[0,2]"),
    types="float",
    traits=(Trait.NON_NEGATIVE, Trait.IMPRECISE_IN_F16),
    scalar=lambda x: max(x, 0) + math.log1p(math.exp(-abs(x))),
)
def softplus(x: np.ndarray) -> np.ndarray:
    """log(1 + exp(x))."""
    return np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))


@elementwise(
    "Mish",
    22,
    case("f32[2,3]"),
    case(FAR),
    case("f32[0,2]"),
    types="float",
    scalar=lambda x: x * math.tanh(max(x, 0) + math.log1p(math.exp(-abs(x)))),
    lower=lowered(lambda x: x * x.call("Softplus").call("Tanh")),
)
def mish(x: np.ndarray) -> np.ndarray:
    """x * tanh(log(1 + exp(x))) (Misra, 2019)."""
    return x * np.tanh(np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x))))


SQRT_HALF = math.sqrt(0.5)
SQRT_2_OVER_PI = math.sqrt(2 / math.pi)


def _gelu(x: float, approximate: str) -> float:
    if approximate == "tanh":
        return 0.5 * x * (1 + math.tanh(SQRT_2_OVER_PI * (x + 0.044715 * x * x * x)))
    return 0.5 * x * (1 + math.erf(x * SQRT_HALF))


def _gelu_of_terms(x: Term, approximate: str) -> Term:
    if approximate == "tanh":
        return 0.5 * x * (1 + (SQRT_2_OVER_PI * (x + 0.044715 * (x * x * x))).call("Tanh"))
    return 0.5 * x * (1 + (x * SQRT_HALF).call("Erf"))


@elementwise(
    "Gelu",
    20,
    case("f32[2,3]"),
    case("f32[2,3]", approximate="tanh"),
    case(FAR),
    case(FAR, approximate="tanh"),
    case("f32[0,2]"),
    types="float",
    traits=(Trait.FINITE_AT_ZERO,),
    scalar=_gelu,
    lower=lowered(_gelu_of_terms),
)
def gelu(x: np.ndarray, *, approximate: str = "none") -> np.ndarray:
    """x times the normal distribution function of x, or its approximation by "tanh" (Hendrycks and Gimpel, 2016)."""
    if approximate == "tanh":
        return 0.5 * x * (1 + np.tanh(SQRT_2_OVER_PI * (x + 0.044715 * x * x * x)))
    if approximate != "none":
        raise model_error("Gelu knows no such approximation", expected="none or tanh", found=approximate)
    return 0.5 * x * (1 + erf_of(x * SQRT_HALF))
