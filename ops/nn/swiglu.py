"""SwiGLU: a Swish gate on a second input (Shazeer 2020, arXiv:2002.05202)."""

from __future__ import annotations

import math

import numpy as np

from ...runtime.ir.op import case
from ...runtime.ir.shape_inference import Inference
from ..elementwise.declare import elementwise
from ..elementwise.exponential_activation import sigmoid_of
from ..rules.shape_rules import same_as_input, shape_error


def _infer(node: Inference) -> None:
    gate, linear = node.shape(0), node.shape(1)
    if gate is not None and linear is not None:
        pairs = zip(gate, linear, strict=False)
        if len(gate) != len(linear) or any(isinstance(a, int) and isinstance(b, int) and a != b for a, b in pairs):
            node.fail(f"inputs of shapes {gate} and {linear} differ")
    same_as_input(node)


@elementwise(
    "SwiGLU",
    28,
    case("f32[2,3]", "f32[2,3]"),
    case("f32[2,3]", "f32[2,3]", alpha=1.7),
    case("f32[0,2]", "f32[0,2]"),
    types="T=float T",
    infer=_infer,
    scalar=lambda gate, linear, alpha: gate / (1 + math.exp(-alpha * gate)) * linear,
)
def swiglu(a: np.ndarray, b: np.ndarray, *, alpha: float = 1.0) -> np.ndarray:
    """``a * sigmoid(alpha * a) * b``, of two arrays of one shape."""
    if a.shape != b.shape:
        raise shape_error("SwiGLU", f"inputs of shapes {a.shape} and {b.shape} differ")
    return a * sigmoid_of(alpha * a) * b
