"""Shared parts of onnxruntime's attention operators: splitting and joining heads, norms of heads, and visible keys."""

from __future__ import annotations

import numpy as np

from ....runtime.ir.graph import Dim
from ....runtime.ir.shape_inference import Inference
from ...attention.scaled_dot_product import KeyVisibility
from ...norm.layer_norm import rms_normalized
from ...rules.expression import Term


def split_heads(x: Term, heads: int) -> Term:
    """[batch, length, heads x size] as [batch, heads, length, size]."""
    return x.reshaped(0, 0, heads, -1).transposed([0, 2, 1, 3])


def joined_heads(y: Term) -> Term:
    """[batch, heads, length, size] as [batch, length, heads x size]."""
    return y.transposed([0, 2, 1, 3]).reshaped(0, 0, -1)


def added(one: Dim, other: Dim) -> Dim:
    """The sum of two lengths."""
    return one + other if isinstance(one, int) and isinstance(other, int) else None


def query_width(node: Inference, width: Dim) -> Dim:
    """The width of queries, which input 0 holds alone or, without input 1, with keys and values in the same rows."""
    if node.value(1) is not None or not isinstance(width, int):
        return width
    heads, groups = node.attributes["num_heads"], node.attributes["kv_num_heads"]
    return width // (heads + 2 * groups) * heads


def windowed(before: int, causal: int, window: int) -> KeyVisibility:
    """The keys that queries after `before` others see, at most `window` of them where that is positive."""
    return KeyVisibility(np.array([before]), bool(causal), left=window - 1 if window > 0 else -1)


def normalized(
    q: np.ndarray, k: np.ndarray, q_gain: np.ndarray | None, k_gain: np.ndarray | None, epsilon: float
) -> tuple[np.ndarray, np.ndarray]:
    """Queries and keys after RMS norms of each head, as they are without gains."""
    if q_gain is None or k_gain is None:
        return q, k
    return rms_normalized(q, q_gain, epsilon)[0], rms_normalized(k, k_gain, epsilon)[0]
