"""MultiHeadAttention: self- and cross-attention of projected queries, keys and values, with a past (Whisper, T5, Stable
Diffusion)."""

from __future__ import annotations

import numpy as np

from ....runtime.ir.domain import MICROSOFT
from ....runtime.ir.op import Tolerance, case, op
from ....runtime.ir.shape_inference import Inference, Shape
from ...attention.scaled_dot_product import PROBABILITIES
from ...rules.precision import widened
from ...rules.shape_rules import shape_error
from .heads import added, attended, combined, hidden_by, with_past
from .rotary_embedding import split


def _infer(node: Inference) -> None:
    q, k, v, past = (node.shape(index) for index in (0, 1, 2, 6))
    heads = node.attributes["num_heads"]
    if q is None or (node.value(1) is not None and k is None):
        node.set(0, node.dtype(0), None)
        return
    if len(q) not in (3, 5):
        node.fail(f"queries have shape {q}, not (batch, length, size) or (batch, length, heads, 3, size)")
    width, head, length = _widths(q, k, v, heads)
    node.set(0, node.dtype(0), (q[0], q[1], width))
    keys = (
        length
        if node.value(6) is None or (k is not None and len(k) == 4)
        else None
        if past is None
        else (past[2] if node.value(8) is not None else added(past[2], length))
    )
    size = width // heads if isinstance(width, int) else None
    node.set(1, node.dtype(0), (q[0], heads, keys, head))
    node.set(2, node.dtype(0), (q[0], heads, keys, size))
    node.set(3, node.dtype(0), (q[0], heads, q[1], keys))


def _widths(q: Shape, k: Shape | None, v: Shape | None, heads: int) -> Shape:
    """Output width, size of a key's head, and how many keys are new."""
    if len(q) == 5:
        return (q[2] * q[4] if isinstance(q[2], int) and isinstance(q[4], int) else None, q[4], q[1])
    head = q[2] // heads if isinstance(q[2], int) else None
    if k is not None and len(k) == 5:
        return (q[2], head, k[1])
    if v is not None and len(v) == 4:
        return (v[1] * v[3] if isinstance(v[1], int) and isinstance(v[3], int) else None, head, v[2])
    return (v[2] if v is not None and len(v) == 3 else q[2], head, k[1] if k is not None else q[1])


@op(
    "MultiHeadAttention",
    MICROSOFT,
    types="T=real T T T i32 T T T i32 i32 -> 4",
    infer=_infer,
    tolerance=Tolerance(1e-4, 1e-5),
    examples=[
        case("f32[2,3,8]", "f32[2,5,8]", "f32[2,5,12]", "f32[28]", num_heads=2),
        case(
            "f32[2,3,8]",
            "f32[2,3,8]",
            "f32[2,3,8]",
            None,
            np.array([[1, 1, 0, 1, 1], [1, 0, 1, 1, 1]], np.int32),
            None,
            "f32[2,2,2,4]",
            "f32[2,2,2,4]",
            num_heads=2,
            outputs=3,
            scale=0.3,
        ),
        case("f32[2,3,2,3,4]", num_heads=2),
        case("f32[2,3,8]", "f32[2,5,2,2,4]", num_heads=2),
        case("f32[1,3,8]", "f32[1,2,5,4]", "f32[1,2,5,4]", None, None, "f32[1,2,3,5]", num_heads=2),
        case("f32[1,3,8]", "f32[1,3,8]", "f32[1,3,8]", "f32[24]", num_heads=2, unidirectional=1),
        case(
            "f32[2,1,8]",
            "f32[2,1,8]",
            "f32[2,1,8]",
            None,
            np.array([[1, 0, 1], [0, 1, 1]], np.int32),
            None,
            "f32[2,2,6,4]",
            "f32[2,2,6,4]",
            np.array([2], np.int32),
            num_heads=2,
            outputs=3,
        ),
    ],
)
@widened
def multi_head_attention(
    query: np.ndarray,
    key: np.ndarray | None = None,
    value: np.ndarray | None = None,
    bias: np.ndarray | None = None,
    key_padding_mask: np.ndarray | None = None,
    attention_bias: np.ndarray | None = None,
    past_key: np.ndarray | None = None,
    past_value: np.ndarray | None = None,
    past_sequence_length: np.ndarray | None = None,
    cache_indirection: np.ndarray | None = None,
    *,
    num_heads: int,
    mask_filter_value: float = -10000.0,
    scale: float = 0.0,
    unidirectional: int = 0,
) -> tuple[np.ndarray, ...]:
    """[batch, length, value size], keys and values [batch, heads, keys, head size] with the past, and what values are
    weighted with.

    Queries, keys and values are [batch, length, heads x size]; all packed [batch, length, heads, 3, size]; keys and
    values packed [batch, length, heads, 2, size]; or keys and values in heads, which is cross-attention over a kept
    past.
    """
    what = "MultiHeadAttention"
    if cache_indirection is not None:
        raise shape_error(what, "beams that share a past (cache_indirection) are not supported")
    q, k, v, new = parted(query, key, value, bias, num_heads, what)
    filled = (
        int(past_sequence_length.reshape(-1)[0]) if past_sequence_length is not None and past_key is not None else None
    )
    olds = (past_key, past_value) if new else (None, None)
    (keys, kept), (values, held) = (with_past(part, old, filled, what) for part, old in zip((k, v), olds, strict=True))
    hidden = (
        None
        if key_padding_mask is None
        else hidden_by(key_padding_mask, len(q), q.shape[2], keys.shape[2], mask_filter_value, what)
    )
    y, weights = attended(
        q,
        keys,
        values,
        scale=scale,
        bias=combined(hidden, attention_bias),
        causal=bool(unidirectional),
        what=what,
        capture=PROBABILITIES,
    )
    assert weights is not None
    return y, kept, held, weights


def parted(
    query: np.ndarray, key: np.ndarray | None, value: np.ndarray | None, bias: np.ndarray | None, heads: int, what: str
) -> tuple[np.ndarray, np.ndarray, np.ndarray, bool]:
    """Queries, keys and values in heads with their biases added; whether keys and values are new, not a kept past."""
    if query.ndim == 5:
        q, k, v = (query[:, :, :, part].transpose(0, 2, 1, 3) for part in range(3))
    elif key is None:
        raise shape_error(what, f"queries of shape {query.shape} have no keys")
    elif key.ndim == 5:
        q, k, v = split(query, heads, 0, what), *(key[:, :, :, part].transpose(0, 2, 1, 3) for part in range(2))
    elif value is None:
        raise shape_error(what, f"keys of shape {key.shape} have no values")
    elif key.ndim == 4:
        wanted = query if bias is None else query + bias[: query.shape[2]]
        return split(wanted, heads, 0, what), key, value, False
    else:
        q, k, v = (split(part, heads, 0, what) for part in (query, key, value))
    if bias is not None:
        ends = np.cumsum([part.shape[1] * part.shape[3] for part in (q, k, v)])
        if bias.shape != (ends[2],):
            raise shape_error(what, f"a bias of shape {bias.shape} where ({ends[2]},) is needed")
        q, k, v = (
            part + piece.reshape(1, part.shape[1], 1, part.shape[3])
            for part, piece in zip((q, k, v), np.split(bias, ends[:2]), strict=True)
        )
    return q, k, v, True
