"""Attention and QAttention: multi-head self-attention with its projection, as in BERT and GPT-2."""

from __future__ import annotations

import numpy as np

from ....runtime.base.dataclass import dataclass
from ....runtime.ir.op import Tolerance, case, op
from ....runtime.ir.shape_inference import Inference
from ...attention.rotary_embedding import rotary_embedding
from ...quantized.exact_integer_matmul import centred, exact_matmul
from ...rules.contrib_domain import DOMAIN
from ...rules.precision import widened
from ...rules.shape_rules import shape_error
from .heads import added, attended, combined, hidden_by, with_past
from .rotary_embedding import split

ROTARY_BASE = 10000.0


def _infer(node: Inference) -> None:
    what = node.node.op.name
    x, weight, past = node.shape(0), node.shape(1), node.shape(4 if what == "Attention" else 8)
    if x is not None and len(x) != 3:
        node.fail(f"the input has shape {x}, not (batch, length, size)")
    dtype = node.dtype(0 if what == "Attention" else 3)
    sizes, heads = node.attributes.get("qkv_hidden_sizes"), node.attributes["num_heads"]
    merged = weight[1] if weight is not None and len(weight) > 1 else None
    third = merged // 3 if isinstance(merged, int) else None
    node.set(0, dtype, None if x is None else (x[0], x[1], sizes[2] if sizes else third))
    shared = node.attributes.get("past_present_share_buffer")
    length = (
        None
        if x is None
        else x[1]
        if past is None and node.value(4 if what == "Attention" else 8) is None
        else None
        if past is None
        else (past[3] if shared else added(past[3], x[1]))
    )
    key = sizes[0] if sizes else third
    node.set(1, dtype, None if x is None else (2, x[0], heads, length, key // heads if isinstance(key, int) else None))


@dataclass(frozen=True)
class AttentionOptions:
    """Attributes of the operator `what`; `rotary_dim` elements of each head are rotated, 0 for none."""

    what: str
    num_heads: int
    unidirectional: int
    scale: float
    mask_filter_value: float
    rotary_dim: int


def self_attention(
    projected: np.ndarray,
    sizes: list[int],
    mask: np.ndarray | None,
    past: np.ndarray | None,
    bias: np.ndarray | None,
    filled: int | None,
    options: AttentionOptions,
) -> tuple[np.ndarray, np.ndarray]:
    """From queries, keys and values side by side [batch, length, sum of sizes] to [batch, length, value size] and the
    present."""
    what = options.what
    if sum(sizes) != projected.shape[2] or sizes[0] != sizes[1]:
        raise shape_error(what, f"sizes {sizes} do not fit a projection to {projected.shape[2]}")
    q, k, v = (split(part, options.num_heads, 0, what) for part in np.split(projected, np.cumsum(sizes)[:-1], axis=2))
    count = 0 if past is None else past.shape[3] if filled is None else filled
    if options.rotary_dim:
        q, k = (_rotated(part, count, options.rotary_dim) for part in (q, k))
    olds = (None, None) if past is None else (past[0], past[1])
    (keys, kept), (values, held) = (with_past(new, old, filled, what) for new, old in zip((k, v), olds, strict=True))
    hidden = (
        None if mask is None else hidden_by(mask, len(q), q.shape[2], keys.shape[2], options.mask_filter_value, what)
    )
    y, _ = attended(
        q,
        keys,
        values,
        scale=options.scale,
        bias=combined(hidden, bias),
        causal=bool(options.unidirectional),
        what=what,
    )
    return y, np.stack([kept, held]) if kept.shape == held.shape else kept


def _rotated(x: np.ndarray, start: int, size: int) -> np.ndarray:
    """Heads rotated by their positions from `start`, with the angles of the paper."""
    angles = np.arange(start, start + x.shape[2])[:, None] * ROTARY_BASE ** (-np.arange(0, size, 2) / size)
    cos, sin = (
        np.broadcast_to(part.astype(x.dtype), (len(x), *angles.shape)) for part in (np.cos(angles), np.sin(angles))
    )
    assert rotary_embedding.compute is not None
    made: np.ndarray = rotary_embedding.compute(x, cos, sin, rotary_embedding_dim=size)
    return made


@op(
    "Attention",
    DOMAIN,
    infer=_infer,
    tolerance=Tolerance(1e-4, 1e-5),
    examples=[
        case("f32[2,3,8]", "f32[8,24]", "f32[24]", np.array([2, 3], np.int32), num_heads=2),
        case("f32[2,3,6]", "f32[6,24]", "f32[24]", None, "f32[2,2,2,4,4]", unidirectional=1, num_heads=2, outputs=2),
        case(
            "f32[2,3,6]",
            "f32[6,28]",
            "f32[28]",
            np.array([[1, 1, 0], [1, 1, 1]], np.int32),
            num_heads=2,
            qkv_hidden_sizes=[8, 8, 12],
            scale=0.3,
        ),
        case("f32[1,2,8]", "f32[8,24]", "f32[24]", None, None, "f32[1,2,2,2]", num_heads=2),
    ],
)
@widened
def attention(
    x: np.ndarray,
    weights: np.ndarray,
    bias: np.ndarray | None = None,
    mask_index: np.ndarray | None = None,
    past: np.ndarray | None = None,
    attention_bias: np.ndarray | None = None,
    past_sequence_length: np.ndarray | None = None,
    *,
    num_heads: int,
    do_rotary: int = 0,
    mask_filter_value: float = -10000.0,
    past_present_share_buffer: int = 0,
    qkv_hidden_sizes: list[int] | None = None,
    rotary_embedding_dim: int = 0,
    scale: float = 0.0,
    unidirectional: int = 0,
) -> tuple[np.ndarray, np.ndarray]:
    """[batch, length, value size] from [batch, length, size], and keys and values [2, batch, heads, past + length, head
    size]."""
    if x.ndim != 3 or weights.ndim != 2 or x.shape[2] != weights.shape[0]:
        raise shape_error("Attention", f"an input of shape {x.shape} and weights of shape {weights.shape} do not fit")
    projected = x @ weights if bias is None else x @ weights + bias
    sizes = list(qkv_hidden_sizes or [weights.shape[1] // 3] * 3)
    filled = (
        int(past_sequence_length.reshape(-1)[0])
        if past_present_share_buffer and past_sequence_length is not None
        else None
    )
    rotary_dim = (rotary_embedding_dim or sizes[0] // num_heads) if do_rotary else 0
    options = AttentionOptions("Attention", num_heads, unidirectional, scale, mask_filter_value, rotary_dim)
    return self_attention(projected, sizes, mask_index, past, attention_bias, filled, options)


@op(
    "QAttention",
    DOMAIN,
    infer=_infer,
    tolerance=Tolerance(1e-4, 1e-5),
    examples=[
        case(
            "u8[2,3,8]",
            "i8[8,24]",
            "f32[24]",
            np.float32(0.02),
            np.float32(0.03),
            np.array([2, 3], np.int32),
            np.uint8(20),
            np.int8(2),
            num_heads=2,
        ),
        case(
            "u8[2,3,4]",
            "u8[4,24]",
            "f32[24]",
            np.float32(0.02),
            np.float32(0.03),
            None,
            np.uint8(20),
            np.uint8(19),
            "f32[2,2,2,5,4]",
            num_heads=2,
            unidirectional=1,
            outputs=2,
        ),
    ],
)
def quantized_attention(
    x: np.ndarray,
    weight: np.ndarray,
    bias: np.ndarray,
    input_scale: np.ndarray,
    weight_scale: np.ndarray,
    mask_index: np.ndarray | None = None,
    input_zero_point: np.ndarray | None = None,
    weight_zero_point: np.ndarray | None = None,
    past: np.ndarray | None = None,
    *,
    num_heads: int,
    do_rotary: int = 0,
    mask_filter_value: float = -10000.0,
    past_present_share_buffer: int = 0,
    scale: float = 0.0,
    unidirectional: int = 0,
) -> tuple[np.ndarray, np.ndarray]:
    """Attention whose projection is a product of integers."""
    sums = exact_matmul(centred(x, input_zero_point), centred(weight, weight_zero_point))
    projected = sums.astype(np.float32) * (input_scale * weight_scale).astype(np.float32) + bias.astype(np.float32)
    size = weight.shape[1] // 3
    options = AttentionOptions(
        "QAttention", num_heads, unidirectional, scale, mask_filter_value, size // num_heads if do_rotary else 0
    )
    y, present = self_attention(
        projected, [size] * 3, mask_index, None if past is None else past.astype(np.float32), None, None, options
    )
    return y.astype(bias.dtype), present.astype(bias.dtype)
