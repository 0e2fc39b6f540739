"""Gelu, BiasGelu, FastGelu and QuickGelu: x times the normal distribution function of x, exact or approximated
(arXiv:1606.08415)."""

from __future__ import annotations

from typing import Any

import numpy as np

from ....runtime.ir.op import case, op
from ...elementwise.declare import quiet
from ...elementwise.exponential_activation import gelu as standard
from ...elementwise.exponential_activation import sigmoid_of
from ...rules.contrib_domain import DOMAIN
from ...rules.precision import widened
from ...rules.shape_rules import broadcast_all, same_as_input


def gelu_of(x: np.ndarray, **attributes: Any) -> np.ndarray:
    """The standard's Gelu."""
    assert standard.compute is not None
    made: np.ndarray = standard.compute(x, **attributes)
    return made


@op("Gelu", DOMAIN, infer=same_as_input, examples=[case("f32[2,3]"), case("f32[0,2]")])
@quiet
@widened
def gelu(x: np.ndarray) -> np.ndarray:
    """``x * (1 + erf(x / sqrt(2))) / 2``."""
    return gelu_of(x)


@op("BiasGelu", DOMAIN, infer=broadcast_all, examples=[case("f32[2,3,4]", "f32[4]")])
@quiet
@widened
def bias_gelu(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Gelu of ``a + b``; `b` belongs to the last axis."""
    return gelu_of(a + b)


@op("FastGelu", DOMAIN, infer=same_as_input, examples=[case("f32[2,3,4]", "f32[4]"), case("f32[2,5]")])
@quiet
@widened
def fast_gelu(x: np.ndarray, bias: np.ndarray | None = None) -> np.ndarray:
    """Gelu of ``x + bias`` by tanh."""
    return gelu_of(x if bias is None else x + bias, approximate="tanh")


@op("QuickGelu", DOMAIN, infer=same_as_input, examples=[case("f32[2,3]"), case("f32[2,3]", alpha=-0.7), case("f32[0]")])
@quiet
@widened
def quick_gelu(x: np.ndarray, *, alpha: float = 1.702) -> np.ndarray:
    """``x * sigmoid(alpha * x)``."""
    made: np.ndarray = x * sigmoid_of(x.dtype.type(alpha) * x)
    return made
