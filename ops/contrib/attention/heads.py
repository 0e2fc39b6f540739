"""Shared parts of onnxruntime's attention operators: splitting and joining heads, and additive masks."""

from __future__ import annotations

import math

import numpy as np

from ....runtime.ir.graph import Dim
from ....runtime.ir.shape_inference import Inference
from ...attention.scaled_dot_product import KeyVisibility, Scoring, attend
from ...norm.layer_norm import rms_normalized
from ...rules.shape_rules import shape_error
from .rotary_embedding import joined


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


def hidden_by(mask: np.ndarray, batch: int, queries: int, keys: int, fill: float, what: str) -> np.ndarray:
    """A mask as numbers to add, 0 or `fill`, in a shape that broadcasts to [batch, heads, queries, keys].

    Args:
        mask: lengths [batch] (more may follow them), ends and starts [2 x batch], or 1 where a key may be seen: [batch,
            keys], [batch, queries, keys], or [batch, 1, longest, longest] of which the rows of these queries are taken.
    """
    if mask.ndim == 1 and len(mask) in (batch, 2 * batch, 3 * batch + 2):
        position = np.arange(keys)
        seen = position < mask[:batch, None]
        if len(mask) == 2 * batch and batch:
            seen &= position >= mask[batch:, None]
        seen = seen[:, None, None]
    elif mask.ndim == 2 and len(mask) == batch and mask.shape[1] <= keys:
        seen = np.pad(mask > 0, [(0, 0), (0, keys - mask.shape[1])])[:, None, None]
    elif mask.ndim == 3 and mask.shape == (batch, queries, keys):
        seen = (mask > 0)[:, None]
    elif mask.ndim == 4 and mask.shape[:2] == (batch, 1) and min(mask.shape[2:]) >= keys:
        seen = mask[:, :, keys - queries : keys, :keys] > 0
    else:
        raise shape_error(
            what, f"a mask of shape {mask.shape} does not fit {batch} x {queries} queries and {keys} keys"
        )
    made: np.ndarray = np.where(seen, np.float32(0), np.float32(fill))
    return made


def attended(
    q: np.ndarray,
    k: np.ndarray,
    v: np.ndarray,
    *,
    scale: float,
    bias: np.ndarray | None,
    causal: bool,
    what: str,
    capture: int | None = None,
) -> tuple[np.ndarray, np.ndarray | None]:
    """[batch, heads, length, size] to [batch, length, heads x size]: softmax over the keys of scaled products plus
    `bias`; captured scores."""
    if q.shape[:2] != k.shape[:2] or q.shape[3] != k.shape[3] or k.shape[:3] != v.shape[:3]:
        raise shape_error(what, f"queries {q.shape}, keys {k.shape} and values {v.shape} do not fit together")
    visibility = KeyVisibility(np.array([k.shape[2] - q.shape[2]]), causal=causal)
    y, scores = attend(
        q,
        k,
        v,
        Scoring(scale or 1 / math.sqrt(max(1, q.shape[3]))),
        visibility,
        None if bias is None else bias.astype(q.dtype),
        capture,
    )
    return joined(y), scores


def with_past(new: np.ndarray, past: np.ndarray | None, count: int | None, what: str) -> tuple[np.ndarray, np.ndarray]:
    """Keys or values [batch, heads, length, size] after those of the past, and what is kept of all of them.

    Args:
        count: where the past is a buffer that is written to, how much of it is filled; None where all of it is the
            past.
    """
    if past is None:
        return new, new
    if past.ndim != 4 or past.shape[:2] != new.shape[:2] or past.shape[3] != new.shape[3]:
        raise shape_error(what, f"a past of shape {past.shape} does not fit {new.shape}")
    if count is None:
        whole = np.concatenate([past, new], 2)
        return whole, whole
    if not 0 <= count <= past.shape[2] - new.shape[2]:
        raise shape_error(what, f"{count} + {new.shape[2]} positions do not fit into a buffer of shape {past.shape}")
    buffer = np.array(past)
    buffer[:, :, count : count + new.shape[2]] = new
    return buffer[:, :, : count + new.shape[2]], buffer


def combined(one: np.ndarray | None, other: np.ndarray | None) -> np.ndarray | None:
    """The sum of what is there."""
    if one is None or other is None:
        return other if one is None else one
    return one + other
